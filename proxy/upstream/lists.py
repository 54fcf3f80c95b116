"""Lists: what one server offers, kept true: read at the start, after a change it tells of, and now and then.

Changes that come in a burst are one. The stateless era and HTTP have no push that can be relied on, so there is a
`subscriptions/listen` stream where the server has one, a re-list every few minutes where the transport can go deaf, and
one when the time is over for which a server that tells of no changes says that its lists hold (`ttlMs`).
"""

import logging
import math
import operator
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread

from proxy.catalog import Server, make_server
from proxy.config import ServerConfig
from proxy.errors import RpcError, UpstreamFailure
from proxy.upstream.discovery import Found, discover, listen
from proxy.upstream.failure import describe
from proxy.upstream.recall import Recall
from proxy.upstream.session import Session
from proxy.upstream.snapshot import Entry, Snapshot
from proxy.wire import decode, encode

log = logging.getLogger(__name__)

COALESCE = 0.25
"""Seconds in which many `list_changed` count as one."""
RELIST_EVERY = 600.0
"""Seconds between re-lists over HTTP, whose push channel can end silently; +-20 %."""
LARGE = 200
"""Tools from which on a list is taken in by a worker thread: 3,000 are 60 to 100 ms that no call should wait."""
RELIST_LEAST = 60.0
"""Seconds between re-lists where a server's `ttlMs` is shorter: a list of thousands of tools costs half a second."""
LISTEN_AGAIN, LISTEN_PROVEN, LISTEN_CAP = 1.0, 30.0, 60.0
"""Seconds until an ended `listen` stream is opened again, doubled up to the cap until one has lasted that long."""


class Lists:
    """The last good lists of one server; they survive every disconnect."""

    def __init__(self, config: ServerConfig, snapshot: Snapshot, on_change: Callable[[], None]) -> None:
        self._config, self._snapshot, self._on_change = config, snapshot, on_change
        self._kept = snapshot.load(config)
        self.found: Found | None = self._kept.found if self._kept is not None else None
        """None while none was ever read."""
        self.info: Mapping[str, Any] = self._kept.info if self._kept is not None else {}
        """`serverInfo`."""
        self.instructions: str | None = self._kept.instructions if self._kept is not None else None
        self.part = _part(config, self._kept)
        """The server's part of the catalog."""
        self._taking = anyio.Lock()
        self._session: Session | None = None
        """The one that was read last."""
        self.modern: bool | None = self._kept.modern if self._kept is not None else None
        """The era it spoke the last time."""
        self.waited = self._kept is not None or snapshot.waited(config)
        """Whether an earlier start has waited for its first list: one that never comes is waited for just once."""
        self.warnings: list[str] = []
        self._stale = anyio.Event()
        self.subscribed: dict[str, int] = {}
        """Resource URI -> how many subscriptions of clients there are."""
        self._subscribing: set[str] = set()
        self._resubscribe = anyio.Event()

    def take(self, config: ServerConfig) -> None:
        """The server is configured otherwise: its part of the catalog is another one."""
        self._config = config
        self.part = _part(config, self._kept)

    def stale(self) -> None:
        """The server says that its lists have changed."""
        self._stale.set()

    def waited_in_vain(self) -> None:
        """Remember that its first list did not come in time; a few bytes, written at once."""
        self.waited = True
        self._snapshot.mark_waited(self._config)

    async def read(self, session: Session) -> None:
        """Read all lists; raises what a request raises, where the tools cannot be read."""
        config, kept = self._config, self._kept
        recall = Recall() if kept is None else Recall(kept.answer, kept.found.tools)
        first, self._session = session is not self._session, session
        session.peer.decode = recall.decode
        try:
            found, warnings = await discover(session, resources=config.resources, prompts=config.prompts)
        finally:
            session.peer.decode = decode
        for warning in warnings:
            if warning not in self.warnings:
                log.warning("server %r: %s", config.key, warning)
        self.warnings = warnings
        answer = recall.answer(found.tools) if first else None
        entry = Entry(found, session.info, session.modern, session.instructions, answer)
        async with self._taking:  # two readers finish in their order
            before = self._kept
            alike = before is not None and _alike(found, before.found)
            if before is None or not alike or entry != before:
                said = before is None or (entry.info, entry.instructions) != (before.info, before.instructions)
                await self._take(entry, changed=said or not alike)
            elif answer is None or answer == before.answer:
                return
            else:  # the same tools, in other bytes
                self._kept = entry = replace(before, answer=answer)
        await anyio.to_thread.run_sync(self._snapshot.save, config, entry, abandon_on_cancel=True)

    async def _take(self, entry: Entry, *, changed: bool) -> None:
        """Take a list in; nothing of it shows before all of it does. `changed`: whether anything of it can be seen."""
        found = entry.found
        config = None
        while changed and config is not self._config:  # it may become another one meanwhile
            config = self._config
            if len(found.tools) >= LARGE:
                part = await anyio.to_thread.run_sync(_part, config, entry)
            else:
                part = _part(config, entry)
            self.part = part
        self.instructions = entry.instructions
        self._kept, self.found, self.info, self.modern = entry, found, entry.info, entry.modern
        if changed:
            self._on_change()

    async def keep(self, session: Session) -> None:
        """Keep the lists true while the session lasts; runs until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._relist, session)
            if session.modern:
                tasks.start_soon(self._listen, session)
            else:
                for uri in list(self.subscribed):
                    tasks.start_soon(self._again, session, uri)

    async def _relist(self, session: Session) -> None:
        while True:
            with anyio.move_on_after(self._relist_after(session)):
                await self._stale.wait()
                await anyio.sleep(COALESCE)
            self._stale = anyio.Event()
            try:
                with anyio.fail_after(self._config.connect_timeout):
                    await self.read(session)
            except (RpcError, UpstreamFailure, TimeoutError) as error:
                log.warning("server %r: could not read its lists again: %s", self._config.key, describe(error))

    def _relist_after(self, session: Session) -> float:
        every = RELIST_EVERY * random.uniform(0.8, 1.2) if self._config.transport != "stdio" else math.inf
        if "toolsListChanged" in self._filters(session):
            return every  # it tells of changes
        return min(every, max(session.ttl, RELIST_LEAST))

    async def _listen(self, session: Session) -> None:
        delay = LISTEN_AGAIN
        while True:
            self._resubscribe = anyio.Event()
            if not (filters := self._filters(session)):
                await self._resubscribe.wait()
                continue
            opened = anyio.current_time()
            async with anyio.create_task_group() as tasks:

                async def stream() -> None:
                    await listen(session, filters)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(stream)
                await self._resubscribe.wait()
                tasks.cancel_scope.cancel()
            if self._resubscribe.is_set():
                continue
            proven = anyio.current_time() - opened > LISTEN_PROVEN
            delay = LISTEN_AGAIN if proven else min(LISTEN_CAP, delay * 2)
            await anyio.sleep(delay)
            self._stale.set()  # there is no replay: what was missed is read

    def _filters(self, session: Session) -> dict[str, Any]:
        def changes(kind: str) -> bool:
            capability = session.capabilities.get(kind)
            return isinstance(capability, dict) and capability.get("listChanged") is True  # pyright: ignore[reportUnknownMemberType]

        names = {"toolsListChanged": "tools", "resourcesListChanged": "resources", "promptsListChanged": "prompts"}
        filters: dict[str, Any] = {name: True for name, kind in names.items() if changes(kind)}
        if self.subscribed:
            filters["resourceSubscriptions"] = sorted(self.subscribed)
        return filters

    # Subscriptions of clients to resources.

    def followed(self, uri: str) -> bool:
        """Whether any client wants to know of changes of a resource, or its subscription is on its way."""
        return uri in self.subscribed or uri in self._subscribing

    def follow(self, before: "Lists") -> None:
        """Stand for the lists of a server that is started otherwise: its subscriptions, and until it has said what it
        has now, what it had, so that clients see it go and come for nothing.
        """
        self.subscribed = dict(before.subscribed)
        if self._kept is None and self._config.start != "lazy":
            self.found, self.info, self.instructions = before.found, before.info, before.instructions
            self.part = _part(self._config, before._kept)

    async def subscribe(self, session: Session, uri: str) -> None:
        """One more client wants to know of changes of a resource; raises what a request raises."""
        if not self.subscribed.get(uri) and not session.modern:
            self._subscribing.add(uri)
            try:
                await session.request("resources/subscribe", {"uri": uri}, timeout=self._config.timeout)
            finally:
                self._subscribing.discard(uri)
        self.subscribed[uri] = self.subscribed.get(uri, 0) + 1
        self._resubscribe.set()

    async def unsubscribe(self, session: Session | None, uri: str) -> None:
        """One client less; the last one ends the subscription."""
        if unfollow(self.subscribed, uri):
            self._resubscribe.set()
            if session is not None and not session.modern:
                await session.request("resources/unsubscribe", {"uri": uri}, timeout=self._config.timeout)

    async def _again(self, session: Session, uri: str) -> None:
        """A new session knows nothing of the subscriptions of the old one."""
        try:
            await session.request("resources/subscribe", {"uri": uri}, timeout=self._config.timeout)
        except (RpcError, UpstreamFailure) as error:
            log.warning("server %r: could not subscribe to %s again: %s", self._config.key, uri, describe(error))


def unfollow(subscribed: dict[str, int], uri: str) -> bool:
    """Count one subscription less; whether it was the last one."""
    left = subscribed.pop(uri, 0) - 1
    if left > 0:
        subscribed[uri] = left
    return left == 0


def _alike(one: Found, other: Found) -> bool:
    """Whether two lists are the same in JSON too: to Python 1, 1.0 and true are one."""
    if one != other:
        return False
    if all(map(operator.is_, one.tools, other.tools)):  # recalled: the very same
        one, other = replace(one, tools=[]), replace(other, tools=[])
    return _written(one) == _written(other)


def _written(found: Found) -> bytes:
    lists: dict[str, Any] = {"1": found.tools, "2": found.resources, "3": found.templates, "4": found.prompts}
    return encode(lists)


def _part(config: ServerConfig, entry: Entry | None) -> Server:
    if entry is None:
        return make_server(config, None)
    topic = entry.info.get("description")
    return make_server(config, entry.found.tools, topic if isinstance(topic, str) else None, entry.instructions)
