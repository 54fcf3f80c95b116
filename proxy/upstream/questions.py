"""Questions: what a server asks for in the middle of a call, brought to the client whose call it is.

Requests over a handshake connection do not say which call caused them. They go to the one client behind the calls in
flight; with none in flight, to the one client there is (stdio). In any doubt they are declined at once: never a hang,
never a prompt to somebody else. Log messages go the same way, and reach the client before the answer that follows them;
where the client does not read, the oldest are dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Self

import anyio

from proxy.caller import CLIENT_REQUESTS, LOG_LEVELS, Origin
from proxy.config import ServerConfig
from proxy.errors import RpcError
from proxy.text import one_line, shorten
from proxy.upstream.backlog import Backlog
from proxy.upstream.peer import METHOD_NOT_FOUND
from proxy.wire import INTERNAL_ERROR

log = logging.getLogger(__name__)

CAPABILITIES: Mapping[str, str] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
FULL: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}
CLIENT_WAIT = 1.0
"""Seconds that a connection waits for its only client to say what it can do, before it tells the server."""
MOST_SAID = 5_000
"""Log messages that wait for one client: a server may say that much at once to one that reads all of it."""
MOST_ASKED = 256
"""Requests of one server that wait for an answer of a client; one more is declined at once. Each is kept until then."""


class Clients:
    """Which clients there can be, as far as upstreams need to know."""

    def __init__(self, number: int | None = 0) -> None:
        """`number`: 0 nobody (the command line), 1 a stdio client, None any number (the daemon)."""
        self.number = number
        self.sole: Origin | None = None
        """The stdio client once it is there."""
        self.seen = anyio.Event()
        self.looking = False
        """Whether servers are told of a client that can do everything, though there is none: for commands that show
        or approve what any client may come to see. Nothing is called meanwhile, and what is asked is declined."""
        self.once = False
        """Whether we end with our answer, so that nobody needs to know when a next attempt would follow."""

    def is_there(self, origin: Origin) -> None:
        """The stdio client has said who it is."""
        if self.number == 1 and not self.seen.is_set():
            self.sole = origin
            self.seen.set()


class Questions:
    """The requests and log messages of one upstream, and the calls they may belong to."""

    def __init__(self, config: ServerConfig, clients: Clients, mask: Callable[[str], str]) -> None:
        self._config, self._clients, self._mask = config, clients, mask
        self._in_flight: dict[int, InFlight] = {}
        self._unasked: InFlight | None = None
        """For what is said while no call is in flight."""
        self._asked = 0
        self._dropped = False

    def take(self, config: ServerConfig) -> None:
        """The server is configured otherwise."""
        self._config = config

    def call_of(self, origin: Origin | None) -> "InFlight":
        """A call of that client is in flight within the `async with` block."""
        return InFlight(origin, self._in_flight, self._too_much)

    @property
    def busy(self) -> bool:
        """Whether any call is in flight."""
        return bool(self._in_flight)

    async def declared(self) -> dict[str, Any]:
        """The client capabilities to declare in `initialize`: those of the only client, or all that may come.

        Some servers have tools only for clients that can be asked; a command that calls declares nothing, since a
        server that believes it could ask would fail where it else finds a way without.
        """
        if self._clients.number == 0:
            return self.allowed(FULL) if self._clients.looking else {}
        if self._clients.number == 1:
            with anyio.move_on_after(CLIENT_WAIT):
                await self._clients.seen.wait()
            sole = self._clients.sole
            return self.allowed(sole.capabilities) if sole is not None and not sole.stateless else {}
        return self.allowed(FULL)

    def allowed(self, capabilities: Mapping[str, Any]) -> dict[str, Any]:
        """What of a client's capabilities this server may know of, by its `client_requests`."""
        asks = set(CLIENT_REQUESTS) - set(self._config.client_requests)
        return {name: value for name, value in capabilities.items() if name not in asks}

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Have the client answer a request of the server.

        Raises:
            RpcError: it is not one for clients, or there is not exactly one client whose call it belongs to, or that
                client cannot be asked it, or too many wait already.
        """
        capability = CAPABILITIES.get(method)
        if capability is None or capability not in self._config.client_requests:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {shorten(one_line(method), 60)}")
        call = self._call()
        if call is None or (origin := call.origin) is None:
            raise RpcError(METHOD_NOT_FOUND, f"{method}: there is not exactly one client whose call this belongs to")
        if self._asked >= MOST_ASKED:
            raise RpcError(INTERNAL_ERROR, f"{method}: {self._asked} requests of this server wait for their answer")
        self._asked += 1
        try:
            return await origin.ask(method, params)
        finally:
            self._asked -= 1

    def log_message(self, params: Mapping[str, Any]) -> None:
        """A `notifications/message`: to the client whose call it belongs to, else to our log."""
        call = self._call()
        if call is None or call.origin is None:
            text = self._mask(shorten(one_line(str(params.get("data"))), 300))
            log.info("server %r says: %s", self._config.key, text)
        elif _wanted(params.get("level"), call.origin):
            call.say(params)

    def _too_much(self) -> None:
        if not self._dropped:
            self._dropped = True
            key = self._config.key
            log.warning("server %r says more than its client reads: the oldest of its log messages are dropped", key)

    def _call(self) -> "InFlight | None":
        """A call of the one client that what the server sends now can belong to."""
        # Stateless requests over HTTP have no key: each may be of another client.
        calls = {id(c.origin.key or c) if c.origin is not None else 0: c for c in self._in_flight.values()}
        if len(calls) == 1:
            return next(iter(calls.values()))
        sole = self._clients.sole
        if calls or sole is None:
            return None
        if self._unasked is None or self._unasked.origin is not sole:
            self._unasked = InFlight(sole, self._in_flight, self._too_much)
        return self._unasked


class InFlight:
    """A call, and the log messages on their way to its client."""

    def __init__(self, origin: Origin | None, calls: dict[int, "InFlight"], too_much: Callable[[], None]) -> None:
        """`too_much` is called when log messages are dropped."""
        self.origin, self._calls, self._too_much = origin, calls, too_much
        self._unsaid: Backlog | None = None
        self._task: asyncio.Task[None] | None = None

    def say(self, params: Mapping[str, Any]) -> None:
        """Send the client a log message, after those before it."""
        if self._unsaid is None:
            self._unsaid = Backlog(MOST_SAID)
        if not self._unsaid.put(params):
            self._too_much()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._say())

    async def _say(self) -> None:
        assert self.origin is not None
        while self._unsaid:
            try:
                await self.origin.say("notifications/message", self._unsaid.take())
            except Exception as error:  # the client is gone: its call will learn that
                log.debug("a log message reached nobody: %s", error)

    async def __aenter__(self) -> Self:
        self._calls[id(self)] = self
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        del self._calls[id(self)]
        if self._task is not None:
            if kind is asyncio.CancelledError:
                self._task.cancel()
            else:
                await asyncio.wait({self._task})  # the answer comes after what was said before it


def _wanted(level: object, origin: Origin) -> bool:
    """Stateless clients get log messages only where they asked for them; handshake clients all above their level."""
    least = origin.log_level
    if least is None:
        return not origin.stateless
    try:
        return LOG_LEVELS.index(str(level)) >= LOG_LEVELS.index(least)
    except ValueError:
        return True
