"""Shim: passes every message of a stdio client to a daemon over Streamable HTTP, and what comes back to the client.

Messages travel as they are; only what HTTP needs is added (the session, the protocol version, the headers of the
stateless era). A session that the daemon has ended is opened again with the client's own `initialize`, once, before the
request that found out is sent again.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import anyio
import anyio.abc
import httpx2
from mcp.shared.inbound import encode_header_value
from mcp_types import INTERNAL_ERROR, PROTOCOL_VERSION_META_KEY

from proxy.wire import encode

_STREAM = "text/event-stream"
_AGAIN = 1.0
"""Seconds before a stream that was cut is opened again."""
_GOODBYE = 2.0
_NO_TOKEN = ": it wants a token (NARROW_WAIST_TOKEN, or --token-file)"
_WRONG_TOKEN = ": it refused the token (from NARROW_WAIST_TOKEN, or --token-file)"
_NO_PAGE = ": the address of a daemon ends in /mcp, or in /mcp/PROFILE with a profile that it has and the token opens"
Frame = dict[str, Any]


class Shim:
    """The two directions of one client's connection."""

    def __init__(self, http: httpx2.AsyncClient, url: str, write: Callable[[Frame], Awaitable[None]]) -> None:
        """`http` has the headers that every request needs; `write` sends the client a message."""
        self._http, self._url, self._write = http, url, write
        self._session: dict[str, str] = {}
        self._hello: Frame | None = None
        """The client's `initialize`, to open another session with."""
        self._opening = anyio.Lock()
        self._tasks: anyio.abc.TaskGroup

    async def serve(self, frames: AsyncIterator[Frame]) -> None:
        """Pass messages until the client closes its end."""
        try:
            async with anyio.create_task_group() as self._tasks:
                async for frame in frames:
                    if frame.get("method") in ("initialize", "notifications/initialized"):
                        await self._pass(frame)  # what follows needs what they settle
                    else:
                        self._tasks.start_soon(self._pass, frame)
                self._tasks.cancel_scope.cancel()
        finally:
            if self._session:
                with anyio.move_on_after(_GOODBYE, shield=True), suppress(httpx2.HTTPError):
                    await self._http.delete(self._url, headers=self._session)

    async def _pass(self, message: Frame) -> None:
        """Send one message and write what comes back; a request is always answered."""
        failure = ""
        try:
            status = await self._post(message)
            if status == 404 and self._hello is not None and message.get("method") != "initialize":
                await self._open_again()
                status = await self._post(message)
            if status >= 400:
                failure = f"the daemon answered with HTTP {status}{self._hint(status)}"
        except httpx2.HTTPError as error:
            failure = f"the daemon cannot be reached ({type(error).__name__})"
        if failure and message.get("id") is not None and "method" in message:
            error = {"code": INTERNAL_ERROR, "message": failure}
            await self._write({"jsonrpc": "2.0", "id": message["id"], "error": error})

    def _hint(self, status: int) -> str:
        if status == 401:
            return _WRONG_TOKEN if "authorization" in self._http.headers else _NO_TOKEN
        return _NO_PAGE if status == 404 else ""

    async def _post(self, message: Frame) -> int:
        """POST one message; 0 where its answer, if it has one, has been written, else the HTTP status."""
        content = encode(message)
        async with self._http.stream("POST", self._url, content=content, headers=self._headers(message)) as response:
            if message.get("method") == "initialize" and response.status_code == 200:
                self._hello, self._session = message, _session_of(response)
            if response.headers.get("content-type", "").startswith(_STREAM):
                async for event in _events(response):
                    await self._received(message, event)
            else:
                frame = _frame(await response.aread())
                if frame is None or not ("result" in frame or "error" in frame) or frame.get("id") is None:
                    return 0 if response.status_code < 400 else response.status_code
                await self._received(message, frame)
        if message.get("method") == "notifications/initialized" and self._session:
            self._tasks.start_soon(self._listen)
        return 0

    async def _received(self, message: Frame, frame: Frame) -> None:
        result = frame.get("result")
        if message.get("method") == "initialize" and isinstance(result, dict) and self._session:
            version: Any = cast(Frame, result).get("protocolVersion")
            self._session["mcp-protocol-version"] = str(version)
        await self._write(frame)

    def _headers(self, message: Frame) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": f"application/json, {_STREAM}"}
        params = _mapping(message.get("params"))
        version = _mapping(params.get("_meta")).get(PROTOCOL_VERSION_META_KEY)
        if not isinstance(version, str):
            return headers | ({} if message.get("method") == "initialize" else self._session)
        headers |= {"mcp-protocol-version": version, "mcp-method": str(message.get("method"))}
        name = params.get("name", params.get("uri"))
        return headers | ({"mcp-name": encode_header_value(name)} if isinstance(name, str) else {})

    async def _open_again(self) -> None:
        """Open another session as the client opened its first; its answer is kept from the client."""
        gone = dict(self._session)
        async with self._opening:
            if self._session != gone or self._hello is None:
                return  # another request was first
            self._session = {}
            done = await self._http.post(self._url, json=self._hello, headers=self._headers(self._hello))
            if done.status_code == 200:
                self._session = _session_of(done) | {k: v for k, v in gone.items() if k == "mcp-protocol-version"}
                note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                await self._http.post(self._url, json=note, headers=self._headers(note))
                self._tasks.start_soon(self._listen)

    async def _listen(self) -> None:
        """What the daemon says of itself, for as long as the session lasts."""
        session = dict(self._session)
        while self._session == session:
            with suppress(httpx2.HTTPError):
                async with self._http.stream("GET", self._url, headers={**session, "accept": _STREAM}) as response:
                    if response.status_code != 200:
                        return
                    async for event in _events(response):
                        await self._write(event)
            await anyio.sleep(_AGAIN)


async def _events(response: httpx2.Response) -> AsyncIterator[Frame]:
    """The messages of an event stream, of any length: the daemon's answers are bounded where they are made."""
    async for event in httpx2.EventSource(response, max_event_size=None):
        if (frame := _frame(event.data)) is not None:
            yield frame


def _frame(data: str | bytes) -> Frame | None:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast(Frame, value) if isinstance(value, dict) else None


def _session_of(response: httpx2.Response) -> dict[str, str]:
    session = response.headers.get("mcp-session-id")
    return {"mcp-session-id": session} if session else {}


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}
