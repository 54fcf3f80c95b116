"""What a change of the configuration does to what is under way: to calls, to what waits in the guard, to the fleet."""

import math
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy.app import App
from proxy.caller import Access, Caller
from proxy.catalog import Catalog, make_server
from proxy.config import AuditConfig, GuardConfig, Profile, ServerConfig, Settings, ToolSearchConfig
from proxy.errors import RateLimited, UpstreamFailure
from proxy.guard import Gate
from proxy.guard.approval import KEY
from proxy.guard.audit import read_entries
from proxy.tool import Tool
from proxy.upstream import connection as module
from proxy.upstream.discovery import Found
from proxy.upstream.fleet import Fleet
from proxy.upstream.snapshot import Entry, Snapshot

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


@asynccontextmanager
async def running(servers: Fleet) -> AsyncGenerator[None]:
    """A fleet that runs within the block, which must not take long."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        with anyio.fail_after(PATIENCE):
            yield
        tasks.cancel_scope.cancel()


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
    async with running(servers):
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


@pytest.mark.parametrize(
    ("now", "reason"), [(True, "its configuration has changed"), (False, "it is no longer configured")]
)
async def test_a_call_that_takes_too_long_is_told_why_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: bool, reason: str
) -> None:
    monkeypatch.setattr(module, "LOST_GRACE", 0.01)
    os.mkfifo(tmp_path / "never")
    servers, told = fleet(server(tmp_path / "never")), list[str]()
    async with running(servers):
        await servers.wait_known(PATIENCE)
        async with anyio.create_task_group() as calls:
            calls.start_soon(called, servers, told)
            await in_flight(servers)
            servers.take(Settings(servers=(server(tmp_path / "other"),) if now else ()))
        assert told == [f"{reason}, True"]
        shown = {tool.server for tool in servers.catalog.tools}
        assert shown == ({"s"} if now else set()), "what it had is shown until it says what it has now"


async def test_a_call_that_waits_for_a_server_is_told_when_that_goes(tmp_path: Path) -> None:
    silent = replace(server(tmp_path / "a"), args=("-c", "import sys; sys.stdin.read()"))
    servers, told = fleet(silent), list[str]()

    async def call() -> None:
        try:
            await servers.request("s", "tools/call", {"name": "slow"}, {}, Caller())
        except UpstreamFailure as failure:
            told.append(f"{failure.reason}, {failure.may_have_run}")

    async with running(servers):
        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            servers.take(Settings())
        assert told == ["it is no longer configured, False"]


async def test_a_server_that_is_leaving_says_nothing_of_what_there_is_now(tmp_path: Path) -> None:
    servers = fleet(server(tmp_path / "a"))
    old = servers.connections["s"]
    async with running(servers):
        await servers.wait_known(PATIENCE)
        servers.take(Settings())
        old.on_change(old)  # a list that it was still sending
        assert not servers.catalog.servers
        old.on_updated(old, "test://x")


async def test_a_server_that_was_seen_before_is_started_at_once_when_it_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_DELAY", math.inf)
    snapshot, known = Snapshot(tmp_path / "cache"), server(tmp_path / "a", launch_hash="0" * 64)
    snapshot.save(known, Entry(Found(tools=[{"name": "slow"}], capabilities={"tools": {}}), modern=False))
    servers = Fleet(Settings(), {"PATH": os.environ["PATH"]}, snapshot)
    async with running(servers):
        await anyio.wait_all_tasks_blocked()
        servers.take(Settings(servers=(known,)))
        await servers.connections["s"].wait_tried()


async def test_a_connection_that_was_ended_before_it_began_never_begins(tmp_path: Path) -> None:
    connection = fleet(server(tmp_path / "a")).connections["s"]
    connection.end()
    with anyio.fail_after(PATIENCE):
        await connection.run()
    assert connection.state == "stopped"


async def test_a_session_of_a_client_of_its_own_is_of_the_new_server_too(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("of the old")
    (tmp_path / "new").write_text("of the new")
    servers, told = fleet(server(tmp_path / "old", session="per_client")), list[str]()
    async with running(servers):
        await servers.wait_known(PATIENCE)
        await called(servers, told)
        servers.take(Settings(servers=(server(tmp_path / "new", session="per_client"),)))
        await called(servers, told)
        assert told == ["of the old", "of the new"]


async def test_a_server_that_is_not_changed_runs_no_more_calls_at_once_than_it_may(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    one = server(tmp_path / "a", max_concurrency=1)
    servers, told = fleet(one), list[str]()
    async with running(servers):
        await servers.wait_known(PATIENCE)
        async with anyio.create_task_group() as calls:
            calls.start_soon(called, servers, told)
            await in_flight(servers)
            servers.take(Settings(servers=(server(tmp_path / "b", "other"), one)))
            calls.start_soon(called, servers, told)
            await anyio.wait_all_tasks_blocked()
            assert len(servers.connections["s"].questions._in_flight) == 1
            for text in ("first", "second"):
                await anyio.to_thread.run_sync((tmp_path / "a").write_text, text)
                while text not in told:  # noqa: ASYNC110
                    await anyio.sleep(0.001)


async def test_what_the_process_never_learns_of_keeps_the_connection(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("answered")
    before = server(tmp_path / "file")
    servers, changed, told = fleet(before), list[int](), list[str]()
    servers.on_change(lambda: changed.append(len(servers.catalog.tools)))
    async with running(servers):
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


async def test_the_subscriptions_of_clients_go_over_to_the_new_process(tmp_path: Path) -> None:
    servers = fleet(server(tmp_path / "a"))
    async with running(servers):
        await servers.subscribe("s", "test://x")
        servers.take(Settings(servers=(server(tmp_path / "b"),)))
        while not (tmp_path / "b.subscribed").exists():  # noqa: ASYNC110
            await anyio.sleep(0.001)
        servers.take(Settings())
        await servers.unsubscribe("s", "test://x")
        with pytest.raises(UpstreamFailure, match="no longer configured"):
            await servers.subscribe("s", "test://x")


async def test_a_level_that_clients_asked_for_holds_for_servers_that_come_later(tmp_path: Path) -> None:
    servers = fleet()
    await servers.set_log_level("error")
    servers.take(Settings(servers=(server(tmp_path / "a"),)))
    assert servers.connections["s"].log_level == "error"


async def test_the_index_of_what_has_not_changed_is_not_made_again(tmp_path: Path) -> None:
    snapshot, known = Snapshot(tmp_path / "cache"), server(tmp_path / "a", launch_hash="0" * 64)
    snapshot.save(known, Entry(Found(tools=[{"name": "slow"}], capabilities={"tools": {}}), modern=False))
    before = Settings(servers=(known,))
    app = App(before, {}, snapshot=snapshot)
    index = await app.index()
    app.take(replace(before, guard=GuardConfig(), tool_search=ToolSearchConfig(listing="off")))
    assert await app.index() is index
    app.take(Settings())
    assert not (await app.index()).tools


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


class Person:
    """A stateless client: it is asked in results."""

    key, capabilities, stateless, log_level = None, {"elicitation": {}}, True, None


async def test_a_question_that_is_open_can_be_answered_after_a_change() -> None:
    tool, caller = Tool("s", "t", {"name": "t"}, "s__t"), Caller(origin=Person())  # type: ignore[arg-type]
    first = gate()
    question = (await first.ask(tool, {}, caller)).question
    assert question is not None
    yes = {"inputResponses": {KEY: {"action": "accept"}}, "requestState": question["requestState"]}
    assert (await gate(first).ask(tool, {}, caller._replace(answers=yes))).approved
    assert not (await gate().ask(tool, {}, caller._replace(answers=yes))).approved, "another proxy did not ask"


def test_the_file_of_the_audit_is_open_once(tmp_path: Path) -> None:
    audit = AuditConfig(tmp_path / "audit.jsonl")
    first = gate(audit=audit)
    assert first.audit is not None
    first.audit.write({"one": 1})
    second = gate(first, audit=audit)
    assert first.audit._fd is None
    assert second.audit is not None
    second.audit.write({"two": 2})
    second.audit.close()
    assert [entry.keys() - {"time"} for entry in read_entries(audit)] == [{"one"}, {"two"}]


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
