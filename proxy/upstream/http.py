"""Upstreams over Streamable HTTP: the SDK's transport, hardened.

The SDK's transport lets one failing POST cancel every call in flight, loses the HTTP status, and limits an SSE event
to 1 MiB. `HttpClient` sits below it and turns every answer that is not JSON-RPC into a JSON-RPC error for that one
request, carrying a marker that `_Streams` turns into `Peer.fail`.
"""

import json
import logging
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeGuard, cast

import anyio
import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from proxy.config import ServerConfig
from proxy.text import one_line, shorten
from proxy.upstream.failure import describe
from proxy.upstream.peer import Peer
from proxy.wire import TOO_DEEP, writable

log = logging.getLogger(__name__)

MARKER = "narrow-waist/failure"
SSE_MAX_EVENT = 256 * 1024 * 1024
GOODBYE = 1.0
"""Seconds for the DELETE that ends a session."""

_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_LOCAL = re.compile(
    r"SSE stream (ended|failed)|Failed to parse (JSON|SSE)|server answered a request with 202|"
    r"Unexpected content type|Redirect to "
)
"""Errors that the SDK's transport makes up itself; they are failures of the connection, not answers of the server."""

OnLost = Callable[[], None]


class HttpClient(httpx2.AsyncClient):
    """An HTTP client whose failures to get a JSON-RPC answer stay with the one request they happened to."""

    def __init__(self, config: ServerConfig, on_lost: OnLost, on_suspect: OnLost) -> None:
        super().__init__(
            headers=dict(config.headers),
            timeout=httpx2.Timeout(min(config.connect_timeout, 30.0), read=None, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
        )
        self._on_lost, self._on_suspect = on_lost, on_suspect
        self._session: httpx2.Headers | None = None

    async def end_session(self, url: str) -> None:
        """Tell the server that we are leaving, also while we are being cancelled; what it answers does not matter."""
        if self._session is not None:
            with anyio.move_on_after(GOODBYE, shield=True), suppress(httpx2.HTTPError):
                await self.delete(url, headers=self._session)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; a POST that gets no JSON-RPC answer gets one of ours, which says why."""
        if request.method != "POST":
            return await super().send(request, **options)
        body = _body(await request.aread())
        try:
            response = await super().send(request, **options)
            reason = await self._problem(request, response, body)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            self._on_suspect()
            return _failure(request, body, f"cannot reach {origin(request)}: {describe(error)}", may_have_run=False)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            self._on_suspect()
            return _failure(request, body, f"the HTTP connection failed: {describe(error)}", may_have_run=True)
        if reason is None:
            if (session := response.headers.get("mcp-session-id")) is not None:
                self._session = httpx2.Headers({"mcp-session-id": session})
            return response
        status = response.status_code
        await response.aclose()
        if status == 404 and "mcp-session-id" in request.headers:
            self._on_lost()
            return _failure(request, body, "the server has forgotten our session", may_have_run=False, lost=True)
        self._on_suspect()
        return _failure(request, body, reason, may_have_run=status >= 500 or status < 400, status=status)

    async def _problem(self, request: httpx2.Request, response: httpx2.Response, body: Mapping[str, Any]) -> str | None:
        """What is wrong with the answer to a JSON-RPC request, or None; may replace the response's content."""
        if response.next_request is not None or response.is_redirect:
            return None  # the SDK follows it within the origin
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if "id" not in body or "method" not in body:  # a notification or an answer of ours
            return None
        if response.status_code == 202:
            return "HTTP 202: the server accepted the request but gives no answer to it"
        if response.is_success and kind == "text/event-stream":
            await _mend_event_stream(response)
            return None
        content = await _whole(response)
        frame = parsed(content)
        if not _is_answer(frame):
            return excerpt(response, content)
        # A whole JSON-RPC answer, whatever the content type and mostly whatever the status.
        if not response.is_success:
            if response.status_code in (401, 403) or "error" not in frame:
                return excerpt(response, content)
            if "mcp-session-id" in request.headers:
                if response.status_code == 404:
                    return excerpt(response, content)
                self._on_suspect()
        as_it_came = content.isascii()
        if frame.get("id") is None and "error" in frame:
            frame["id"], as_it_came = body["id"], False  # refused before its id was read
        elif str(frame.get("id")) != str(body["id"]):
            return "the answer has another request's id"
        response.headers["content-type"] = "application/json"
        if not as_it_came:  # the SDK reads less leniently
            response._content = json.dumps(frame).encode()  # pyright: ignore[reportPrivateUsage]
        return None


def _is_answer(message: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(message, dict):
        return False
    frame = cast(dict[str, Any], message)
    return isinstance(frame.get("error"), dict) or isinstance(frame.get("result"), dict)


def _body(content: bytes) -> dict[str, Any]:
    value = parsed(content)
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def parsed(content: bytes) -> object:
    """The JSON value that a body holds; None where it holds none."""
    try:
        return json.loads(content.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None


def origin(request: httpx2.Request) -> str:
    """Scheme, host and port of a request: what an error may show of its address."""
    return f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace')}"


def excerpt(response: httpx2.Response, content: bytes) -> str:
    """Status and a short, tag-free excerpt: no HTML page ever reaches a model."""
    text = one_line(_TAGS.sub(" ", content[:4096].decode("utf-8", "replace")))
    said = f": {shorten(text, 160)}" if text else ", empty body"
    retry = response.headers.get("retry-after")
    wait = f" (retry after {shorten(one_line(retry), 40)})" if retry else ""
    what = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
    return f"{what}{wait}{said}" if not response.is_success else f"{what} but not a JSON-RPC answer{said}"


def _failure(
    request: httpx2.Request,
    body: Mapping[str, Any],
    reason: str,
    *,
    may_have_run: bool,
    lost: bool = False,
    status: int | None = None,
) -> httpx2.Response:
    marker = {MARKER: {"reason": reason, "mayHaveRun": may_have_run, "lost": lost, "status": status}}
    error = {"code": -32603, "message": reason, "data": marker}
    if "id" not in body:
        return httpx2.Response(202, request=request)
    return httpx2.Response(200, json={"jsonrpc": "2.0", "id": body["id"], "error": error}, request=request)


async def _whole(response: httpx2.Response) -> bytes:
    """The content of a response; where that is not encoded, without httpx2's generators for each of its chunks."""
    if response.is_stream_consumed or "content-encoding" in response.headers:
        return await response.aread()
    stream = cast(httpx2.AsyncByteStream, response.stream)
    response._content = b"".join([part async for part in stream])  # pyright: ignore[reportPrivateUsage]
    await response.aclose()
    return response._content  # pyright: ignore[reportPrivateUsage]


class _Pushback(httpx2.AsyncByteStream):
    """A byte stream whose first chunk was read already."""

    def __init__(self, first: bytes, rest: AsyncIterator[bytes], inner: httpx2.AsyncByteStream) -> None:
        self._first, self._rest, self._inner = first, rest, inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        async for chunk in self._rest:
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _mend_event_stream(response: httpx2.Response) -> None:
    """Some gateways label a bare JSON body as an event stream: present it as what it is."""
    inner = cast(httpx2.AsyncByteStream, response.stream)
    chunks = aiter(inner)
    first = await anext(chunks, b"")
    response.stream = _Pushback(first, chunks, inner)
    if first.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{"):
        response.headers["content-type"] = "application/json"
        await response.aread()


class _Streams:
    """The SDK's stream pair as a `Link`: dicts become its models on the way out, and dicts again on the way in."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._send, self._outbox = anyio.create_memory_object_stream[SessionMessage](math.inf)

    def send(self, message: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        if not writable(message):  # the SDK would end the connection, and with it the calls of others
            raise OSError(TOO_DEEP)
        model: types.JSONRPCMessage
        if "method" not in message:
            model = (
                types.JSONRPCResponse.model_construct(**message)
                if "result" in message
                else types.JSONRPCError.model_validate(message)
            )
        elif "id" in message:
            model = types.JSONRPCRequest.model_construct(**message)
        else:
            model = types.JSONRPCNotification.model_construct(**message)
        metadata = ClientMessageMetadata(headers=dict(headers)) if headers else None
        try:
            self._send.send_nowait(SessionMessage(model, metadata))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise BrokenPipeError("the connection is closed") from None

    takes_headers = True

    def close(self) -> None:
        """Nothing is sent any more."""
        self._send.close()
        self._outbox.close()

    async def pump(self, write: Any) -> None:
        """Hand queued messages to the SDK's transport."""
        try:
            async with self._outbox:
                async for message in self._outbox:
                    await write.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._peer.close("the HTTP connection was closed")

    async def read(self, read: Any) -> None:
        """Feed the peer from the SDK's transport until that ends."""
        try:
            async for item in read:
                if isinstance(item, Exception):
                    log.warning(
                        "server %r: unreadable message: %s", self._peer.server, shorten(one_line(str(item)), 200)
                    )
                else:
                    self._take(item.message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        self._peer.close("the HTTP connection was closed")

    def _take(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCResponse):
            self._peer.receive({"id": message.id, "result": message.result})
        elif isinstance(message, types.JSONRPCError):
            data: Any = message.error.data
            marker = cast(dict[str, Any], data).get(MARKER) if isinstance(data, dict) else None
            if marker is not None:
                self._peer.fail(message.id, marker["reason"], may_have_run=marker["mayHaveRun"])
            elif _LOCAL.match(message.error.message):
                self._peer.fail(message.id, message.error.message)
            else:
                error: dict[str, Any] = {"code": message.error.code, "message": message.error.message, "data": data}
                self._peer.receive({"id": message.id, "error": error})
        else:
            self._peer.receive(message.model_dump(by_alias=True, mode="json", exclude_unset=True))


@asynccontextmanager
async def open_http(config: ServerConfig, peer: Peer, on_lost: OnLost, on_suspect: OnLost) -> AsyncGenerator[None]:
    """Attach `peer` to a Streamable HTTP server.

    `on_lost` is called when the server says that our session is gone (the request it said it to was not executed);
    `on_suspect` when an answer was such that the session may be gone.
    """
    assert config.url is not None
    async with (
        HttpClient(config, on_lost, on_suspect) as client,
        streamable_http_client(
            config.url, http_client=client, max_sse_event_size=SSE_MAX_EVENT, terminate_on_close=False
        ) as (read, write),
        anyio.create_task_group() as tasks,
    ):
        streams = _Streams(peer)
        tasks.start_soon(streams.pump, write)
        tasks.start_soon(streams.read, read)
        peer.attach(streams)
        try:
            yield
        finally:
            peer.close("the proxy closed the connection")
            await client.end_session(config.url)
            streams.close()
            tasks.cancel_scope.cancel()
