"""What a change of the configuration does to what is under way: to calls, to what waits in the guard, to the fleet."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy.caller import Access, Caller
from proxy.catalog import Catalog, make_server
from proxy.config import GuardConfig, Profile, ServerConfig, Settings, ToolSearchConfig
from proxy.errors import ConfigError, RateLimited, UpstreamFailure
from proxy.guard import Gate
from proxy.reload import Reload, changes
from proxy.tool import Tool
from proxy.upstream import connection as module
from proxy.upstream.fleet import Fleet
from proxy.upstream.snapshot import Snapshot

SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    known = {"initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {}},
                            "serverInfo": {}},
             "resources/subscribe": {}, "tools/list": {"tools": [{"name": "slow"}, {"name": "extra"}]}}
    method = message["method"]
    if method == "resources/subscribe":
        open(sys.argv[1] + ".subscribed", "a").write(message["params"]["uri"] + "\\n")
    if method == "tools/call":
        result = {"content": [{"type": "text", "text": open(sys.argv[1]).read()}]}
    else:
        result = known.get(method)
    if "id" in message:
        answer = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
"""A call of it reads the file that it was started with: of a FIFO, what the test writes when it likes."""
PATIENCE = 10.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def server(file: Path, key: str = "s", **more: Any) -> ServerConfig:
    return ServerConfig(key, "stdio", command=sys.executable, args=("-c", SERVER, str(file)), **more)


def fleet(*configs: ServerConfig) -> Fleet:
    return Fleet(Settings(servers=configs), {"PATH": os.environ["PATH"]}, Snapshot(None))


async def called(servers: Fleet, told: list[str], tool: str = "slow") -> None:
    [wanted] = [t for t in servers.catalog.tools if t.name == tool]
    try:
        result = await servers.call_tool(wanted, {}, {}, Caller())
    except UpstreamFailure as failure:
        told.append(f"{failure.reason}, {failure.may_have_run}")
    else:
        told.append(result["content"][0]["text"])


async def in_flight(servers: Fleet) -> None:
    """Wait until a call is on its way; nothing tells of that but the connection itself."""
    connection = servers.connections["s"]
    await connection.wait_tried()
    while not connection.questions.busy:  # noqa: ASYNC110
        await anyio.sleep(0.001)


async def test_calls_of_a_server_that_is_configured_otherwise_are_answered_and_new_ones_go_to_the_new(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    os.mkfifo(old)
    new.write_text("of the new")
    servers, told = fleet(server(old)), list[str]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        with anyio.fail_after(PATIENCE):
            await servers.wait_known(PATIENCE)
            async with anyio.create_task_group() as calls:
                calls.start_soon(called, servers, told)
                await in_flight(servers)
                servers.take(Settings(servers=(server(new),)))
                await servers.wait_known(PATIENCE)
                await called(servers, told)
                assert told == ["of the new"]
                await anyio.to_thread.run_sync(old.write_text, "of the old")
            assert told == ["of the new", "of the old"]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("now", "reason"), [(True, "its configuration has changed"), (False, "it is no longer configured")]
)
async def test_a_call_that_takes_too_long_is_told_why_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: bool, reason: str
) -> None:
    monkeypatch.setattr(module, "LOST_GRACE", 0.01)
    os.mkfifo(tmp_path / "never")
    servers, told = fleet(server(tmp_path / "never")), list[str]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        with anyio.fail_after(PATIENCE):
            await servers.wait_known(PATIENCE)
            async with anyio.create_task_group() as calls:
                calls.start_soon(called, servers, told)
                await in_flight(servers)
                servers.take(Settings(servers=(server(tmp_path / "other"),) if now else ()))
        assert told == [f"{reason}, True"]
        shown = {tool.server for tool in servers.catalog.tools}
        assert shown == ({"s"} if now else set()), "what it had is shown until it says what it has now"
        tasks.cancel_scope.cancel()


async def test_what_the_process_never_learns_of_keeps_the_connection(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("answered")
    before = server(tmp_path / "file")
    servers, changed, told = fleet(before), list[int](), list[str]()
    servers.on_change(lambda: changed.append(len(servers.catalog.tools)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        with anyio.fail_after(PATIENCE):
            await servers.wait_known(PATIENCE)
            await servers.connections["s"].wait_tried()
            session = servers.connections["s"].session
            servers.take(Settings(servers=(replace(before, deny=("extra",), timeout=5.0, pinned=("slow",)),)))
            assert servers.connections["s"].session is session is not None
            assert [(tool.name, tool.eager) for tool in servers.catalog.tools] == [("slow", True)]
            assert changed[-1] == 1
            await called(servers, told)
            assert told == ["answered"]
            servers.take(Settings(servers=(replace(before, enabled=False),)))
            assert not servers.catalog.servers and not servers.connections
        tasks.cancel_scope.cancel()


async def test_the_subscriptions_of_clients_go_over_to_the_new_process(tmp_path: Path) -> None:
    servers = fleet(server(tmp_path / "a"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        with anyio.fail_after(PATIENCE):
            await servers.subscribe("s", "test://x")
            servers.take(Settings(servers=(server(tmp_path / "b"),)))
            while not (tmp_path / "b.subscribed").exists():  # noqa: ASYNC110
                await anyio.sleep(0.001)
            servers.take(Settings())
            await servers.unsubscribe("s", "test://x")
            with pytest.raises(UpstreamFailure, match="no longer configured"):
                await servers.subscribe("s", "test://x")
        tasks.cancel_scope.cancel()


async def test_a_level_that_clients_asked_for_holds_for_servers_that_come_later(tmp_path: Path) -> None:
    servers = fleet()
    await servers.set_log_level("error")
    servers.take(Settings(servers=(server(tmp_path / "a"),)))
    assert servers.connections["s"].log_level == "error"


# What waits in the guard.


def gate(before: Gate | None = None, **more: Any) -> Gate:
    profile = Profile("p", rate_limit=1)
    long = ServerConfig("s", "stdio", command="x", max_result_chars=10)
    settings = Settings(servers=(long,), profiles={"p": profile}, guard=GuardConfig(**more))
    return Gate(settings, "tool_call", before)


CALLER = Caller(access=Access(("p",)))


def result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def test_a_result_that_was_kept_can_be_read_on_after_a_change() -> None:
    tool = Tool("s", "t", {"name": "t"}, "s__t")
    first = gate()
    permit = first.free(tool, CALLER)
    assert permit is not None
    shown = first.bound(tool, {}, result("a" * 50 + "the end"), permit)["content"][0]["text"]
    ident = shown.split('"id": "')[1].split('"')[0]
    second = gate(first)
    [reading] = second.scopes.view(_catalog(), ()).servers["narrow_waist"].tools
    read: Mapping[str, Any] | None = second.answers(reading, {"id": ident, "search": "the end"}, CALLER)
    assert read is not None and "the end" in read["content"][0]["text"]


def _catalog() -> Catalog:
    return Catalog([make_server(ServerConfig("s", "stdio"), [{"name": "t"}])])


def test_calls_that_were_counted_stay_counted() -> None:
    first = gate()
    first.admit(CALLER)
    with pytest.raises(RateLimited):
        gate(first).admit(CALLER)


def test_the_guard_says_what_it_guards_by_the_new_rules() -> None:
    tool = Tool("s", "t", {"name": "t"}, "s__t")
    first = gate()
    assert first.policy.risk(tool) == "write"
    assert gate(first, default_risk="read").policy.risk(tool) == "read"


# The file.


def settings(*servers: ServerConfig, **more: Any) -> Settings:
    return Settings(servers=servers, **more)


ONE, TWO = ServerConfig("one", "stdio", command="x"), ServerConfig("two", "stdio", command="x")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (settings(ONE), settings(ONE), None),
        (settings(ONE), settings(ONE, warnings=("a comment has changed",)), None),
        (settings(ONE), settings(ONE, TWO), "new: two"),
        (settings(ONE, TWO), settings(TWO), "gone: one"),
        (settings(ONE), settings(replace(ONE, enabled=False)), "gone: one"),
        (settings(ONE), settings(replace(ONE, env={"KEY": "secret-value"})), "changed: one"),
        (settings(), settings(guard=GuardConfig(), profiles={"p": Profile("p")}), "also profiles, guard"),
        (settings(ONE), settings(TWO, tool_search=ToolSearchConfig("on")), "new: two; gone: one; also tool_search"),
        (settings(), settings(replace(ONE, enabled=False)), "nothing that is served"),
    ],
)
def test_what_has_changed_is_said_by_names(before: Settings, now: Settings, said: str | None) -> None:
    assert changes(before, now) == said


@pytest.mark.parametrize("quiet", [Settings(), Settings(path=Path("upstreams.yaml"), reload=False)])
async def test_nothing_is_watched_where_nothing_is_to_be_taken_up(quiet: Settings) -> None:
    def never(*_: object) -> Settings:
        raise AssertionError

    with anyio.fail_after(PATIENCE):
        await Reload(quiet, never, never, listens=True).run()


async def test_a_file_is_read_when_it_has_come_to_rest_and_a_refusal_keeps_what_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.reload.POLL", 0.001)
    file = tmp_path / "upstreams.yaml"
    file.write_text("1")
    read, taken = list[str](), list[Settings]()
    done = anyio.Event()

    def now() -> Settings:
        read.append(file.read_text())
        if read[-1] == "bad":
            raise ConfigError(f"{file}:1: bad")
        return settings(*(ServerConfig(f"s{n}", "stdio") for n in range(len(read[-1]))), path=file)

    def take(new: Settings) -> None:
        taken.append(new)
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Reload(settings(path=file), now, take, listens=False).run)
        with anyio.fail_after(PATIENCE):
            await anyio.wait_all_tasks_blocked()
            file.write_text("bad")
            while "what was configured before stays" not in caplog.text:  # noqa: ASYNC110
                await anyio.sleep(0.001)
            assert not taken
            file.unlink()
            file.write_text("four")
            await done.wait()
        tasks.cancel_scope.cancel()
    assert [len(new.servers) for new in taken] == [4]
    assert read[0] == "bad" and read[-1] == "four"
