"""The daemon: many clients over HTTP share one set of upstreams. Streamable HTTP at /mcp, SSE at /sse."""

import errno
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.sse import SseServerTransport
from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from proxy.caller import Scope
from proxy.config import GuardConfig
from proxy.errors import ConfigError
from proxy.server import ProxyServer
from proxy.serving.access import Doorkeeper
from proxy.serving.connections import Connections
from proxy.serving.guard import LOOPBACK, Guard
from proxy.serving.http_door import HttpDoor
from proxy.serving.sessions import Sessions
from proxy.serving.standing import OneStream
from proxy.serving.stdio import stop_on_signal

log = logging.getLogger(__name__)

DEFAULT = "127.0.0.1:8788"
GRACE = 1
"""Seconds that open streams get when the daemon stops."""


def address(text: str, *, token: str | bool | None, allowed_hosts: Sequence[str]) -> tuple[str, int]:
    """`HOST:PORT`, `HOST` or `PORT` as (host, port). `token`: whether clients need one.

    Raises:
        ConfigError: it is not one, or it is open to others without a token and `allowed_hosts`.
    """
    host, colon, port = text.rpartition(":")
    if not colon and text.isdecimal():
        host, port = "127.0.0.1", text
    elif not colon or text.endswith("]"):
        host, port = text, DEFAULT.rpartition(":")[2]
    host = (host or "127.0.0.1").strip("[]")
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"--http {text!r}: expected HOST:PORT, for instance {DEFAULT}")
    if host not in ("127.0.0.1", "localhost", "::1") and not (token and allowed_hosts):
        raise ConfigError(
            f"--http {text!r}: an address beyond this machine needs a token (NARROW_WAIST_TOKEN, --token-file, "
            "or `narrow-waist token create`) and `allowed_hosts` in the config"
        )
    return host, int(port)


def listener(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        ConfigError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio switches Nagle's algorithm off only where it is; with it, each answer
    # waits 40 ms for the client's delayed acknowledgement. `socket.create_server` leaves it out.
    sock = None
    try:
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(512)
        return sock
    except OSError as error:
        if sock is not None:
            sock.close()
        text = f"cannot listen on {host}:{port}: {error.strerror or error}"
        if error.errno == errno.EADDRINUSE:
            text += "; a daemon of yours may run there already (narrow-waist connect joins it); another port: "
            text += "--http HOST:PORT"
        raise ConfigError(text) from None


class _Uvicorn(uvicorn.Server):
    """Uvicorn that leaves signals to us: its own handling would raise them again before the upstreams are closed."""

    @contextmanager
    def capture_signals(self) -> Any:
        yield


async def serve_http(
    server: ProxyServer,
    sock: socket.socket,
    *,
    keeper: Doorkeeper,
    allowed_hosts: Sequence[str],
    status: Callable[[Scope | None], dict[str, Any]],
    session_idle_timeout: float,
    limits: GuardConfig,
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
) -> None:
    """Serve on a listening socket until a signal ends it; `background` is cancelled, and awaited, at the end."""
    app = application(
        server,
        keeper=keeper,
        allowed_hosts=allowed_hosts,
        status=status,
        session_idle_timeout=session_idle_timeout,
        limits=limits,
    )
    connections = Connections(limits.max_connections, limits.head_timeout)
    config = uvicorn.Config(
        app,
        http=connections.protocol(),
        ws="none",
        lifespan="on",
        log_level="warning",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )
    runner = _Uvicorn(config)
    host, port = sock.getsockname()[:2]
    log.info("listening on http://%s:%d/mcp (SSE at /sse)", f"[{host}]" if ":" in host else host, port)
    for handler in logging.getLogger().handlers:
        handler.flush()  # other informative lines may wait; whoever started us waits for this one

    async with anyio.create_task_group() as tasks, anyio.create_task_group() as behind:

        def stop() -> None:
            # Both at once: open streams and stubborn upstreams take their seconds side by side, not in turn.
            runner.should_exit = True
            server.close_streams()
            behind.cancel_scope.cancel()

        async def serve() -> None:
            await runner.serve([sock])
            behind.cancel_scope.cancel()
            tasks.cancel_scope.cancel()

        tasks.start_soon(stop_on_signal, stop)
        tasks.start_soon(serve)
        for each in background:
            behind.start_soon(each)


def application(
    server: ProxyServer,
    *,
    keeper: Doorkeeper,
    allowed_hosts: Sequence[str],
    status: Callable[[Scope | None], dict[str, Any]],
    session_idle_timeout: float,
    limits: GuardConfig,
) -> ASGIApp:
    """All that is served over HTTP, with what guards it."""
    streams = OneStream(_endpoints(server, session_idle_timeout, limits))
    server.on_stop = streams.end
    app = HttpDoor(streams, server, idle_timeout=session_idle_timeout, max_body=limits.max_body)
    app = Sessions(app, server.sdk.session_manager, limits.max_sessions)
    hosts = (*LOOPBACK, *allowed_hosts)
    return Guard(app, hosts=hosts, keeper=keeper, status=status, body_timeout=limits.body_timeout)


def _endpoints(server: ProxyServer, session_idle_timeout: float, limits: GuardConfig) -> Any:
    # Host and Origin are checked by the guard, for every path alike.
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    sse = SseServerTransport("/messages/", security_settings=unchecked, max_request_body_size=limits.max_body)

    stream = Route("/sse", endpoint=_Sse(sse, server))
    stream.methods = {"GET"}  # a HEAD, which Starlette adds, would start a session
    routes: list[Any] = [stream, Mount("/messages/", app=sse.handle_post_message)]
    return server.sdk.streamable_http_app(
        transport_security=unchecked,
        max_request_body_size=limits.max_body,
        max_sessions=limits.max_sessions,
        session_idle_timeout=session_idle_timeout,
        custom_starlette_routes=routes,
    )


class _Sse:
    """The stream of the SSE transport as an ASGI application: as an endpoint it would have to answer a second time."""

    def __init__(self, transport: SseServerTransport, server: ProxyServer) -> None:
        self._transport, self._server = transport, server

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        sdk = self._server.sdk
        async with self._transport.connect_sse(scope, receive, send) as (read, write):
            await sdk.run(read, write, sdk.create_initialization_options())
