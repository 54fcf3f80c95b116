"""Servers take turns to start, so that many are all ready within their time; a call does not wait for its turn."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy.caller import Caller
from proxy.cli.looking import all_known, all_tried, looking
from proxy.config.settings import ServerConfig, Settings
from proxy.errors import UpstreamFailure
from proxy.upstream import connection as connection_module
from proxy.upstream import starts as module
from proxy.upstream.fleet import Fleet
from proxy.upstream.snapshot import Snapshot
from proxy.upstream.starts import Starts

SILENT = "import sys; sys.stdin.read()"
PATIENCE = 30.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn at a time, which ends with its server's start alone."""
    monkeypatch.setattr(module, "AT_ONCE", 1)
    monkeypatch.setattr(module, "TIME", 3600.0)


def servers(number: int, script: str = SILENT, **keys: float) -> Settings:
    each = [ServerConfig(f"s{n}", "stdio", command=sys.executable, args=("-c", script), **keys) for n in range(number)]  # type: ignore[arg-type]
    return Settings(servers=tuple(each))


@asynccontextmanager
async def running(settings: Settings) -> AsyncGenerator[Fleet]:
    fleet = Fleet(settings, {}, Snapshot(None))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.run)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(PATIENCE):
            yield fleet
        tasks.cancel_scope.cancel()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The servers whose programs were started, in that order."""
    keys: list[str] = []
    real = connection_module.open_stdio

    def opened(config: ServerConfig, *args: Any) -> AbstractAsyncContextManager[None]:
        keys.append(config.key)
        return real(config, *args)

    monkeypatch.setattr(connection_module, "open_stdio", opened)
    return keys


async def test_the_next_server_starts_when_one_is_ready_or_has_failed(one: None, started: list[str]) -> None:
    async with running(servers(3, connect_timeout=0.2)) as fleet:
        assert started == ["s0"]
        await fleet.connections["s2"].wait_tried()
        assert started == ["s0", "s1", "s2"]
        assert [c.reason for c in fleet.connections.values() if "not ready within 0.2 s" not in c.reason] == []


async def test_a_server_that_hangs_keeps_the_others_waiting_for_a_while_only(
    started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 1)
    monkeypatch.setattr(module, "TIME", 0.05)
    async with running(servers(2)) as fleet:
        while started != ["s0", "s1"]:  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.01)
        assert {connection.state for connection in fleet.connections.values()} == {"starting"}


async def test_a_call_starts_its_server_before_its_turn(one: None, started: list[str]) -> None:
    async with running(servers(3)) as fleet:
        async with anyio.create_task_group() as calls:

            async def call() -> None:
                with pytest.raises(UpstreamFailure):
                    await fleet.request("s2", "ping", {}, {}, Caller())

            calls.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            assert started == ["s0", "s2"]
            calls.cancel_scope.cancel()


async def test_whoever_stops_waiting_or_is_called_meanwhile_takes_no_turn_away(one: None) -> None:
    starts = Starts()
    first = await starts.turn("first")
    second = asyncio.create_task(starts.turn("second"))
    await anyio.wait_all_tasks_blocked()
    first.over()  # the second is called,
    first.over()
    second.cancel()  # and does not want it any more
    with anyio.fail_after(PATIENCE):
        third = await starts.turn("third")
        asyncio.get_running_loop().call_soon(third.over)
        await starts.turn("fourth")


async def test_what_looks_at_all_servers_waits_for_those_whose_turn_comes_late(one: None, tmp_path: Path) -> None:
    """`check` gave up after one `connect_timeout`, and said of them that they were starting, and nothing else."""
    settings = servers(3, connect_timeout=0.5)
    for wait in (all_tried, all_known):
        app = looking(settings, environ={"NARROW_WAIST_CACHE": str(tmp_path)})
        async with app.running():
            with anyio.fail_after(PATIENCE):
                await wait(app)
            reasons = [connection.reason for connection in app.fleet.connections.values()]
            assert [reason for reason in reasons if "not ready within 0.5 s" not in reason] == []
