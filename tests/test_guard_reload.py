"""What clients that are there can see and read once the configuration is another one: what the newest lets them."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from test_reload import PATIENCE, server

from proxy.app import App
from proxy.caller import Access, Caller
from proxy.config import Profile, ServerConfig, Settings, Toolset
from proxy.guard import Gate
from proxy.guard.spill import reading_server
from proxy.tool import Tool
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


async def test_who_was_let_in_for_a_profile_sees_nothing_when_all_profiles_are_gone(tmp_path: Path) -> None:
    snapshot, known = Snapshot(tmp_path / "cache"), server(tmp_path / "a", launch_hash="0")
    found = Found(tools=[{"name": "slow"}], resources=[{"uri": "test://x", "name": "x"}], capabilities={"tools": {}})
    snapshot.save(known, Entry(found, modern=False))
    guarded = Settings(servers=(known,), profiles={"default": Profile("default"), "careful": Profile("careful")})
    app = App(guarded, {}, clients=None, profiles=(), snapshot=snapshot)
    for settings, sees in ((guarded, True), (Settings(servers=(known,)), False)):
        app.take(settings)
        for scope, shown in ((app.narrowed("careful"), sees), (app.narrowed(), True), (("default",), True)):
            view = app.view(scope)
            assert (bool(view.catalog.tools), bool(view.offers.resources)) == (shown, shown)
            answer = await app.call("tool_describe", {"name": "s__slow"}, {}, Caller(access=Access(scope)))
            assert ('"server":"s"' in str(answer)) == shown


@pytest.mark.parametrize(
    ("change", "stays"), [({"timeout": 5.0}, True), ({"deny": ("t",)}, False), ({"enabled": False}, False), ({}, False)]
)
def test_a_kept_result_of_what_is_denied_now_is_not_read_on(change: dict[str, Any], stays: bool) -> None:
    caller = Caller(access=Access(("p",)))
    long = ServerConfig("s", "stdio", command="x", max_result_chars=10)
    profile = Profile("p", disabled=() if change else (Toolset("n", tools=("s/t",)),))
    tool, other = Tool("s", "t", {"name": "t"}, "s__t"), replace(long, key="other")
    first = Gate(Settings(servers=(long,), profiles={"p": Profile("p")}), "tool_call")
    permit = first.free(tool, caller)
    assert permit is not None
    shown = first.bound(tool, {}, {"content": [{"type": "text", "text": "a" * 50 + "the end"}]}, permit)
    ident = shown["content"][0]["text"].split('"id": "')[1].split('"')[0]
    then = Settings(servers=(replace(long, **change), other), profiles={"p": profile})
    second = Gate(then, "tool_call", first)
    read = second.answers(reading_server().tools[0], {"id": ident, "search": "the end"}, caller)
    assert ("offset 50" in str(read)) == stays
