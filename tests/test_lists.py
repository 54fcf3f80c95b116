"""What a server offers is kept true: read again when it says so, when its time is over, and now and then."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from proxy.config.settings import ServerConfig
from proxy.errors import RpcError
from proxy.upstream import lists as module
from proxy.upstream.lists import Lists
from proxy.upstream.session import Session
from proxy.upstream.snapshot import Snapshot

MODERN, LEGACY = "2026-07-28", "2025-11-25"
Json = dict[str, Any]
CHANGING: Json = {"tools": {"listChanged": True}}


class Server:
    """A server whose list grows by one tool each time it is read."""

    def __init__(self, **more: Any) -> None:
        """`more`: what is in the answer beside the tools."""
        self.server, self.takes_headers = "s", False
        self.more = more
        self.sent: list[tuple[str, Json]] = []
        self.fails = 0
        self.end_stream = anyio.Event()

    @property
    def reads(self) -> int:
        return sum(method == "tools/list" for method, _ in self.sent)

    async def request(self, method: str, params: Mapping[str, Any], **_: Any) -> Json:
        self.sent.append((method, {k: v for k, v in params.items() if k != "_meta"}))
        await anyio.lowlevel.checkpoint()
        if method == "subscriptions/listen":
            await self.end_stream.wait()
            return {}
        if method != "tools/list":
            return {}
        if self.fails > 0:
            self.fails -= 1
            raise RpcError(-32000, "not now")
        return {"tools": [{"name": f"tool{n}"} for n in range(self.reads)], **self.more}


class Kept:
    """Lists of one server, and how often they were said to have changed."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.changes = 0
        settings = ServerConfig("s", **{"transport": "stdio", "launch_hash": "a" * 64, **config})
        self.lists = Lists(settings, Snapshot(folder), self.changed)

    def changed(self) -> None:
        self.changes += 1

    @property
    def names(self) -> list[str]:
        assert self.lists.found is not None
        return [tool["name"] for tool in self.lists.found.tools]

    @asynccontextmanager
    async def keeping(self, session: Session) -> AsyncGenerator[None]:
        await self.lists.read(session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.lists.keep, session)
            yield
            tasks.cancel_scope.cancel()


async def eventually(condition: Callable[[], object]) -> None:
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110 - there is nothing to wait for but the state of a double
            await anyio.sleep(0.001)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COALESCE", 0.0)
    monkeypatch.setattr(module, "LISTEN_AGAIN", 0.0)


def session(server: Server, version: str, capabilities: Json | None = None) -> Session:
    return Session(server, version, capabilities=capabilities or {"tools": {}})  # type: ignore[arg-type]


async def test_a_list_is_read_again_when_the_server_says_so_and_many_times_count_as_one(tmp_path: Path) -> None:
    """Failure reports P3 and P4."""
    server, kept = Server(), Kept(tmp_path)
    async with kept.keeping(session(server, LEGACY)):
        for _ in range(50):
            kept.lists.stale()
        await eventually(lambda: server.reads == 2)
        await anyio.wait_all_tasks_blocked()
        assert server.reads == 2 and kept.names == ["tool0", "tool1"] and kept.changes == 2


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_over_http_is_read_again_now_and_then(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its push channel can end without a word."""
    monkeypatch.setattr(module, "RELIST_EVERY", 0.0)
    server, kept = Server(), Kept(tmp_path, transport=transport, url="http://127.0.0.1:1/mcp")
    async with kept.keeping(session(server, LEGACY)):
        await eventually(lambda: server.reads >= 3)
    assert len(kept.names) >= 2


async def test_a_server_over_stdio_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RELIST_EVERY", 0.0)
    server, kept = Server(), Kept(tmp_path)
    async with kept.keeping(session(server, LEGACY)):
        await anyio.wait_all_tasks_blocked()
        assert server.reads == 1


async def test_a_stateless_list_is_read_again_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2026-07-28, Caching: `ttlMs`."""
    monkeypatch.setattr(module, "RELIST_LEAST", 0.0)
    server, kept = Server(ttlMs=1), Kept(tmp_path)
    async with kept.keeping(session(server, MODERN)):
        await eventually(lambda: server.reads >= 3)


@pytest.mark.parametrize(
    ("version", "capabilities", "more"),
    [
        (LEGACY, None, {"ttlMs": 1}),  # it does not know what that is
        (MODERN, None, {"ttlMs": 0}),  # says nothing of when it will change
        (MODERN, None, {"ttlMs": "1"}),
        (MODERN, CHANGING, {"ttlMs": 1}),  # it tells of changes
    ],
)
async def test_nothing_else_makes_a_list_over_stdio_run_out(
    version: str, capabilities: Json | None, more: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RELIST_LEAST", 0.0)
    server, kept = Server(**more), Kept(tmp_path)
    async with kept.keeping(session(server, version, capabilities)):
        await anyio.wait_all_tasks_blocked()
        assert server.reads == 1


async def test_a_short_time_does_not_make_a_busy_loop(tmp_path: Path) -> None:
    server, kept = Server(ttlMs=1), Kept(tmp_path)
    async with kept.keeping(session(server, MODERN)):
        await anyio.wait_all_tasks_blocked()
        assert server.reads == 1


async def test_a_list_that_cannot_be_read_again_stays_as_it_was(tmp_path: Path) -> None:
    server, kept = Server(), Kept(tmp_path)
    async with kept.keeping(session(server, LEGACY)):
        before = kept.names
        server.fails = 1
        kept.lists.stale()
        await eventually(lambda: server.reads == 2)
        await anyio.wait_all_tasks_blocked()
        assert kept.names == before and kept.changes == 1
        kept.lists.stale()
        await eventually(lambda: kept.changes == 2)


async def test_a_stream_of_changes_that_ends_is_opened_again_and_what_was_missed_is_read(tmp_path: Path) -> None:
    """2026-07-28, Subscriptions: there is no replay."""
    server, kept = Server(), Kept(tmp_path)
    async with kept.keeping(session(server, MODERN, CHANGING)):
        await eventually(lambda: ("subscriptions/listen", {"notifications": {"toolsListChanged": True}}) in server.sent)
        server.end_stream.set()
        await eventually(lambda: server.reads >= 2)
        await eventually(lambda: sum(method == "subscriptions/listen" for method, _ in server.sent) >= 2)


# Subscriptions of clients.


async def test_two_subscribers_are_one_subscription_that_ends_with_the_last(tmp_path: Path) -> None:
    server, kept = Server(), Kept(tmp_path)
    old = session(server, LEGACY)
    for _ in range(2):
        await kept.lists.subscribe(old, "mem://a")
    await kept.lists.unsubscribe(old, "mem://a")
    assert server.sent == [("resources/subscribe", {"uri": "mem://a"})]
    await kept.lists.unsubscribe(old, "mem://a")
    assert server.sent[1:] == [("resources/unsubscribe", {"uri": "mem://a"})]


async def test_a_new_session_is_told_of_the_subscriptions_of_the_old_one(tmp_path: Path) -> None:
    server, kept = Server(), Kept(tmp_path)
    await kept.lists.subscribe(session(server, LEGACY), "mem://a")
    server.sent.clear()
    async with kept.keeping(session(server, LEGACY)):
        await eventually(lambda: ("resources/subscribe", {"uri": "mem://a"}) in server.sent)


async def test_what_is_said_of_a_resource_counts_from_its_subscription_on(tmp_path: Path) -> None:
    """A server may say that it has changed in one breath with its answer."""
    kept, heard = Kept(tmp_path), list[bool]()

    class Eager(Server):
        async def request(self, method: str, params: Mapping[str, Any], **more: Any) -> Json:
            heard.append(kept.lists.followed("mem://a"))
            return await super().request(method, params, **more)

    old = session(Eager(), LEGACY)
    assert not kept.lists.followed("mem://a")
    await kept.lists.subscribe(old, "mem://a")
    assert heard == [True] and kept.lists.followed("mem://a") and not kept.lists.followed("mem://b")
    await kept.lists.unsubscribe(old, "mem://a")
    assert not kept.lists.followed("mem://a")


async def test_a_stateless_server_is_told_what_is_subscribed_with_the_stream(tmp_path: Path) -> None:
    server, kept = Server(), Kept(tmp_path)
    new = session(server, MODERN)
    async with kept.keeping(new):
        for uri in ("mem://b", "mem://a"):
            await kept.lists.subscribe(new, uri)
        wanted = {"notifications": {"resourceSubscriptions": ["mem://a", "mem://b"]}}
        await eventually(lambda: ("subscriptions/listen", wanted) in server.sent)
        await kept.lists.unsubscribe(new, "mem://b")
        wanted = {"notifications": {"resourceSubscriptions": ["mem://a"]}}
        await eventually(lambda: ("subscriptions/listen", wanted) in server.sent)
