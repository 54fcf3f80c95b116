"""Connections that send nothing: each has so long to bring a whole request head, and there are only so many of them.

Uvicorn waits for ever for the end of a head, and for the rest of a body that it has already answered; a few hundred
such connections would use up the descriptors of the process. Here a connection that is not being answered is closed
after a time, and where there are too many, the one that has been waiting longest goes. So whoever opens connections
and leaves them never shuts a client out that sends its request at once.
"""

import asyncio
import logging
import re
import sys
from collections import OrderedDict
from typing import Any, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from proxy.wire import read_modestly

if sys.platform != "win32":
    from resource import RLIMIT_NOFILE, getrlimit

log = logging.getLogger(__name__)

MAX_HEAD = 256 * 1024
"""Bytes of one; h11 takes 64 KB, and httptools any number."""
MOST = 10_000
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:[^\r\n]*", re.IGNORECASE)
_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most_connections() -> int:
    """How many connections this process can have: half of its descriptors, the rest are for upstreams and files."""
    limit = 2 * MOST
    if sys.platform != "win32":
        limit = getrlimit(RLIMIT_NOFILE)[0]
    return MOST if limit < 0 else min(MOST, limit // 2)


class Connections:
    """The open connections of one daemon."""

    def __init__(self, limit: int, head_timeout: float) -> None:
        """`limit`: how many; 0 as many as the process can have. `head_timeout`: seconds for a head to come."""
        self._limit = limit or most_connections()
        self.head_timeout = head_timeout
        self._open: set[Waiting] = set()
        self._waiting: OrderedDict[Waiting, None] = OrderedDict()
        """Those that still have to send something before they are answered, the longest first."""
        self._warned = False

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: "Waiting") -> None:
        """There is one more; the one that has waited longest goes where that is one too many."""
        self._open.add(connection)
        self.waits(connection)
        if len(self._open) > self._limit:
            if not self._warned:
                log.warning("%d connections are open: those that wait longest are closed", self._limit)
            self._warned = True
            next(iter(self._waiting)).give_up()

    def waits(self, connection: "Waiting") -> None:
        """It is not being answered now."""
        self._waiting[connection] = None
        self._waiting.move_to_end(connection)

    def works(self, connection: "Waiting") -> None:
        """It is being answered."""
        self._waiting.pop(connection, None)

    def closed(self, connection: "Waiting") -> None:
        """It is gone."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)
        if len(self._open) < self._limit // 2:
            self._warned = False

    def protocol(self) -> type[asyncio.Protocol]:
        """Uvicorn's protocol (httptools where it is installed, else h11) whose connections these are."""
        connections = self

        class Protocol(Waiting, AutoHTTPProtocol):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
            known = connections

        return Protocol


class OneWrite:
    """A transport on which a head whose length is known waits for its body, so that both leave in one packet.

    Uvicorn writes twice, and wakes the client twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write, or keep a head until the next write."""
        if not self._head and data.startswith(b"HTTP/1.1 ") and b"content-length: " in data:
            self._head = data
        else:
            self._transport.write(self._head + data if self._head else data)
            self._head = b""

    def close(self) -> None:
        """Close, once everything is written."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """There is no body to wait for."""
        if self._head:
            self.write(b"")


class Waiting(asyncio.Protocol):
    """What a protocol of uvicorn does more, to be mixed in before it."""

    known: Connections
    cycle: Any
    """Of uvicorn: the request that is being answered, or was last."""
    transport: asyncio.Transport

    _deadline: asyncio.TimerHandle | None = None
    _head = 0
    """Bytes received since the last request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait."""
        read_modestly(transport)
        transport = cast(asyncio.Transport, OneWrite(cast(asyncio.Transport, transport)))
        super().connection_made(transport)
        self._arm()
        self.known.opened(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of httptools: a header. White space around a value is none of it (RFC 9110, 5.5), but it would be left in."""
        super().on_header(name, value.strip(b" \t"))  # pyright: ignore

    def data_received(self, data: bytes) -> None:
        """Look whether a request has begun."""
        if not self._head and b"pgrade" in data and (self.cycle is None or self.cycle.response_complete):
            data = _without_upgrade(data)
        self._head += len(data)
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """The client may send its next request, or has done so already."""
        cast(OneWrite, self.transport).flush()
        super().on_response_complete()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._disarm()
        self.known.closed(self)
        super().connection_lost(exc)

    def give_up(self) -> None:
        """Close it; one that has begun to send is told why."""
        self._disarm()
        self.known.closed(self)
        if not self.transport.is_closing():
            if self._head and self.cycle is None:
                self.transport.write(_LATE)
            self.transport.close()

    def _look(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._head = 0
            self._disarm()  # its body has a time of its own
            if not self.cycle.more_body:
                self.known.works(self)
        elif self._head > MAX_HEAD:
            self.give_up()
        elif self._deadline is None and not self.transport.is_closing():
            self._arm()
            self.known.waits(self)

    def _arm(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self.known.head_timeout, self.give_up)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _without_upgrade(data: bytes) -> bytes:
    """What begins with a request's head, without the client's wish to go on in another protocol.

    Nothing is spoken here but HTTP/1.1, so the wish is none that matters (RFC 9110, 7.8); but httptools then takes the
    body for the other protocol. Java's HTTP client and `curl --http2` ask for it (`h2c`) in their first request.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"", head) + end + rest
