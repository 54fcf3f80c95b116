"""What stands before every HTTP path: Host and Origin (against DNS rebinding), the caller's token and profile, the time
that a body may take, and `/health`.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import anyio
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.caller import Scope as CallerScope
from proxy.server import ACCESS
from proxy.serving.access import Doorkeeper, Holder
from proxy.serving.refusals import Refusals

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
BODY_TIMEOUT = 60.0
ONCE = (b"host", b"origin", b"authorization", b"mcp-session-id", b"mcp-protocol-version")
"""Headers that decide who may do what."""


class Guard:
    """An ASGI layer in front of the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Sequence[str],
        keeper: Doorkeeper,
        status: Callable[[CallerScope | None], dict[str, Any]],
        body_timeout: float = BODY_TIMEOUT,
    ) -> None:
        """`hosts`: accepted host names, each with any port unless it names one. `status` is for `/health`."""
        self._app = app
        self._hosts = tuple(h.lower() for h in hosts)
        self._keeper, self._status, self._body_timeout = keeper, status, body_timeout
        self._refusals = Refusals()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, answer `/health`, or hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        refusal = _ambiguous(scope, headers) or self._refusal(headers)
        holder = self._keeper.holder(headers.get(b"authorization", b"")) if refusal is None else None
        if refusal is None and scope["path"] == "/health":
            await self._health(holder)(scope, receive, send)
        elif refusal is not None:
            await refusal(scope, receive, send)
        elif holder is None:
            shown = b"authorization" in headers
            reason = "its token is not one of this daemon's" if shown else "it came without a token"
            self._refusals.tell(reason, (scope.get("client") or ("an unknown address",))[0])
            text = "Unauthorized: send the header 'Authorization: Bearer TOKEN' with this daemon's token"
            await PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        elif (way := self._keeper.way(scope["path"], holder)) is None:
            await PlainTextResponse("Not Found", 404)(scope, receive, send)
        else:
            if way.access is not None:
                raw = way.path.encode()
                scope = {**scope, "path": way.path, "raw_path": raw, "root_path": way.root, "user": way.user}
                scope[ACCESS] = way.access
            await self._hand_on(scope, receive, send)

    def _health(self, holder: Holder | None) -> Response:
        # Whoever has shown no token learns nothing more, also where none is configured.
        if holder is None or not holder.shown:
            return PlainTextResponse("ok")
        way = self._keeper.way("/mcp", holder)
        return JSONResponse(self._status(way.access.scope if way is not None and way.access is not None else None))

    async def _hand_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, whose body must have come in time."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body, started = _Body(receive, anyio.current_time() + self._body_timeout), False

        async def answer(message: Message) -> None:
            nonlocal started
            if not body.late:
                started = True
                await send(message)

        try:
            await self._app(scope, body.receive, answer)
        except Exception:
            if not body.late:
                raise
        if body.late and not started:
            text = f"The body of the request did not come within {self._body_timeout:g} s"
            await PlainTextResponse(text, 408, {"Connection": "close"})(scope, receive, send)

    def _refusal(self, headers: dict[bytes, bytes]) -> Response | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._accepts(host):
            return PlainTextResponse(f"Host {json.dumps(host)} is not accepted: add it to `allowed_hosts`", 421)
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and not self._accepts(origin.partition("://")[2]):
            return PlainTextResponse(f"Origin {json.dumps(origin)} is not accepted: add it to `allowed_hosts`", 403)
        return None

    def _accepts(self, host: str) -> bool:
        name, _, port = host.lower().rpartition(":")
        if not port.isdecimal():
            name = host.lower()
        return name in self._hosts or host.lower() in self._hosts


def _ambiguous(scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
    """Refuse what says twice what decides about it: another reader might take the other one (RFC 9112, 3.2)."""
    if len(headers) == len(scope["headers"]):
        return None
    names = [name for name, _ in scope["headers"]]
    twice = [name.decode("latin-1") for name in ONCE if names.count(name) > 1]
    return PlainTextResponse(f"The header {twice[0]!r} stands there more than once", 400) if twice else None


class _Body:
    """The messages of a request; one whose body is late has hung up, as far as the application knows."""

    def __init__(self, receive: Receive, deadline: float) -> None:
        self._receive, self._deadline = receive, deadline
        self._whole = False
        self.late = False

    async def receive(self) -> Message:
        """The next message."""
        if self._whole:
            return await self._receive()
        message: Message = {"type": "http.disconnect"}
        with anyio.CancelScope(deadline=self._deadline) as patience:
            message = await self._receive()
        if patience.cancelled_caught:
            self.late = True
        elif message["type"] != "http.request" or not message.get("more_body"):
            self._whole = True
        return message
