"""Shim: passes every message of a stdio client to a daemon over Streamable HTTP, and what comes back to the client.

Messages travel as they are; only what HTTP needs is added (the session, the protocol version, the headers of the
stateless era). A session that the daemon has ended is opened again with the client's own `initialize`, once, before the
request that found out is sent again. What the daemon says of itself comes on a stream of its own; where that finds the
session gone, as after a restart, the client is told of what it has listed and is now different.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.abc
import httpx2
from mcp.shared.inbound import encode_header_value
from mcp_types import INTERNAL_ERROR, PROTOCOL_VERSION_META_KEY

from proxy.wire import decode, encode

_STREAM = "text/event-stream"
_AGAIN, _AGAIN_CAP, _PROVEN = 0.1, 60.0, 30.0
"""Seconds until the daemon's own stream is opened again; doubled up to the cap, until one has brought something or has
lasted."""
_PASSING = frozenset({408, 425, 429})
"""Refusals of that stream that may pass; every other 4xx says that there is none for us."""
_HELLOS = ("initialize", "notifications/initialized")
_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "prompts/list": "prompts",
}
_TAKEN = 10.0
"""Seconds that the daemon has to take what it need not answer; requests may be waiting behind it."""
_GOODBYE = 1.0
"""Seconds that the daemon has, once the client has gone, to answer a handshake that is under way, and again to end the
session."""
_NO_TOKEN = ": it wants a token (NARROW_WAIST_TOKEN, or --token-file)"
_WRONG_TOKEN = ": it refused the token (from NARROW_WAIST_TOKEN, or --token-file)"
_NO_PAGE = ": the address of a daemon ends in /mcp, or in /mcp/PROFILE with a profile that it has and the token opens"
_POST = {"content-type": "application/json", "accept": f"application/json, {_STREAM}"}
Frame = dict[str, Any]


@dataclass
class _Request:
    """A request on its way."""

    modern: bool
    """Of the stateless era."""
    cancelled: bool = False
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Shim:
    """The two directions of one client's connection."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        url: str,
        write: Callable[[Frame], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """`http` has the headers that every request needs; `write` sends the client a message."""
        self._http, self._url, self._write, self._sleep = http, url, write, sleep
        self._session: dict[str, str] = {}
        """Its headers; {} where there is none, another object for each."""
        self._listed: dict[str, bytes] = {}
        """What the client was given for each kind of list it has asked for: the hash of its first page."""
        self._hello: Frame | None = None
        """The client's `initialize`, to open another session with."""
        self._opening = anyio.Lock()
        self._requests: dict[str, _Request] = {}
        """Those without an answer yet, by their ids as written."""
        self._tasks: anyio.abc.TaskGroup

    async def serve(self, frames: AsyncIterator[Frame]) -> None:
        """Pass messages until the client closes its end."""
        try:
            async with anyio.create_task_group() as self._tasks:
                settled = anyio.Event()
                settled.set()
                async for frame in frames:
                    before = settled
                    if frame.get("method") in _HELLOS:
                        settled = anyio.Event()  # what follows needs what they settle
                    self._tasks.start_soon(self._pass_after, before, frame, settled)
                with anyio.move_on_after(_GOODBYE):
                    await settled.wait()
                self._tasks.cancel_scope.cancel()
        finally:
            if self._session:
                with anyio.move_on_after(_GOODBYE, shield=True), suppress(Exception):
                    await self._http.delete(self._url, headers=self._session)

    async def _pass_after(self, before: anyio.Event, message: Frame, settled: anyio.Event) -> None:
        await before.wait()
        try:
            await self._pass(message)
        finally:
            if settled is not before:
                settled.set()

    async def _pass(self, message: Frame) -> None:
        """Send one message and write what comes back; a request is always answered, unless the client cancels it."""
        if message.get("method") == "notifications/cancelled":
            await self._cancel(message)
        elif "method" not in message or message.get("id") is None:
            with anyio.move_on_after(_TAKEN):
                await self._exchange(message)
        else:
            request = _Request(_version(message) is not None)
            key = repr(message["id"])
            self._requests[key] = request
            with request.scope:
                failure = await self._exchange(message)
                if failure and not request.cancelled:
                    error = {"code": INTERNAL_ERROR, "message": failure}
                    await self._tell({"jsonrpc": "2.0", "id": message["id"], "error": error})
            if self._requests.get(key) is request:
                del self._requests[key]

    async def _cancel(self, message: Frame) -> None:
        """Wait no more for an answer. In the stateless era the end of its POST is what tells the daemon."""
        request = self._requests.get(repr(_mapping(message.get("params")).get("requestId")))
        if request is not None:
            request.cancelled = True
        if request is None or not request.modern:
            await self._exchange(message)
        if request is not None:
            request.scope.cancel()

    async def _exchange(self, message: Frame) -> str:
        """Send one message and write what comes back; why that is no answer, "" where it is one."""
        try:
            session = self._session
            status = await self._post(message)
            if status == 404 and session and message.get("method") not in _HELLOS:
                await self._open_again(session)
                status = await self._post(message)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return f"the daemon cannot be reached ({type(error).__name__})"
        except httpx2.HTTPError as error:
            return f"the connection to the daemon broke ({type(error).__name__}): the request may have been carried out"
        except Exception as error:  # one odd message, or answer, must not take the connection with it
            return f"this message could not be passed on ({type(error).__name__})"
        if status >= 400:
            return f"the daemon answered with HTTP {status}{self._hint(status)}"
        return f"the daemon did not answer this request (HTTP {status})" if status else ""

    def _hint(self, status: int) -> str:
        if status == 401:
            return _WRONG_TOKEN if "authorization" in self._http.headers else _NO_TOKEN
        return _NO_PAGE if status == 404 else ""

    async def _post(self, message: Frame) -> int:
        """POST one message, and write what comes back; 0 where that is its answer, else the HTTP status."""
        content, method, answered = encode(message), message.get("method"), False
        async with self._http.stream("POST", self._url, content=content, headers=self._headers(message)) as response:
            status = response.status_code
            if method == "initialize" and status == 200:
                self._hello, self._session = message, _session_of(response)
            try:
                async for frame in _said(response):
                    answered = await self._received(message, frame, status) or answered
            except Exception:
                if not answered:  # else what broke is only the end of the stream
                    raise
        if method == "notifications/initialized" and status < 300 and self._session:
            self._tasks.start_soon(self._listen, self._session, _AGAIN)
        return 0 if answered else status

    async def _received(self, message: Frame, frame: Frame, status: int) -> bool:
        """Write a message that came with the response to another, if it is for the client; True if it is the answer."""
        if "method" in frame:
            await self._tell(frame)
            return False
        ident = message.get("id") if "method" in message else None
        if frame.get("id") is None and "error" in frame and status not in (401, 404):
            frame = {**frame, "id": ident}  # refused before its id was read
        if ident is None or frame.get("id") != ident or not ("result" in frame or "error" in frame):
            return False
        result = _mapping(frame.get("result"))
        if message["method"] == "initialize" and result and self._session:
            self._session["mcp-protocol-version"] = encode_header_value(str(result.get("protocolVersion")))
        if (which := _which_list(message)) and "result" in frame:
            self._listed[which] = _digest(frame["result"])
        await self._tell(frame)
        return True

    def _headers(self, message: Frame) -> dict[str, str]:
        params = _mapping(message.get("params"))
        version = _version(message)
        if version is None:
            return _POST | ({} if message.get("method") == "initialize" else self._session)
        headers = {"mcp-protocol-version": version, "mcp-method": str(message.get("method"))}
        name = params.get("name", params.get("uri"))
        if isinstance(name, str):
            headers["mcp-name"] = name
        return _POST | {key: encode_header_value(value) for key, value in headers.items()}

    async def _tell(self, message: Frame) -> None:
        with suppress(anyio.BrokenResourceError):  # where nobody reads, whoever made us ends us
            await self._write(message)

    async def _open_again(self, gone: dict[str, str], delay: float = _AGAIN) -> None:
        """Open another session as the client opened its first; its answer is kept from the client.

        `delay`: see `_listen`.
        """
        async with self._opening:
            if self._session is not gone or self._hello is None:
                return  # another request was first
            done = await self._ask(self._hello, {})
            if done.status_code != 200 or not (session := _session_of(done)):
                return
            if (version := gone.get("mcp-protocol-version")) is not None:
                session["mcp-protocol-version"] = version
            await self._ask({"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
            self._session = session
            self._tasks.start_soon(self._listen, session, delay)
            self._tasks.start_soon(self._compare, session)

    async def _ask(self, message: Frame, session: dict[str, str]) -> httpx2.Response:
        return await self._http.post(self._url, content=encode(message), headers={**_POST, **session})

    async def _compare(self, session: dict[str, str]) -> None:
        """Tell the client of what it has listed in an earlier session and is different in this one.

        The daemon does not: it knows nothing of what was listed before its start.
        """
        changed: dict[str, None] = {}
        for method, before in list(self._listed.items()):
            with suppress(Exception):
                response = await self._ask({"jsonrpc": "2.0", "id": method, "method": method}, session)
                results = [frame["result"] async for frame in _said(response) if "result" in frame]
                if results and _digest(results[0]) != before:
                    self._listed[method] = _digest(results[0])
                    changed[_LISTS[method]] = None
        for kind in changed:
            await self._tell({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})

    async def _listen(self, session: dict[str, str], delay: float) -> None:
        """What the daemon says of itself, for as long as the session lasts. `delay`: seconds of the last wait."""
        headers = {**session, "accept": _STREAM}
        while self._session is session:
            opened, heard, status = anyio.current_time(), False, 0
            with suppress(Exception):  # calls need no such stream
                async with self._http.stream("GET", self._url, headers=headers) as response:
                    status, lasting = response.status_code, _is_stream(response)
                    if not lasting and status < 500 and status != 404 and status not in _PASSING:
                        return
                    if lasting:
                        async for frame in _said(response):
                            heard = True
                            await self._tell(frame)
            proven = heard or anyio.current_time() - opened > _PROVEN
            delay = _AGAIN if proven else min(delay * 2, _AGAIN_CAP)
            await self._sleep(delay)
            if status == 404:
                with suppress(Exception):
                    await self._open_again(session, delay)


def _is_stream(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status_code == 200 and kind == _STREAM


async def _said(response: httpx2.Response) -> AsyncIterator[Frame]:
    """The messages in a response, of any length: the daemon's answers are bounded where they are made."""
    if not _is_stream(response):
        if (frame := _frame(await response.aread())) is not None:
            yield frame
        return
    response.encoding = "utf-8"  # which an event stream always is, whatever it says
    async for event in httpx2.EventSource(response, max_event_size=None):
        if (frame := _frame(event.data)) is not None:
            yield frame


def _version(message: Frame) -> str | None:
    """The revision that a message of the stateless era names."""
    version = _mapping(_mapping(message.get("params")).get("_meta")).get(PROTOCOL_VERSION_META_KEY)
    return version if isinstance(version, str) else None


def _which_list(message: Frame) -> str | None:
    """The kind of list whose first page is asked for."""
    method = message.get("method")
    first = "cursor" not in _mapping(message.get("params"))
    return method if isinstance(method, str) and method in _LISTS and first else None


def _digest(result: object) -> bytes:
    return hashlib.sha256(encode({"result": result})).digest()


def _frame(data: str | bytes) -> Frame | None:
    try:
        value: object = decode(data if isinstance(data, bytes) else data.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return cast(Frame, value) if isinstance(value, dict) else None


def _session_of(response: httpx2.Response) -> dict[str, str]:
    session = response.headers.get("mcp-session-id")
    return {"mcp-session-id": encode_header_value(session)} if session else {}


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}
