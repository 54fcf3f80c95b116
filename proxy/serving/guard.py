"""What stands before every HTTP path: Host and Origin (against DNS rebinding), the bearer token, and `/health`."""

import hmac
import json
from collections.abc import Callable, Sequence
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Guard:
    """An ASGI layer in front of the whole application."""

    def __init__(
        self, app: ASGIApp, *, hosts: Sequence[str], token: str | None, status: Callable[[], dict[str, Any]]
    ) -> None:
        """`hosts`: accepted host names, each with any port unless it names one. `status` is for `/health`."""
        self._app = app
        self._hosts = tuple(h.lower() for h in hosts)
        self._token = token.encode() if token else None
        self._status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, answer `/health`, or hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        refusal = self._refusal(headers)
        authorized = refusal is None and self._authorized(headers)
        if refusal is None and scope["path"] == "/health":
            # Whoever has shown no token learns nothing more, also where none is configured.
            shown = self._token is not None and authorized
            body: Response = JSONResponse(self._status()) if shown else PlainTextResponse("ok")
            await body(scope, receive, send)
        elif refusal is not None:
            await refusal(scope, receive, send)
        elif not authorized:
            text = "Unauthorized: send the header 'Authorization: Bearer TOKEN' with this daemon's token"
            await PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        else:
            await self._app(scope, receive, send)

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

    def _authorized(self, headers: dict[bytes, bytes]) -> bool:
        if self._token is None:
            return True
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token)
