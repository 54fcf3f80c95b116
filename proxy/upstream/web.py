"""What both HTTP transports share: the client, redirects, event streams, and what an answer that is none says."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import httpx2

from proxy.config import ServerConfig
from proxy.masking import mask
from proxy.text import one_line, shorten
from proxy.upstream.failure import naming_certificates
from proxy.upstream.peer import Peer

MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of one answer or event, unpacked; httpx2's own limit of an event is 1 MiB, and a list of 3,300 tools has 4."""
MAX_REDIRECTS = 5
TOLD = 30.0
"""Seconds for a POST that has no answer: some servers never end it."""
AT_ONCE = 8
"""POSTs without an answer that are on their way together, each on a connection, however much a server asks."""

_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)


@naming_certificates()
def http_client(config: ServerConfig, login: httpx2.Auth | None = None) -> httpx2.AsyncClient:
    """A client with the server's headers. Reading has no time limit: whoever asks has one of its own."""
    return httpx2.AsyncClient(
        auth=login,
        headers=[(name.encode(), value.encode()) for name, value in config.headers.items()],  # httpx2 takes ASCII alone
        timeout=httpx2.Timeout(min(config.connect_timeout, 30.0), read=None, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
    )


@asynccontextmanager
async def answered(client: httpx2.AsyncClient, request: httpx2.Request) -> AsyncGenerator[httpx2.Response]:
    """The response to a request, whose content is still to be read.

    What is sent was configured for one origin: a redirect that leaves it, or would drop the message, is not followed,
    and its response is given like any other.
    """
    for left in range(MAX_REDIRECTS, -1, -1):
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            following = response.next_request
            if following is None or not left or not _may_follow(request, following):
                yield response
                return
            await response.aread()  # the connection can be used again
        finally:
            await response.aclose()
        request = following


def _may_follow(sent: httpx2.Request, following: httpx2.Request) -> bool:
    old, new = sent.url, following.url
    own_login = bool(new.userinfo) and new.userinfo != old.userinfo  # it would be sent as a password
    return sent.method == following.method and old != new and same_origin(old, new) and not own_login


def same_origin(old: httpx2.URL, new: httpx2.URL) -> bool:
    """Whether what was meant for `old` may be sent to `new`: the same origin, or the same host by HTTPS instead."""
    upgraded = (old.scheme, new.scheme, old.port, new.port) == ("http", "https", None, None)
    return old.host == new.host and ((old.scheme, old.port) == (new.scheme, new.port) or upgraded)


def misled(response: httpx2.Response) -> str | None:
    """Why a redirect was not followed; None where the response is none. Shows no query, which may hold secrets."""
    if response.next_request is None:
        return None
    to = response.next_request.url.copy_with(userinfo=b"", query=None, fragment=None)
    return f"HTTP {response.status_code}: redirected to {to}, which is not followed; if that is the server, use its URL"


class TooLarge(Exception):
    """An answer is longer than MAX_ANSWER."""


async def whole(response: httpx2.Response) -> bytes:
    """The content of a response, unpacked; raises TooLarge as soon as it is longer than MAX_ANSWER."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_ANSWER:
            raise TooLarge(f"its answer is longer than {MAX_ANSWER >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


async def start_of(response: httpx2.Response, limit: int = 64 * 1024) -> bytes:
    """The first bytes of a response, for an excerpt."""
    found = b""
    async for part in response.aiter_bytes():
        found += part
        if len(found) >= limit:
            break
    return found[:limit]


def content_type(response: httpx2.Response) -> str:
    """The media type of a response, without parameters."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def parsed(content: bytes, peer: Peer) -> object:
    """The JSON value that a body from `peer` holds, read leniently; None where it holds none."""
    try:
        return peer.decode(content)
    except (ValueError, RecursionError):
        return None


def origin(request: httpx2.Request) -> str:
    """Scheme, host and port of a request: what an error may show of its address."""
    return f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace')}"


def excerpt(response: httpx2.Response, content: bytes) -> str:
    """Status and a short, tag-free excerpt: no HTML page ever reaches a model."""
    text = mask(one_line(_TAGS.sub(" ", content[:4096].decode("utf-8", "replace"))), ())  # before a secret is cut
    said = f": {shorten(text, 160)}" if text else ", empty body"
    retry = response.headers.get("retry-after")
    wait = f" (retry after {shorten(one_line(retry), 40)})" if retry else ""
    what = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
    return f"{what}{wait}{said}" if not response.is_success else f"{what} but not a JSON-RPC answer{said}"


def events(response: httpx2.Response) -> AsyncIterator[httpx2.ServerSentEvent]:
    """The events of a stream; raises httpx2.TransportError where it breaks, SSEError where one is too large."""
    return aiter(httpx2.EventSource(response, max_event_size=MAX_ANSWER))


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


class _Beginning(httpx2.AsyncByteStream):
    """The first bytes of a byte stream."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner, self._left = inner, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            yield chunk[: self._left]
            self._left -= len(chunk)
            if self._left <= 0:
                return

    async def aclose(self) -> None:
        await self._inner.aclose()


def shorten_body(response: httpx2.Response, limit: int = 64 * 1024) -> None:
    """Have no more than `limit` bytes read of a body of which nothing was read yet."""
    response.stream = _Beginning(cast(httpx2.AsyncByteStream, response.stream), limit)


async def is_event_stream(response: httpx2.Response) -> bool:
    """Whether the response is one: some gateways label a bare JSON body so."""
    if not response.is_success or content_type(response) != "text/event-stream":
        return False
    inner = cast(httpx2.AsyncByteStream, response.stream)
    chunks = aiter(inner)
    first = (await anext(chunks, b"")).removeprefix(b"\xef\xbb\xbf")  # a byte order mark, which httpx2 reads as text
    response.stream = _Pushback(first, chunks, inner)
    return not first.lstrip(b" \r\n\t").startswith(b"{")
