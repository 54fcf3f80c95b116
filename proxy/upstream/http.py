"""Upstreams over Streamable HTTP: each message is a POST, its answer a JSON body or an event stream.

The SDK's client gives up a server's own stream after two failures, loses the HTTP status, lets one failing POST cancel
every call in flight, and costs as much processor time as all the rest of a call; so this is ours. A POST that gets no
JSON-RPC answer fails its own request, at once, with the reason.
"""

import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import anyio
import httpx2
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from proxy.config import ServerConfig
from proxy.text import one_line, shorten
from proxy.upstream.failure import ConnectError, LoginNeeded, ScopeNeeded, describe
from proxy.upstream.peer import Peer
from proxy.upstream.web import (
    AT_ONCE,
    TOLD,
    TooLarge,
    answered,
    content_type,
    events,
    excerpt,
    http_client,
    is_event_stream,
    misled,
    origin,
    parsed,
    whole,
)
from proxy.wire import encode_request

log = logging.getLogger(__name__)

GOODBYE = 1.0
"""Seconds for the DELETE that ends a session."""
CANCELLED = 5.0
"""Seconds for the POST that cancels a call, before the call's own is ended anyway."""
RETRY, RETRY_CAP, PROVEN = 1.0, 60.0, 30.0
"""Seconds until a stream is opened again where the server names none; doubled up to the cap, until one has brought an
event or has lasted."""
RETRY_LEAST = 0.1
"""Seconds; a server that names less and ends its streams at once would keep us busy."""
RESUMES = 3
"""How often an answer's broken stream is resumed without anything new in it."""
ACCEPTED = "HTTP 202: the server accepted the request but gives no answer to it"
_VISIBLE = re.compile(r"[\x21-\x7e]+")
PASSING = frozenset({408, 425, 429})
"""Refusals of the server's own stream that may pass; every other 4xx says that it has none."""

OnLost = Callable[[], None]


class _Unanswered(Exception):
    """A POST brought no answer of the server."""

    def __init__(self, reason: str, *, may_have_run: bool) -> None:
        super().__init__(reason)
        self.may_have_run = may_have_run


@dataclass
class _Place:
    """Where an event stream is to be taken up again."""

    last: str = ""
    """Id of its last event; "" where the server gives none."""
    retry: float = RETRY
    """Seconds."""
    seen: bool = False
    """Whether there was an event."""

    async def note(self, stream: AsyncIterator[httpx2.ServerSentEvent]) -> AsyncIterator[str]:
        """The texts of a stream's messages, each after its place was noted."""
        async for event in stream:
            self.seen = True
            if event.id and event.id.isascii():  # another could not be sent back
                self.last = event.id
            if event.retry is not None:
                self.retry = max(min(event.retry, RETRY_CAP * 1000) / 1000, RETRY_LEAST)
            if event.event == "message" and event.data:
                yield event.data


@dataclass
class _Post:
    """A request on its way."""

    scope: anyio.CancelScope
    modern: bool
    """In the stateless era the end of the POST is what cancels; before, it says nothing (2025-11-25, transports)."""


class _Link:
    """The write side of a connection, and the tasks that bring its answers."""

    takes_headers = True

    def __init__(
        self,
        url: str,
        client: httpx2.AsyncClient,
        peer: Peer,
        tasks: anyio.abc.TaskGroup,
        on_lost: OnLost,
        on_suspect: OnLost,
    ) -> None:
        self._url, self._client, self._peer, self._tasks = url, client, peer, tasks
        self._on_lost, self._on_suspect = on_lost, on_suspect
        self._session: str | None = None
        self._version: str | None = None
        """As agreed: for what comes without headers of its own."""
        self._posts: dict[int | str, _Post] = {}
        self._telling = anyio.Semaphore(AT_ONCE)
        self._greeting: anyio.Event | None = None
        """While `initialized` is on its way: no request may overtake it."""
        self._elsewhere: set[int | str] | None = None
        """The requests whose answer is to come on the server's own stream; None where it has none."""

    def send(self, message: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        method, body = message.get("method"), encode_request(message)
        if method == "initialize":
            self._version = None  # it may stand from the probe before
        elif headers is not None:
            self._version = headers.get("mcp-protocol-version", self._version)
        if method == "notifications/cancelled":
            self._cancel(message["params"].get("requestId"), body)
        elif method is None or "id" not in message:
            if method == "notifications/initialized":
                self._greeting, self._elsewhere = anyio.Event(), None if self._session is None else set()
                self._tasks.start_soon(self._greet, body, headers)
            else:
                self._tasks.start_soon(self._tell, body, headers)
        else:
            post = self._posts[message["id"]] = _Post(anyio.CancelScope(), self._version in MODERN_PROTOCOL_VERSIONS)
            self._tasks.start_soon(self._ask, message, body, headers, post)

    def _built(self, method: str, body: bytes | None, headers: Mapping[str, str] | None = None) -> httpx2.Request:
        fields = {"accept": "application/json, text/event-stream"}
        if body is not None:
            fields["content-type"] = "application/json"
        if self._session is not None:
            fields["mcp-session-id"] = self._session
        if self._version is not None:
            fields["mcp-protocol-version"] = self._version
        return self._client.build_request(method, self._url, content=body, headers={**fields, **(headers or {})})

    # What has no answer.

    async def _greet(self, body: bytes, headers: Mapping[str, str] | None) -> None:
        assert self._greeting is not None
        try:
            await self._tell(body, headers)
        finally:
            self._greeting.set()
            self._greeting = None
        if self._elsewhere is not None:
            await self._listen()
            self._elsewhere = None

    async def _tell(self, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        try:
            async with self._telling:
                await self._told(self._built("POST", body, headers))
        except Exception as error:  # nobody waits for it, and it must not take the connection with it
            log.debug("server %r: not sent: %s", self._peer.server, describe(error))

    async def _told(self, request: httpx2.Request) -> None:
        with anyio.move_on_after(TOLD):
            async with answered(self._client, request) as response:
                if response.status_code == 202:
                    await response.aread()  # nothing, but the connection can be used again
                elif response.status_code == 404 and "mcp-session-id" in request.headers:
                    self._on_lost()

    def _cancel(self, ident: int | str, body: bytes) -> None:
        if (post := self._posts.get(ident)) is None:
            return  # it has been answered
        if post.modern:
            post.scope.cancel()
        else:
            self._tasks.start_soon(self._give_up, post, body)

    async def _give_up(self, post: _Post, body: bytes) -> None:
        with anyio.move_on_after(CANCELLED):
            await self._tell(body)
        post.scope.cancel()  # some servers never end the stream of what was cancelled

    async def goodbye(self) -> None:
        """Tell the server that we are leaving, also while we are being cancelled; what it answers does not matter."""
        if self._session is not None:
            with anyio.move_on_after(GOODBYE, shield=True), suppress(httpx2.HTTPError, ConnectError):
                async with answered(self._client, self._built("DELETE", None)):
                    pass

    # Requests.

    async def _ask(
        self, message: Mapping[str, Any], body: bytes, headers: Mapping[str, str] | None, post: _Post
    ) -> None:
        ident: int | str = message["id"]
        with post.scope:
            if self._greeting is not None:
                await self._greeting.wait()
            request = self._built("POST", body, headers)
            try:
                await self._exchange(message, request)
            except _Unanswered as failure:
                self._peer.fail(ident, str(failure), may_have_run=failure.may_have_run)
            except TooLarge as error:
                self._peer.fail(ident, str(error))
            except ConnectError as error:  # of the login
                if not isinstance(error, ScopeNeeded):  # which says nothing of the session
                    (self._on_lost if isinstance(error, LoginNeeded) else self._on_suspect)()
                self._peer.fail(ident, error.reason, may_have_run=False, cause=error)
            except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
                self._on_suspect()
                self._peer.fail(ident, f"cannot reach {origin(request)}: {describe(error)}", may_have_run=False)
            except (httpx2.TransportError, httpx2.DecodingError) as error:
                self._on_suspect()
                self._peer.fail(ident, f"the HTTP connection failed: {describe(error)}")
            except Exception as error:
                log.exception("server %r: its answer over HTTP could not be read", self._peer.server)
                self._peer.fail(ident, f"its answer could not be read: {describe(error)}")
        if self._posts.get(ident) is post:
            del self._posts[ident]

    async def _exchange(self, message: Mapping[str, Any], request: httpx2.Request) -> None:
        """Send a request, and feed the peer what comes with the answer."""
        ident: int | str = message["id"]
        async with answered(self._client, request) as response:
            if (why := misled(response)) is not None:
                raise _Unanswered(why, may_have_run=False)
            if message["method"] == "initialize" and response.is_success:
                self._session = _session_of(response)
            if response.status_code == 202:
                return await self._comes_elsewhere(response, ident)
            if not await is_event_stream(response):
                return self._receive(self._judged(response, await whole(response), ident))
            place = _Place()
            if await self._read(response, place, ident):
                return None
        return await self._resume(place, ident)

    async def _comes_elsewhere(self, response: httpx2.Response, ident: int | str) -> None:
        """Wait for an answer on the server's own stream; raises _Unanswered where there is none.

        Against the specification, but clients made with the SDK for TypeScript take it there, so some servers do it.
        """
        if (waiting := self._elsewhere) is None:
            raise self._bad(response, ACCEPTED)
        waiting.add(ident)
        try:
            await self._peer.settled(ident)
        finally:
            waiting.discard(ident)

    def _judged(self, response: httpx2.Response, content: bytes, ident: int | str) -> dict[str, Any]:
        """A whole JSON-RPC answer, whatever the content type and mostly whatever the status; raises _Unanswered."""
        frame = parsed(content, self._peer)
        if not _is_answer(frame):
            raise self._bad(response, excerpt(response, content))
        if not response.is_success:
            status, in_session = response.status_code, "mcp-session-id" in response.request.headers
            if status in (401, 403) or "error" not in frame or (in_session and status == 404):
                raise self._bad(response, excerpt(response, content))
            if in_session:
                self._on_suspect()
        return _answer_to(ident, frame)

    def _bad(self, response: httpx2.Response, reason: str) -> _Unanswered:
        status = response.status_code
        if status == 404 and "mcp-session-id" in response.request.headers:
            self._on_lost()
            return _Unanswered("the server has forgotten our session", may_have_run=False)
        self._on_suspect()
        return _Unanswered(reason, may_have_run=status >= 500 or status < 400)

    # Event streams.

    async def _read(self, response: httpx2.Response, place: _Place, ident: int | str | None = None) -> bool:
        """Feed the peer from a stream until it ends; True once the answer to `ident` was in it."""
        try:
            async for text in place.note(events(response)):
                frame = parsed(text.encode("utf-8", "replace"), self._peer)
                if ident is not None and frame is None:
                    raise _Unanswered(f"unparseable answer: {shorten(one_line(text[:400]), 160)}", may_have_run=True)
                if ident is not None and _is_answer(frame):
                    self._receive(_answer_to(ident, frame))
                    return True
                self._receive(frame, text)
        except httpx2.SSEError as error:
            raise _Unanswered(f"the event stream failed: {describe(error)}", may_have_run=True) from None
        except httpx2.TransportError as error:
            log.debug("server %r: an event stream broke: %s", self._peer.server, describe(error))
        return False

    def _receive(self, frame: object, text: str = "") -> None:
        if not self._peer.receive(frame):
            said = shorten(one_line(text[:400]), 200)
            log.warning("server %r: an event that is not MCP: %s", self._peer.server, said)

    def _stream(self, place: _Place) -> AbstractAsyncContextManager[httpx2.Response]:
        """Open a stream with a GET, at a place of an earlier one."""
        headers = {"accept": "text/event-stream"}
        if place.last:
            headers["last-event-id"] = place.last
        return answered(self._client, self._built("GET", None, headers))

    async def _resume(self, place: _Place, ident: int | str) -> None:
        """Take up the stream of an answer again where the server can do that; raises _Unanswered."""
        left = RESUMES
        while left and place.last:
            before = place.last
            await anyio.sleep(place.retry)
            with suppress(httpx2.TransportError):
                async with self._stream(place) as response:
                    if await is_event_stream(response) and await self._read(response, place, ident):
                        return
            left = RESUMES if place.last != before else left - 1
        raise _Unanswered("the event stream ended without an answer", may_have_run=True)

    async def _listen(self) -> None:
        """Read the stream on which a server speaks of its own accord, if it has one, for as long as we live."""
        place = _Place()
        delay = place.retry
        while True:
            opened, place.seen = anyio.current_time(), False
            try:
                async with self._stream(place) as response:
                    status = response.status_code
                    if response.is_success or response.next_request is not None:
                        if content_type(response) != "text/event-stream":
                            return
                        await self._read(response, place)
                    elif status < 500 and status not in PASSING:
                        return
            except _Unanswered as failure:
                log.warning("server %r: %s", self._peer.server, failure)
            except Exception as error:  # calls need no such stream
                log.debug("server %r: its own stream: %s", self._peer.server, describe(error))
            finally:  # with it end the answers that were to come on it
                for ident in self._elsewhere or ():
                    self._peer.fail(ident, ACCEPTED)
            proven = place.seen or anyio.current_time() - opened > PROVEN
            delay = place.retry if proven else min(delay * 2, RETRY_CAP)
            await anyio.sleep(delay)


def _session_of(response: httpx2.Response) -> str | None:
    """The id of the session that was opened, if any; raises _Unanswered where it could not be sent back."""
    session = response.headers.get("mcp-session-id")
    if session is not None and not _VISIBLE.fullmatch(session):
        raise _Unanswered("its session id is not visible ASCII, as MCP wants it", may_have_run=True)
    return session


def _is_answer(message: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(message, dict):
        return False
    frame = cast(dict[str, Any], message)
    return isinstance(frame.get("error"), dict) or isinstance(frame.get("result"), dict)


def _answer_to(ident: int | str, frame: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request, whose id it must have; raises _Unanswered."""
    if frame.get("id") is None and "error" in frame:
        return {**frame, "id": ident}  # refused before its id was read
    if str(frame.get("id")) != str(ident):
        raise _Unanswered("the answer has another request's id", may_have_run=True)
    return frame


@asynccontextmanager
async def open_http(
    config: ServerConfig, peer: Peer, on_lost: OnLost, on_suspect: OnLost, login: httpx2.Auth | None = None
) -> AsyncGenerator[None]:
    """Attach `peer` to a Streamable HTTP server.

    `on_lost` is called when the server says that our session is gone (the request it said it to was not executed);
    `on_suspect` when an answer was such that the session may be gone.
    """
    assert config.url is not None
    async with http_client(config, login) as client, anyio.create_task_group() as tasks:
        link = _Link(config.url, client, peer, tasks, on_lost, on_suspect)
        peer.attach(link)
        try:
            yield
        finally:
            peer.close("the proxy closed the connection")
            await link.goodbye()
            tasks.cancel_scope.cancel()
