"""What is kept of an earlier configuration, what is not, and what it can still show."""

import gc
import os
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from test_reload import PATIENCE, fleet, gate, server

from proxy.app import App
from proxy.caller import Caller
from proxy.config import AuditConfig, GuardConfig, Profile, Settings, Toolset
from proxy.guard.audit import read_entries
from proxy.upstream.discovery import Found
from proxy.upstream.snapshot import Entry, Snapshot


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_an_earlier_configuration_never_shows_what_came_later(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "cache")
    old, new = (server(tmp_path / key, key, launch_hash=f"{key}0") for key in ("old", "new"))
    for each in (old, new):
        snapshot.save(each, Entry(Found(tools=[{"name": "slow"}], capabilities={"tools": {}}), modern=False))
    app = App(Settings(servers=(old,)), {}, snapshot=snapshot)
    view = app.view()
    app.take(Settings(servers=(old, new), profiles={"default": Profile("default", disabled=(Toolset("n", ("new",)),))}))
    assert {tool.server for tool in view.catalog.tools} == {"old"}


async def test_a_search_that_waited_is_answered_by_the_newest_rules(tmp_path: Path) -> None:
    snapshot, known = Snapshot(tmp_path / "cache"), server(tmp_path / "a", "secret", launch_hash="0")
    found = Found(tools=[{"name": "slow"}, {"name": "extra"}], capabilities={"tools": {}})
    snapshot.save(known, Entry(found, modern=False))
    silent = replace(server(tmp_path / "a", "silent"), args=("-c", "import sys; sys.stdin.read()"))
    before = Settings(servers=(known, silent), first_list_wait=PATIENCE)
    app = App(before, {"PATH": os.environ["PATH"]}, clients=1, profiles=(), snapshot=snapshot)
    told = list[str]()

    async def ask(through: str, **arguments: Any) -> None:
        told.append((await app.call(through, arguments, {}, Caller()))["content"][0]["text"])

    async with app.running():
        with anyio.fail_after(PATIENCE / 2):
            async with anyio.create_task_group() as calls:
                calls.start_soon(partial(ask, "tool_search", query="slow", detail="names"))
                calls.start_soon(partial(ask, "tool_describe", name="secret__slow"))
                calls.start_soon(partial(ask, "tool_call", name="no-such-name"))
                await anyio.wait_all_tasks_blocked()
                less = Profile("default", disabled=(Toolset("n", tools=("secret/slow",)),))
                app.take(replace(before, servers=(known,), profiles={"default": less}))
    assert len(told) == 3 and not any("secret__slow(" in text or '"server":"secret"' in text for text in told), told


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
