"""Upstreams over the legacy HTTP+SSE transport (2024-11-05).

The SDK's own client limits an event to 1 MiB and serialises all posts, so this is ours.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2

from proxy.config import ServerConfig
from proxy.text import one_line, shorten
from proxy.upstream.failure import NO_STREAM, ConnectError, LoginNeeded, describe
from proxy.upstream.peer import Peer
from proxy.upstream.web import AT_ONCE, TOLD, answered, events, excerpt, http_client, origin, parsed, start_of
from proxy.wire import encode_request

log = logging.getLogger(__name__)


class _SseLink:
    """The write side of the legacy transport: each message is a POST to the endpoint the server named."""

    takes_headers = True

    def __init__(self, client: httpx2.AsyncClient, peer: Peer, endpoint: str, tasks: anyio.abc.TaskGroup) -> None:
        self._client, self._peer, self._endpoint, self._tasks = client, peer, endpoint, tasks
        self._asking: dict[int | str, anyio.CancelScope] = {}
        self._telling = anyio.Semaphore(AT_ONCE)

    def send(self, message: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        given = {**(headers or {}), "content-type": "application/json"}
        request = self._client.build_request("POST", self._endpoint, content=encode_request(message), headers=given)
        if "method" in message and "id" in message:
            self._asking[message["id"]] = scope = anyio.CancelScope()
            self._tasks.start_soon(self._ask, message["id"], request, scope)
        else:
            self._tasks.start_soon(self._tell, request)
        if message.get("method") == "notifications/cancelled":
            gone = self._asking.get(message["params"].get("requestId"))
            if gone is not None:
                gone.cancel()  # its answer would come over the stream, not with the POST

    async def _tell(self, request: httpx2.Request) -> None:
        async with self._telling:
            with anyio.move_on_after(TOLD):
                await self._post(None, request)

    async def _ask(self, ident: int | str, request: httpx2.Request, scope: anyio.CancelScope) -> None:
        with scope:
            await self._post(ident, request)
        if self._asking.get(ident) is scope:
            del self._asking[ident]

    async def _post(self, ident: int | str | None, request: httpx2.Request) -> None:
        """Send a message; what becomes of it fails the request `ident` (None: nobody's) or says nothing."""
        try:
            async with answered(self._client, request) as response:
                said = await start_of(response) if response.status_code == 202 or not response.is_success else b""
                if not response.is_success and ident is not None:
                    self._peer.fail(ident, excerpt(response, said), may_have_run=response.status_code >= 500)
                    if response.status_code in (404, 410):
                        self._peer.close("the server has forgotten our session")
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            self._peer.fail(ident, f"cannot reach {origin(request)}: {describe(error)}", may_have_run=False)
        except ConnectError as error:  # of the login
            self._peer.fail(ident, error.reason, may_have_run=False, cause=error)
            if isinstance(error, LoginNeeded):
                self._peer.close(error.reason)
        except Exception as error:  # whatever it is, it must not take the connection with it
            self._peer.fail(ident, f"the HTTP connection failed: {describe(error)}")


@asynccontextmanager
async def open_sse(config: ServerConfig, peer: Peer, login: httpx2.Auth | None = None) -> AsyncGenerator[None]:
    """Attach `peer` to a server of the legacy HTTP+SSE transport (2024-11-05).

    Raises:
        ConnectError: no event stream, or one that names no endpoint.
    """
    assert config.url is not None
    async with http_client(config, login) as client:
        request = client.build_request(
            "GET", config.url, headers={"accept": "text/event-stream", "cache-control": "no-store"}
        )
        try:
            response = await client.send(request, stream=True, follow_redirects=True)
        except httpx2.TransportError as error:
            raise ConnectError(f"cannot reach {origin(request)}: {describe(error)}") from None
        try:
            kind = response.headers.get("content-type", "")
            if not response.is_success or not kind.startswith("text/event-stream"):
                reason = excerpt(response, await response.aread())
                raise ConnectError(f"{NO_STREAM}{reason}", permanent=response.status_code in (401, 403, 404, 405))
            stream = events(response)
            endpoint = await _endpoint(str(response.url), stream)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read_events, stream, peer)
                peer.attach(_SseLink(client, peer, endpoint, tasks))
                try:
                    yield
                finally:
                    peer.close("the proxy closed the connection")
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(1, shield=True):
                await response.aclose()


async def _endpoint(base: str, stream: AsyncIterator[httpx2.ServerSentEvent]) -> str:
    async for event in stream:
        if event.event == "endpoint":
            endpoint = urljoin(base, event.data)
            if urlsplit(endpoint)[:2] != urlsplit(base)[:2]:
                raise ConnectError(f"the server names an endpoint of another origin: {endpoint}", permanent=True)
            return endpoint
    raise ConnectError("the event stream ended without naming an endpoint")


async def _read_events(stream: AsyncIterator[httpx2.ServerSentEvent], peer: Peer) -> None:
    reason = "the server closed the event stream"
    try:
        async for event in stream:
            if event.event == "message" and event.data:
                message = parsed(event.data.encode("utf-8", "replace"), peer)
                if not peer.receive(message):
                    log.warning(
                        "server %r: an event that is not MCP: %s", peer.server, shorten(one_line(event.data[:400]), 200)
                    )
    except (httpx2.TransportError, httpx2.StreamError, httpx2.SSEError) as error:
        reason = f"the event stream failed: {describe(error)}"
    peer.close(reason)
