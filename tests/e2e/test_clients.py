"""Every kind of client, over every transport, reaches upstreams over every transport."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from harness import BRIDGE, PATIENCE, SERVERS, Daemon, Place, http_server, proxy, python_server, text_of
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from raw_client import ERAS, MODERN, OLD, StdioClient, http, stdio

UPSTREAMS = ("raw-stdio", "sdk-stdio", "sdk-http", "sdk-http-legacy", "sdk-sse")


@pytest.fixture(scope="module")
def config(shared_place: Place) -> Iterator[Path]:
    """One upstream of each kind."""
    ledger, script = str(shared_place.folder / "ledger"), str(SERVERS / "sdk_server.py")
    with ExitStack() as stack:
        streamable = stack.enter_context(http_server(shared_place, sys.executable, script, ledger, "http"))
        sse = stack.enter_context(http_server(shared_place, sys.executable, script, ledger, "sse"))
        tools_only = {"resources": False, "prompts": False}
        servers = {
            "raw-stdio": python_server("raw_server", str(shared_place.folder / "raw")),
            "sdk-stdio": python_server("sdk_server", ledger, **tools_only),
            "sdk-http": {"url": f"http://127.0.0.1:{streamable}/mcp", **tools_only},
            "sdk-http-legacy": {"url": f"http://127.0.0.1:{streamable}/mcp", "mode": "legacy", **tools_only},
            "sdk-sse": {"url": f"http://127.0.0.1:{sse}/sse", "transport": "sse", **tools_only},
        }
        yield shared_place.config(servers, first_list_wait=PATIENCE)


@pytest.fixture(scope="module")
def daemon(shared_place: Place, config: Path) -> Iterator[Daemon]:
    with Daemon(shared_place, "--config", str(config)) as running:
        yield running


def target(transport: str, place: Place, config: Path, daemon: Daemon) -> Any:
    """What the SDK's `Client` takes to reach the proxy over a transport."""
    if transport == "stdio":
        command, *args = proxy("--config", str(config))
        return stdio_client(
            StdioServerParameters(command=command, args=args, env=place.environ(), cwd=str(place.folder))
        )
    return daemon.url if transport == "http" else sse_client(f"{daemon.base}/sse")


@asynccontextmanager
async def client(*args: Any, mode: str) -> AsyncIterator[Client]:
    with anyio.fail_after(PATIENCE):
        async with Client(target(*args), mode=mode) as connected:
            yield connected


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_a_client_of_the_2x_sdk_sees_three_tools_and_calls_every_upstream(
    transport: str, mode: str, shared_place: Place, config: Path, daemon: Daemon
) -> None:
    async with client(transport, shared_place, config, daemon, mode=mode) as connected:
        modern = connected.protocol_version == MODERN
        assert modern == (mode == "auto")
        assert [tool.name for tool in (await connected.list_tools()).tools] == BRIDGE
        found = await connected.call_tool("tool_search", {"query": "count progress five"})
        assert "count" in found.content[0].text
        for upstream in UPSTREAMS:
            name = f"{upstream}__{'pid' if upstream == 'raw-stdio' else 'echo'}"
            arguments = {} if upstream == "raw-stdio" else {"who": upstream}
            result = await connected.call_tool("tool_call", {"name": name, "arguments": arguments})
            assert not result.is_error, result
            assert (result.structured_content or {}) == arguments


@pytest.mark.parametrize("era", ERAS)
def test_a_raw_client_over_stdio_calls_every_upstream(era: str, shared_place: Place, config: Path) -> None:
    with stdio(shared_place, proxy("--config", str(config)), era) as client:
        assert [tool["name"] for tool in client.tools()] == BRIDGE
        for upstream in UPSTREAMS[1:]:
            result = client.through(f"{upstream}__echo", {"x": 1})["result"]
            assert result["structuredContent"] == {"x": 1}
            assert text_of(result) == "echo"


@pytest.mark.parametrize("era", ERAS)
def test_a_raw_client_over_http_calls_every_upstream(era: str, daemon: Daemon) -> None:
    with http(daemon.url, era) as client:
        assert [tool["name"] for tool in client.tools()] == BRIDGE
        for upstream in UPSTREAMS[1:]:
            result = client.through(f"{upstream}__echo", {"x": 1})["result"]
            assert result["structuredContent"] == {"x": 1}
            assert text_of(result) == "echo"


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_what_every_client_may_ask_is_answered(
    transport: str, shared_place: Place, config: Path, daemon: Daemon
) -> None:
    """Failure report T13: empty lists, no errors, where there are tools only, or more is not wanted of a server."""
    connect = stdio(shared_place, proxy("--config", str(config))) if transport == "stdio" else http(daemon.url)
    with connect as client:
        assert client.request("ping")["result"] == {}
        assert client.request("logging/setLevel", {"level": "debug"})["result"] == {}
        assert client.request("resources/list")["result"]["resources"] == []
        assert client.request("resources/templates/list")["result"]["resourceTemplates"] == []
        assert client.request("prompts/list")["result"]["prompts"] == []
        assert client.request("no/such/method")["error"]["code"] == -32601
        assert client.request("ping")["result"] == {}, "the connection did not survive an unknown method"


@pytest.mark.parametrize("asked", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_every_revision_of_the_handshake_is_spoken(asked: str, daemon: Daemon) -> None:
    with http(daemon.url, asked) as client:
        assert [tool["name"] for tool in client.tools()] == BRIDGE


def test_a_line_that_is_no_message_is_answered_and_the_next_one_is_served(shared_place: Place, config: Path) -> None:
    with stdio(shared_place, proxy("--config", str(config)), OLD) as client:
        assert isinstance(client, StdioClient) and client.process.stdin is not None
        client.process.stdin.write(b"not json\n")
        client.process.stdin.flush()
        assert client.receive()["error"]["code"] == -32700
        assert client.request("ping")["result"] == {}
