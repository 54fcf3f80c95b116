"""The old event-stream transport carries whatever era its two ends agree on."""

from pathlib import Path

import pytest
from guarded_house import MODERN, house, listening, stdio, upstream, write


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(("mode", "version"), [("auto", MODERN), ("modern", MODERN), ("legacy", "2025-11-25")])
async def test_a_server_over_sse_is_spoken_to_in_the_era_that_the_configuration_asks_for(
    mode: str, version: str, tmp_path: Path
) -> None:
    tools = [{"name": "look", "inputSchema": {"type": "object"}}]
    behind = write(tmp_path / "behind.json", {"s": upstream(tmp_path / "s", {"tools": tools}, lazy=False)})
    async with house(behind) as served, listening(served) as port:
        entry = {"url": f"http://127.0.0.1:{port}/sse", "transport": "sse", "mode": mode}
        async with house(write(tmp_path / "front.json", {"old": entry}), clients=1) as app:
            async with stdio(app, MODERN) as client:
                await client.hello()
                answer = await client.through("old__s__look")
            session = app.fleet.connections["old"].session
            assert session is not None and session.version == version
    assert answer["result"]["content"][0]["text"] == "ran look"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_server_over_sse_is_found_out_where_the_transport_is_not_given(mode: str, tmp_path: Path) -> None:
    tools = [{"name": "look", "inputSchema": {"type": "object"}}]
    behind = write(tmp_path / "behind.json", {"s": upstream(tmp_path / "s", {"tools": tools}, lazy=False)})
    async with house(behind) as served, listening(served) as port:
        entry = {"url": f"http://127.0.0.1:{port}/sse", "mode": mode}
        async with house(write(tmp_path / "front.json", {"old": entry}), clients=1) as app:
            async with stdio(app, MODERN) as client:
                await client.hello()
                answer = await client.through("old__s__look")
    assert answer["result"]["content"][0]["text"] == "ran look"


@pytest.mark.parametrize(("path", "transport"), [("/sse", {"transport": "http"}), ("/nowhere", {})])
async def test_what_is_neither_of_the_two_is_told_by_its_answer_to_the_newer(
    path: str, transport: dict[str, str], tmp_path: Path
) -> None:
    async with house(write(tmp_path / "behind.json", {})) as served, listening(served) as port:
        entry = {"url": f"http://127.0.0.1:{port}{path}", **transport}
        async with house(write(tmp_path / "front.json", {"old": entry})) as app:
            connection = app.fleet.connections["old"]
            assert connection.state == "failed" and connection.reason.startswith("HTTP 40")
            assert "event stream" not in connection.reason


async def test_no_failure_is_seen_between_an_attempt_and_another_that_follows_at_once(tmp_path: Path) -> None:
    """What waits for a server (`call`, `lock`) would otherwise go on without it."""
    async with house(write(tmp_path / "behind.json", {})) as served, listening(served) as port:
        entry = {"url": f"http://127.0.0.1:{port}/sse"}
        async with house(write(tmp_path / "front.json", {"old": entry})) as app:
            assert app.fleet.connections["old"].state == "ready"
