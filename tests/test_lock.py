"""`lock`: what a person can approve is what any client may come to be shown, and nothing else is lost by it."""

from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from guarded_house import OLD, called, house, stdio, upstream, write

from proxy.cli import main
from proxy.guard.lock import read_lock

STRICT: dict[str, Any] = {"guard": {"lock": "strict"}}


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}", "inputSchema": {"type": "object"}}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))


def varying(folder: Path, **root: Any) -> Path:
    """A configuration with a server that has a tool only for clients that can be asked."""
    offers = {"tools": [tool("plain")], "asking": [tool("asks")]}
    return write(folder / "upstreams.json", {"docs": upstream(folder / "docs", offers)}, **root)


async def names(path: Path, capabilities: dict[str, Any]) -> set[str]:
    async with house(path, clients=1) as app, stdio(app, OLD, capabilities) as client:
        await client.hello()
        await client.through("docs__plain")
        return {tool.name for tool in app.catalog.tools}


def test_a_tool_that_only_some_clients_are_shown_can_be_approved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = varying(tmp_path, **STRICT)
    assert main(["lock", "--config", str(path)]) == 0
    assert set(read_lock(tmp_path / "upstreams.lock").servers["docs"].tools) == {"plain", "asks"}
    assert main(["lock", "--diff", "--config", str(path)]) == 0
    assert main(["lock", "--approve", "docs/asks", "--config", str(path)]) == 0
    main(["list", "docs", "--config", str(path)])
    assert "docs__asks" in capsys.readouterr().out
    assert set(called(tmp_path / "docs")) == {"answered error"}, "whatever a server asks meanwhile is declined"


async def test_such_a_tool_reaches_the_clients_it_is_for(tmp_path: Path) -> None:
    path = varying(tmp_path, **STRICT)
    assert await names(path, {"elicitation": {}}) == set(), "nothing is approved yet"
    await anyio.to_thread.run_sync(main, ["lock", "--config", str(path)])
    assert await names(path, {"elicitation": {}}) == {"plain", "asks"}
    assert await names(path, {}) == {"plain"}


def test_what_a_server_may_not_ask_is_not_declared_to_it(tmp_path: Path) -> None:
    offers = {"tools": [tool("plain")], "asking": [tool("asks")]}
    docs = upstream(tmp_path / "docs", offers, client_requests=["sampling"])
    path = write(tmp_path / "upstreams.json", {"docs": docs}, **STRICT)
    assert main(["lock", "--config", str(path)]) == 0
    assert set(read_lock(tmp_path / "upstreams.lock").servers["docs"].tools) == {"plain"}


def test_a_command_that_calls_declares_nothing(tmp_path: Path) -> None:
    path = varying(tmp_path)
    assert main(["call", "docs__plain", "--config", str(path)]) == 0
    assert called(tmp_path / "docs") == ["tools/call plain"], "a server that believed it could ask would have asked"


def test_two_configurations_can_share_a_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offers = {"tools": [tool("get_time"), tool("set_time")]}
    read = upstream(tmp_path / "clock", offers, tools={"include": ["get_*"]})
    rest = upstream(tmp_path / "clock", offers, tools={"exclude": ["get_*"]})
    reading = str(write(tmp_path / "read.json", {"clock": read}, **STRICT))
    writing = str(write(tmp_path / "write.json", {"clock": rest}, **STRICT))
    assert main(["lock", "--config", reading]) == 0
    assert main(["lock", "--approve", "--config", writing]) == 0
    for path in (reading, writing):
        assert main(["lock", "--diff", "--config", path]) == 0
    assert main(["list", "--config", reading]) == 0
    assert "clock (1 tools)" in capsys.readouterr().out

    # What the server itself no longer has is gone, whoever approved it.
    upstream(tmp_path / "clock", {"tools": [tool("get_time")]})
    assert main(["lock", "--diff", "--config", reading]) == 1
    assert main(["lock", "--approve", "--config", reading]) == 0
    assert set(read_lock(tmp_path / "upstreams.lock").servers["clock"].tools) == {"get_time"}


def test_a_first_lock_with_every_server_down_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock, config = tmp_path / "upstreams.lock", tmp_path / "upstreams.json"
    down = {"command": str(tmp_path / "nowhere")}
    write(config, {"docs": down}, **STRICT)
    assert main(["lock", "--config", str(config)]) == 1
    assert "nothing is written" in capsys.readouterr().out
    assert not lock.exists()
    # So the next one is the first.
    write(config, {"docs": upstream(tmp_path / "docs", {"tools": [tool("plain")]}), "down": down}, **STRICT)
    assert main(["lock", "--config", str(config)]) == 1
    assert set(read_lock(lock).servers) == {"docs"}


def test_a_lock_that_nothing_reads_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for root, said in (({}, True), ({"guard": {"lock": "warn"}}, False)):
        assert main(["lock", "--approve", "--config", str(varying(tmp_path, **root))]) == 0
        assert ("nothing reads it yet" in capsys.readouterr().out) is said
