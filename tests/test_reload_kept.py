"""What is kept of an earlier configuration while the proxy runs, and what is not."""

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from test_reload import PATIENCE, fleet, gate, server

from proxy.app import App
from proxy.caller import Caller
from proxy.config import AuditConfig, GuardConfig, Profile, Settings, ToolSearchConfig
from proxy.guard.audit import read_entries
from proxy.upstream.discovery import Found
from proxy.upstream.snapshot import Entry, Snapshot


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_of_earlier_configurations_nothing_is_kept(tmp_path: Path) -> None:
    def made(number: int) -> Settings:
        audit = AuditConfig(tmp_path / "audit.jsonl")
        return Settings(profiles={f"p{number}": Profile(f"p{number}")}, guard=GuardConfig(audit=audit))

    app = App(made(0), {}, clients=None, profiles=(), snapshot=Snapshot(None))
    kept = list[Any]()
    for number in range(1, 6):
        kept.append(weakref.ref(app._now))
        app.take(made(number))
    gc.collect()
    assert [each() for each in kept] == [None] * 5


def test_a_call_that_ends_later_leaves_no_file_open(tmp_path: Path) -> None:
    audit = AuditConfig(tmp_path / "audit.jsonl")
    first = gate(audit=audit)
    gate(first, audit=audit)
    assert first.audit is not None
    first.audit.write({"late": 1})
    assert first.audit._fd is None
    assert [entry.keys() - {"time"} for entry in read_entries(audit)] == [{"late"}]


class Key:
    """Something that can be gone."""


class Origin:
    """A client with a connection of its own."""

    def __init__(self) -> None:
        self.key = Key()


async def test_the_sessions_of_a_client_that_stays_are_not_kept_when_they_have_ended(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("answered")
    one, caller = server(tmp_path / "a", session="per_client"), Caller(origin=Origin())  # type: ignore[arg-type]
    servers, kept = fleet(one), list[Any]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        with anyio.fail_after(PATIENCE):
            await anyio.wait_all_tasks_blocked()
            calls = servers._private.calls("s", caller.origin)
            servers.take(Settings(servers=(replace(one, timeout=7.0),)))
            assert servers._private.calls("s", caller.origin)._connection is calls._connection
            assert calls._connection.config.timeout == 7.0, "what it never learns of holds for it too"
            kept.append(weakref.ref(calls._connection))
            del calls
            servers.take(Settings())
            while kept[0]() is not None:
                gc.collect()
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


async def test_what_clients_follow_is_followed_again_when_its_server_comes_back(tmp_path: Path) -> None:
    one, file = server(tmp_path / "a"), tmp_path / "a.subscribed"
    servers = fleet(one)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        with anyio.fail_after(PATIENCE):
            for uri in ("test://x", "test://y"):
                await servers.subscribe("s", uri)
            servers.take(Settings())
            await servers.unsubscribe("s", "test://y")
            file.unlink()
            servers.take(Settings(servers=(one,)))
            while not file.exists() or not file.read_text():  # noqa: ASYNC110
                await anyio.sleep(0.001)
            assert servers.connections["s"].lists.subscribed == {"test://x": 1}
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("before", "now"), [(300.0, 0.01), (0.0, 0.01)])
async def test_another_idle_time_holds_for_a_server_that_runs(tmp_path: Path, before: float, now: float) -> None:
    (tmp_path / "a").write_text("answered")
    one = server(tmp_path / "a", start="lazy", idle_timeout=before)
    servers = fleet(one)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        with anyio.fail_after(PATIENCE):
            await servers.connections["s"].ready()
            await anyio.wait_all_tasks_blocked()
            servers.take(Settings(servers=(replace(one, idle_timeout=now),)))
            while servers.connections["s"].state != "stopped":  # noqa: ASYNC110
                await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()


async def test_what_was_said_of_servers_and_globs_is_not_said_again_at_each_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    snapshot = Snapshot(tmp_path / "cache")
    known = server(tmp_path / "a", launch_hash="0", start="lazy", deny=("no-such-tool",))
    found = Found(tools=[{"name": "slow", "description": "hidden\u200b"}], capabilities={"tools": {}})
    snapshot.save(known, Entry(found, modern=False))
    guard, plain = GuardConfig(lock="warn", lock_file=tmp_path / "lock"), ToolSearchConfig(tokenizer="estimate")
    before = Settings(servers=(known,), guard=guard, tool_search=plain)
    app = App(before, {}, snapshot=snapshot)
    async with app.running():
        with anyio.fail_after(PATIENCE):
            for timeout in (1.0, 2.0, 3.0):
                app.take(replace(before, servers=(replace(known, timeout=timeout),)))
                await anyio.wait_all_tasks_blocked()
                while app._now._globs._said == set():  # noqa: ASYNC110
                    await anyio.sleep(0.001)
                await app.counted()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("proxy.guard")]
    assert len(said) == len(set(said)) == 3, said
