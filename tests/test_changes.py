"""Announcements of changed lists: the first of a burst soon, those that follow together, and only what can be seen."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from mcp.server.subscriptions import ToolsListChanged

from proxy.server import changes
from proxy.server.changes import COALESCE, Changes, Pace


def test_a_change_after_a_calm_is_told_at_once_and_those_that_follow_together() -> None:
    pace = Pace(started=100)
    assert pace.early("tools", 100 + COALESCE) <= 0
    pace.told("tools", 110)
    assert pace.early("tools", 110.5) == COALESCE - 0.5
    assert pace.early("tools", 110 + COALESCE) <= 0


def test_the_start_counts_as_an_announcement() -> None:
    assert Pace(started=100).early("tools", 100.25) == COALESCE - 0.25


def test_one_kind_of_list_does_not_hold_up_another() -> None:
    pace = Pace(started=100)
    pace.told("tools", 110)
    assert pace.early("prompts", 110) <= 0


class Listed:
    """A view whose entries a test changes, and what its clients were told."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.entries: list[Any] = ["one"]
        self.told: list[Any] = []
        self.looked = anyio.Event()
        self.changes.bus(()).subscribe(self.told.append)

        async def read() -> Sequence[Any]:
            self.looked.set()
            return self.entries

        self.changes.served(("tools", "", ()), list(self.entries), read)

    async def look(self) -> None:
        """Wait until the announcer has looked at the list after a change."""
        self.looked = anyio.Event()
        self.changes.dirty()
        with anyio.fail_after(5):
            await self.looked.wait()
        await anyio.wait_all_tasks_blocked()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "QUIET", 0.0)
    monkeypatch.setattr(changes, "COALESCE", 0.0)


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("quiet", [False, True])
async def test_only_a_change_that_can_be_seen_is_told_and_none_where_it_is_switched_off(quiet: bool) -> None:
    async with anyio.create_task_group() as tasks:
        listed = Listed()

        async def announce() -> None:
            await listed.changes.announce(quiet=lambda: quiet)

        tasks.start_soon(announce)
        await listed.look()
        assert listed.told == []
        listed.entries.append("two")
        await listed.look()
        assert listed.told == ([] if quiet else [ToolsListChanged()])
        await listed.look()
        assert len(listed.told) <= 1, "a change is told once"
        tasks.cancel_scope.cancel()


async def test_what_changes_soon_after_an_announcement_waits_and_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "QUIET", 0.0)
    early = {"left": 1000.0}
    monkeypatch.setattr(Pace, "early", lambda _self, _kind, _now: early["left"])
    async with anyio.create_task_group() as tasks:
        listed = Listed()

        async def announce() -> None:
            await listed.changes.announce(quiet=lambda: False)

        tasks.start_soon(announce)
        listed.entries.append("two")
        await listed.look()
        listed.entries.append("three")
        await listed.look()
        assert listed.told == []
        early["left"] = 0.0
        await listed.look()
        assert listed.told == [ToolsListChanged()], "two changes are one announcement"
        tasks.cancel_scope.cancel()


class Listener:
    """A handshake client, which may not read."""

    def __init__(self, *, reads: bool = True) -> None:
        self.heard: list[Any] = []
        self.reads = anyio.Event()
        if reads:
            self.reads.set()

    async def notify(self, method: str, params: Any) -> None:
        await self.reads.wait()
        self.heard.append((method, params))


async def test_a_client_that_does_not_read_keeps_no_other_from_being_told_and_is_told_each_thing_once() -> None:
    changes, deaf, well = Changes(), Listener(reads=False), Listener()
    for client in (deaf, well):
        changes.client(client, "row", ())  # pyright: ignore[reportArgumentType]
        changes.subscribed(client).update(a=("s", "a"), b=("s", "b"))  # pyright: ignore[reportArgumentType]
    with anyio.fail_after(5):
        for number in range(1, 4):
            for uri in ("a", "b"):
                await changes.updated(uri, ())
            await anyio.wait_all_tasks_blocked()
            assert len(well.heard) == 2 * number
        deaf.reads.set()
        await anyio.wait_all_tasks_blocked()
    assert [params["uri"] for _, params in deaf.heard] == ["a", "b", "a"], "the first was on its way already"
