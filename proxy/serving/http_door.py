"""The door for `tools/call` over Streamable HTTP: a plain call is answered in this ASGI layer, before the SDK's.

It takes a POST whose session (handshake era) or headers (stateless era) leave no question, and whose answer can be
one JSON object: no progress token, and a client that cannot be asked anything. Everything else goes on to the SDK
with its body as it came.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from mcp.shared.inbound import decode_header_value
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, LOG_LEVEL_META_KEY
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.caller import CLIENT_REQUESTS, Access
from proxy.server import ACCESS, Call, Client, ProxyServer, answer, frame, tool_call
from proxy.serving.answers import Work, send_json

PATH = "/mcp"


@dataclass
class _Session:
    """What the door knows of a session of the handshake era."""

    touched: float
    """When the SDK last saw a request of it; its idle time-out knows nothing of ours."""
    calls: dict[int | str, Work] = field(default_factory=dict[int | str, Work])
    asked: bool | None = None
    """Whether its client can be asked something during a call; None until its first call."""


class HttpDoor:
    """An ASGI layer in front of the SDK's application."""

    def __init__(self, app: ASGIApp, server: ProxyServer, *, idle_timeout: float, max_body: int) -> None:
        """`idle_timeout`: seconds after which the SDK ends a session it sees no request of."""
        self._app, self._server, self._max_body = app, server, max_body
        self._refresh = idle_timeout / 4
        self._sessions: dict[str, _Session] = {}
        server.on_session_end = self.session_ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a plain call; hand everything else on."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or int(length) > self._max_body:
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:  # the client has gone away
            return
        message = frame(body) if _plain(headers) else None
        if message is not None and await self._taken(message, headers, scope.get(ACCESS), receive, send):
            return
        await self._app(scope, _replay(body, receive), send)

    async def _taken(
        self,
        message: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        access: Access | None,
        receive: Receive,
        send: Send,
    ) -> bool:
        session_id = headers.get(b"mcp-session-id", b"").decode("latin-1")
        if (known := self._server.sessions.get(session_id)) is not None and known[0].access != access:
            return False  # another caller's session: the SDK answers as for one that does not exist
        if message.get("method") == "notifications/cancelled":
            return await self._cancel(session_id, message, send)
        call = tool_call(message)
        if call is None:
            if session_id:
                self._touch(session_id)
            return False
        if session_id:
            return await self._legacy(session_id, call, headers, send)
        if _speaks_for(call, headers) and not _asked(call.meta.get(CLIENT_CAPABILITIES_META_KEY)):
            await self._modern(call, access, receive, send)
            return True
        return False

    # The handshake era.

    def _touch(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            gone = [key for key in self._sessions if key not in self._server.sessions]
            for key in gone:
                del self._sessions[key]
            session = self._sessions[session_id] = _Session(0.0)
        session.touched = time.monotonic()
        return session

    async def _legacy(self, session_id: str, call: Call, headers: Mapping[bytes, bytes], send: Send) -> bool:
        known = self._server.sessions.get(session_id)
        session = self._sessions.get(session_id)
        if known is None or session is None or time.monotonic() - session.touched > self._refresh:
            self._touch(session_id)
            return False
        client, name = known
        version = headers.get(b"mcp-protocol-version")
        if (version is not None and version.startswith(b"2026")) or call.version is not None:
            return False
        if session.asked is None:
            session.asked = _asked(client.capabilities)
        if "progressToken" in call.meta or call.ident in session.calls or session.asked:
            return False
        if client.log_level is not None:
            return False  # what is said during the call belongs into its own stream
        # A client that disconnects has not cancelled, in this era: the call goes on, and its answer is lost.
        work = session.calls[call.ident] = Work(send)
        try:
            calling = answer(self._server, call, client.with_meta(call.meta), name, modern=False)
            await work.respond(calling, modern=False)
        finally:
            session.calls.pop(call.ident, None)
        return True

    def session_ended(self, session_id: str) -> None:
        """The session was deleted, or idle for too long: its calls are cancelled."""
        if (session := self._sessions.pop(session_id, None)) is not None:
            for work in list(session.calls.values()):
                work.cancel()

    async def _cancel(self, session_id: str, message: Mapping[str, Any], send: Send) -> bool:
        params, session = message.get("params"), self._sessions.get(session_id)
        ident = cast(dict[str, Any], params).get("requestId") if isinstance(params, dict) else None
        work = session.calls.get(ident) if session is not None and isinstance(ident, int | str) else None
        if work is None:
            return False
        work.cancel()
        await send_json(send, 202, None)
        return True

    # The stateless era.

    async def _modern(self, call: Call, access: Access | None, receive: Receive, send: Send) -> None:
        client = Client.stateless_request(call.meta, access)
        info = call.meta.get(CLIENT_INFO_META_KEY)
        name = cast(Mapping[str, Any], info).get("name") if isinstance(info, Mapping) else None
        work = Work(send)
        gone = asyncio.ensure_future(_disconnected(receive))
        # Closing the response is the cancellation, in this era.
        gone.add_done_callback(lambda _: work.cancel())
        try:
            calling = answer(self._server, call, client, name if isinstance(name, str) else None, modern=True)
            await work.respond(calling, modern=True)
        finally:
            gone.cancel()


def _plain(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the SDK would accept these headers, without looking at more than the common case."""
    accept = headers.get(b"accept", b"")
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return kind == b"application/json" and b"application/json" in accept and b"text/event-stream" in accept


def _speaks_for(call: Call, headers: Mapping[bytes, bytes]) -> bool:
    """Whether the headers of a stateless request say exactly what its body says."""
    name = decode_header_value(headers.get(b"mcp-name", b"").decode("latin-1"))
    return (
        call.modern
        and headers.get(b"mcp-protocol-version", b"").decode("latin-1") == call.version
        and headers.get(b"mcp-method") == b"tools/call"
        and name == call.params["name"]
        and not any(key.startswith(b"mcp-param-") for key in headers)
        and "progressToken" not in call.meta
        and LOG_LEVEL_META_KEY not in call.meta
    )


def _asked(capabilities: object) -> bool:
    return isinstance(capabilities, Mapping) and any(name in capabilities for name in CLIENT_REQUESTS)


async def _read(receive: Receive) -> bytes | None:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
