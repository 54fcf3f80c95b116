"""Arguments nested more deeply than can be written: a failure of their own call, whatever the transport."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from guarded_house import OLD, house, listening, stdio, upstream, write

from proxy.errors import UpstreamFailure


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def nested(levels: int) -> Any:
    value: Any = 1e400  # JSON has no such number either
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_arguments_nested_too_deeply_fail_their_call_and_no_other(transport: str, tmp_path: Path) -> None:
    """Over stdio it was an internal error; over HTTP the connection ended, and with it everybody's calls."""
    entry = upstream(tmp_path / "s", {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]})
    async with AsyncExitStack() as stack:
        name = "o__look"
        if transport != "stdio":
            behind = write(tmp_path / "behind.json", {"s": {**entry, "lazy": False}})
            served = await stack.enter_async_context(house(behind))
            port = await stack.enter_async_context(listening(served))
            path = "mcp" if transport == "http" else "sse"
            name, entry = "o__s__look", {"url": f"http://127.0.0.1:{port}/{path}", "transport": transport}
        app = await stack.enter_async_context(house(write(tmp_path / "front.json", {"o": entry}), clients=1))
        client = await stack.enter_async_context(stdio(app, OLD))
        await client.hello()
        connection = app.fleet.connections["o"]
        session = await connection.ready()
        with pytest.raises(UpstreamFailure, match="nested too deeply") as raised:
            await session.request("tools/call", {"name": "look", "arguments": {"x": nested(5_000)}})
        assert not raised.value.may_have_run
        assert (await client.through(name, {"x": nested(20)}))["result"]["content"][0]["text"] == "ran look"
        assert connection.session is session
