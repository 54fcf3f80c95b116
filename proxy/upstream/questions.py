"""Questions: what a server asks for in the middle of a call, brought to the client whose call it is.

Requests over a handshake connection do not say which call caused them. They go to the one client behind the calls in
flight; with none in flight, to the one client there is (stdio). In any doubt they are declined at once: never a hang,
never a prompt to somebody else.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio

from proxy.caller import CLIENT_REQUESTS, LOG_LEVELS, Origin
from proxy.config import ServerConfig
from proxy.errors import RpcError
from proxy.text import one_line, shorten
from proxy.upstream.peer import METHOD_NOT_FOUND

log = logging.getLogger(__name__)

CAPABILITIES: Mapping[str, str] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
FULL: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}
CLIENT_WAIT = 1.0
"""Seconds that a connection waits for its only client to say what it can do, before it tells the server."""


class Clients:
    """Which clients there can be, as far as upstreams need to know."""

    def __init__(self, number: int | None = 0) -> None:
        """`number`: 0 nobody (the command line), 1 a stdio client, None any number (the daemon)."""
        self.number = number
        self.sole: Origin | None = None
        """The stdio client once it is there."""
        self.seen = anyio.Event()

    def is_there(self, origin: Origin) -> None:
        """The stdio client has said who it is."""
        if self.number == 1 and not self.seen.is_set():
            self.sole = origin
            self.seen.set()


class Questions:
    """The requests and log messages of one upstream, and the calls they may belong to."""

    def __init__(self, config: ServerConfig, clients: Clients, mask: Callable[[str], str]) -> None:
        self._config, self._clients, self._mask = config, clients, mask
        self._in_flight: dict[int, Origin | None] = {}
        self._next = 0

    @contextmanager
    def call_of(self, origin: Origin | None) -> Generator[None]:
        """A call of that client is in flight within the block."""
        self._next += 1
        number = self._next
        self._in_flight[number] = origin
        try:
            yield
        finally:
            del self._in_flight[number]

    @property
    def busy(self) -> bool:
        """Whether any call is in flight."""
        return bool(self._in_flight)

    async def declared(self) -> dict[str, Any]:
        """The client capabilities to declare in `initialize`: those of the only client, or all that may come."""
        if self._clients.number == 0:
            return {}
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
            RpcError: it is not one for clients, or there is not exactly one client that could answer it.
        """
        capability = CAPABILITIES.get(method)
        if capability is None or capability not in self._config.client_requests:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {shorten(one_line(method), 60)}")
        origin = self._origin()
        if origin is None:
            raise RpcError(METHOD_NOT_FOUND, f"{method}: there is not exactly one client whose call this belongs to")
        if origin.stateless:
            why = "the client of this call speaks the stateless protocol, in which it cannot be asked during a call"
            raise RpcError(METHOD_NOT_FOUND, f"{method}: {why}")
        if capability not in origin.capabilities:
            raise RpcError(METHOD_NOT_FOUND, f"{method}: the client of this call does not support {capability}")
        return await origin.ask(method, params)

    async def log_message(self, params: Mapping[str, Any]) -> None:
        """A `notifications/message`: to the client whose call it belongs to, else to our log."""
        origin = self._origin()
        if origin is None:
            text = self._mask(shorten(one_line(str(params.get("data"))), 300))
            log.info("server %r says: %s", self._config.key, text)
        elif _wanted(params.get("level"), origin):
            await origin.say("notifications/message", params)

    def _origin(self) -> Origin | None:
        origins = {id(o.key) if o is not None else 0: o for o in self._in_flight.values()}
        if len(origins) == 1:
            return next(iter(origins.values()))
        return self._clients.sole if not origins else None


def _wanted(level: object, origin: Origin) -> bool:
    """Stateless clients get log messages only where they asked for them; handshake clients all above their level."""
    least = origin.log_level
    if least is None:
        return not origin.stateless
    try:
        return LOG_LEVELS.index(str(level)) >= LOG_LEVELS.index(least)
    except ValueError:
        return True
