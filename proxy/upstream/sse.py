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
from proxy.upstream.failure import ConnectError, describe
from proxy.upstream.peer import Peer
from proxy.upstream.web import events, excerpt, http_client, origin, parsed
from proxy.wire import encode_request

log = logging.getLogger(__name__)


class _SseLink:
    """The write side of the legacy transport: each message is a POST to the endpoint the server named."""

    def __init__(self, client: httpx2.AsyncClient, peer: Peer, endpoint: str, tasks: anyio.abc.TaskGroup) -> None:
        self._client, self._peer, self._endpoint, self._tasks = client, peer, endpoint, tasks

    def send(self, message: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        content = encode_request(message)
        self._tasks.start_soon(self._post, message, content, {**(headers or {}), "content-type": "application/json"})

    takes_headers = True

    async def _post(self, message: dict[str, Any], content: bytes, headers: dict[str, str]) -> None:
        try:
            response = await self._client.post(self._endpoint, content=content, headers=headers)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            self._peer.fail(message.get("id"), f"cannot reach the server: {describe(error)}", may_have_run=False)
            return
        except httpx2.TransportError as error:
            self._peer.fail(message.get("id"), f"the HTTP connection failed: {describe(error)}")
            return
        if not response.is_success and "method" in message:
            self._peer.fail(
                message.get("id"), excerpt(response, response.content), may_have_run=response.status_code >= 500
            )
            if response.status_code in (404, 410):
                self._peer.close("the server has forgotten our session")


@asynccontextmanager
async def open_sse(config: ServerConfig, peer: Peer) -> AsyncGenerator[None]:
    """Attach `peer` to a server of the legacy HTTP+SSE transport (2024-11-05).

    Raises:
        ConnectError: no event stream, or one that names no endpoint.
    """
    assert config.url is not None
    async with http_client(config) as client:
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
                raise ConnectError(f"no event stream: {reason}", permanent=response.status_code in (401, 403, 404, 405))
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
                message = parsed(event.data.encode("utf-8", "replace"))
                if not peer.receive(message):
                    log.warning(
                        "server %r: an event that is not MCP: %s", peer.server, shorten(one_line(event.data[:400]), 200)
                    )
    except (httpx2.TransportError, httpx2.StreamError, httpx2.SSEError) as error:
        reason = f"the event stream failed: {describe(error)}"
    peer.close(reason)
