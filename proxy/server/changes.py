"""Changes: telling clients that what they see is not what it was, once, and only if it is so.

Handshake clients are told one by one on their connection; stateless ones through the `subscriptions/listen` stream
they have opened. Each announcement costs a client its prompt cache, so a change that changes no byte is not told, and
changes that follow each other are told together: one out of the blue almost at once, those after it (and those of the
start, when servers arrive one by one) once in `COALESCE` seconds for each kind of list.
"""

import hashlib
import json
import logging
import math
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from proxy.caller import Scope
from proxy.server.telling import Telling

log = logging.getLogger(__name__)

COALESCE = 2.0
"""Seconds over which changes of what clients see are announced as one."""
QUIET = 0.25
"""Seconds that a change waits for others of its burst before anybody looks at what it has changed."""

EVENTS = {
    "tools": ToolsListChanged(),
    "resources": ResourcesListChanged(),
    "prompts": PromptsListChanged(),
}


class Pace:
    """When a kind of list may be announced again: at once after a calm of `COALESCE` seconds, else at its end."""

    def __init__(self, started: float) -> None:
        """The start counts as an announcement: servers arrive one after the other."""
        self._started, self._last = started, dict[str, float]()

    def early(self, kind: str, now: float) -> float:
        """Seconds until `kind` may be announced; not positive when it may."""
        return self._last.get(kind, self._started) + COALESCE - now

    def told(self, kind: str, now: float) -> None:
        """It has been announced."""
        self._last[kind] = now


Seat = Scope | None
"""The scope of a client; None of one that has shown nothing, whose scope is what the configuration says just now."""
View = tuple[str, str, Seat]
"""(kind of list, row its bytes depend on or "", scope): clients of one view see the same bytes."""
Reader = Callable[[], Awaitable[Sequence[Any]]]


class Changes:
    """What each view was last told of, and who is to be told."""

    def __init__(self) -> None:
        self._buses: dict[Seat, InMemorySubscriptionBus] = {}
        """Stateless clients that listen, by scope: nobody is told of a change that they cannot see."""
        self._clients: weakref.WeakKeyDictionary[Connection, tuple[str, Seat]] = weakref.WeakKeyDictionary()
        """Handshake connections, and the row and scope each belongs to."""
        self._told: dict[View, tuple[Reader, str]] = {}
        """How to read a view anew, and the hash of what its clients were first given or last told of. A list that is
        read between a change and its announcement does not count: the other clients still have to be told."""
        self._subscribers: weakref.WeakKeyDictionary[Connection, dict[str, tuple[str, str]]] = (
            weakref.WeakKeyDictionary()
        )
        self._telling = Telling()
        self._dirty = anyio.Event()

    def bus(self, scope: Seat) -> InMemorySubscriptionBus:
        """Where the stateless clients of a scope are told."""
        return self._buses.setdefault(scope, InMemorySubscriptionBus())

    def client(self, connection: Connection, row: str, scope: Seat) -> None:
        """A handshake client is there."""
        self._clients[connection] = (row, scope)

    def served(self, view: View, entries: Sequence[Any], reader: Reader) -> None:
        """A client has been given `entries`; `reader` makes them anew."""
        if view not in self._told:
            self._told[view] = (reader, _hash(entries))

    def dirty(self) -> None:
        """Something has changed; `announce` finds out whether anybody can see it."""
        self._dirty.set()

    async def announce(self, *, quiet: Callable[[], bool]) -> None:
        """Tell clients of changes; runs until cancelled. `quiet`: whether only to keep the books, at that moment."""
        pace = Pace(anyio.current_time())
        wait = math.inf
        while True:
            with anyio.move_on_after(wait):
                await self._dirty.wait()
                await anyio.sleep(QUIET)
            self._dirty = anyio.Event()
            changed: set[View] = set()
            wait = math.inf
            for view, (reader, before) in list(self._told.items()):
                now = _hash(await reader())
                if now == before:
                    continue
                if (early := pace.early(view[0], anyio.current_time())) > 0:
                    wait = min(wait, early)
                else:
                    self._told[view] = (reader, now)
                    changed.add(view)
            for kind in {kind for kind, *_ in changed}:
                pace.told(kind, anyio.current_time())
            if changed and not quiet():
                log.info(
                    "telling clients that their lists have changed: %s", ", ".join(sorted({k for k, *_ in changed}))
                )
                await self._tell(changed)

    async def _tell(self, changed: set[View]) -> None:
        for kind in sorted({kind for kind, *_ in changed}):
            for scope in {scope for each, _, scope in changed if each == kind}:
                await self.bus(scope).publish(EVENTS[kind])
            for connection, (row, scope) in list(self._clients.items()):
                if (kind, row, scope) in changed or (kind, "", scope) in changed:
                    self._telling.tell(connection, f"notifications/{kind}/list_changed")

    # Resources that clients have subscribed to.

    @property
    def seats(self) -> set[Seat]:
        """The scopes of all that may be told of a resource."""
        return {*self._buses, *(self._clients.get(each, ("", None))[1] for each in self._subscribers)}

    def subscribed(self, connection: Connection) -> dict[str, tuple[str, str]]:
        """The URIs that a handshake client has subscribed to, and whose they are (server, its own URI); changed by the
        caller.
        """
        return self._subscribers.setdefault(connection, {})

    async def updated(self, uri: str, scope: Seat) -> None:
        """A resource, which the callers of `scope` know under that URI, has changed."""
        await self.bus(scope).publish(ResourceUpdated(uri=uri))
        for connection, uris in list(self._subscribers.items()):
            if uri in uris and self._clients.get(connection, ("", None))[1] == scope:
                self._telling.tell(connection, "notifications/resources/updated", uri)


def _hash(entries: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()
