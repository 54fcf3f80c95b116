"""A limit of sessions that never shuts a new client out: where it is reached, the session that was idle longest goes.
Only a POST opens one.

Clients seldom end their sessions (failure report X10). Without this, whoever opens sessions and leaves them would keep
everybody else out until these time out. A client whose session is gone is told 404 and opens another.
"""

import logging
import time
from collections import OrderedDict

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INVALID_REQUEST
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.serving.http_door import PATH

log = logging.getLogger(__name__)

_QUIET = 60.0
"""Seconds between lines that say that sessions are ended: a flood of them must not become one of lines."""


class Sessions:
    """An ASGI layer that knows when each session was used, and makes room for new ones."""

    def __init__(self, app: ASGIApp, manager: StreamableHTTPSessionManager, limit: int) -> None:
        self._app, self._manager, self._limit = app, manager, limit
        self._used: OrderedDict[str, int] = OrderedDict()
        """Session id -> requests in flight; the longest idle first."""
        self._quiet_until = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note the use of a session, or make room for one more, and hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((v for k, v in scope["headers"] if k == b"mcp-session-id"), None)
        session = given.decode("latin-1") if given is not None else None
        open_ones = self._manager._server_instances  # pyright: ignore[reportPrivateUsage]  (nothing public tells)
        if session is None:
            if scope["path"] == PATH and scope["method"] != "POST" and not _is_stateless(scope):
                await _without_session(scope["method"])(scope, receive, send)
                return
            if scope["method"] == "POST" and len(open_ones) >= self._limit:
                await self._make_room()
            await self._app(scope, receive, send)
            return
        if session not in open_ones:
            self._used.pop(session, None)
            await self._app(scope, receive, send)
            return
        self._used[session] = self._used.get(session, 0) + 1
        self._used.move_to_end(session)
        try:
            await self._app(scope, receive, send)
        finally:
            if session in self._used:
                self._used[session] -= 1

    async def _make_room(self) -> None:
        """End the session that was idle longest; one with a request or a stream open is not idle."""
        open_ones = self._manager._server_instances  # pyright: ignore[reportPrivateUsage]
        for gone in [session for session in self._used if session not in open_ones]:
            del self._used[gone]
        never = (session for session in open_ones if session not in self._used)
        idle = (session for session, requests in self._used.items() if not requests)
        oldest = next(never, None) or next(idle, None)
        if oldest is None or (transport := open_ones.get(oldest)) is None:
            return
        if time.monotonic() > self._quiet_until:
            log.warning("%d sessions are open: those that were idle longest are ended", len(open_ones))
            self._quiet_until = time.monotonic() + _QUIET
        self._used.pop(oldest, None)
        await self._manager._discard_session(oldest, transport)  # pyright: ignore[reportPrivateUsage]


def _is_stateless(scope: Scope) -> bool:
    version = dict(scope["headers"]).get(b"mcp-protocol-version", b"")
    return version.decode("latin-1") in MODERN_PROTOCOL_VERSIONS


def _without_session(method: str) -> JSONResponse:
    """The SDK's own answer to what needs a session; it would open one first, and name it although it is gone again."""
    known = method in ("GET", "DELETE")
    error = {"code": INVALID_REQUEST, "message": "Bad Request: Missing session ID" if known else "Method Not Allowed"}
    headers = {} if known else {"Allow": "GET, POST, DELETE"}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400 if known else 405, headers)
