"""`connect`: a stdio server that passes every message to the daemon and back, for hosts that speak only stdio.

All such hosts then share the daemon's one set of upstreams. Messages travel as they are; only what HTTP needs is added
(the session, the protocol version, the headers of the stateless era). A session that the daemon has ended is opened
again with the client's own `initialize`, once, before the request that found out is sent again.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2

from proxy.config import find
from proxy.errors import ConfigError

TOKEN = "NARROW_WAIST_TOKEN"
UP_WITHIN = 20.0
"""Seconds that a daemon that we start has to listen."""
_META = "io.modelcontextprotocol/protocolVersion"
_STREAM = "text/event-stream"


def run(options: argparse.Namespace) -> int:
    """Until the client is gone; raises ConfigError where the daemon cannot be reached."""
    token = os.environ.get(TOKEN)
    if options.connect_token:
        try:
            token = Path(options.connect_token).expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"--token-file {options.connect_token}: {error.strerror}") from None
    url = options.url
    for profile in options.profile or ():
        url = f"{url.rstrip('/')}/{profile}"
    anyio.run(_run, url, token, options)
    return 0


async def _run(url: str, token: str | None, options: argparse.Namespace) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    timeout = httpx2.Timeout(30, read=None)
    # One connection for each call in flight, and none through a proxy: the daemon is here.
    async with httpx2.AsyncClient(headers=headers, timeout=timeout, limits=httpx2.Limits(), trust_env=False) as http:
        if not await _up(http, url):
            if not options.start:
                raise ConfigError(f"no daemon at {url}; start one with: narrow-waist --http, or add --start")
            _start(url, options)
            with anyio.move_on_after(UP_WITHIN):
                while not await _up(http, url):  # noqa: ASYNC110 - nothing tells when a port opens
                    await anyio.sleep(0.1)
            if not await _up(http, url):
                raise ConfigError(f"the daemon at {url} did not come up; see: narrow-waist --http")
        await Shim(http, url).serve()


async def _up(http: httpx2.AsyncClient, url: str) -> bool:
    parts = urlsplit(url)
    try:
        return (await http.get(f"{parts.scheme}://{parts.netloc}/health", timeout=5)).status_code == 200
    except httpx2.HTTPError:
        return False


def _start(url: str, options: argparse.Namespace) -> None:
    """Start the daemon for good: it outlives us, and the host that started us."""
    config = find(options.config, os.environ, Path.cwd()).absolute()
    words = [sys.executable, "-P", "-m", "proxy", "--http", urlsplit(url).netloc, "--config", str(config)]
    if options.connect_token:
        words += ["--token-file", str(Path(options.connect_token).expanduser().absolute())]
    nothing = subprocess.DEVNULL
    subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


class Shim:
    """The two directions of one client's connection."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http, self._url = http, url
        self._session: dict[str, str] = {}
        self._hello: dict[str, Any] | None = None
        """The client's `initialize`, to open another session with."""
        self._opening = anyio.Lock()
        self._out = anyio.Lock()
        self._tasks: Any = None

    async def serve(self) -> None:
        """Pass messages until the client closes its end."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            async for line in _lines():
                try:
                    message: object = json.loads(line)
                except (ValueError, RecursionError):
                    error = {"code": -32700, "message": "Parse error: not a line of JSON"}
                    await self._write({"jsonrpc": "2.0", "id": None, "error": error})
                    continue
                fields = cast(dict[str, Any], message) if isinstance(message, dict) else {}
                if fields.get("method") in ("initialize", "notifications/initialized"):
                    await self._pass(fields, line)  # what follows needs what they settle
                else:
                    tasks.start_soon(self._pass, fields, line)
            tasks.cancel_scope.cancel()
        if self._session:
            with anyio.move_on_after(2), _quiet():
                await self._http.delete(self._url, headers=self._session)

    async def _pass(self, message: Mapping[str, Any], line: bytes) -> None:
        """Send one message and write what comes back; a request is always answered."""
        ident, failure = message.get("id"), ""
        wanted = ident is not None and "method" in message
        try:
            status = await self._post(message, line)
            if status == 404 and self._hello is not None and message.get("method") != "initialize":
                await self._open_again()
                status = await self._post(message, line)
            if status >= 400:
                failure = f"the daemon answered with HTTP {status}"
        except httpx2.HTTPError as error:
            failure = f"the daemon cannot be reached ({type(error).__name__})"
        if failure and wanted:
            error = {"code": -32603, "message": failure}
            await self._write({"jsonrpc": "2.0", "id": ident, "error": error})

    async def _post(self, message: Mapping[str, Any], line: bytes) -> int:
        """POST one message; 0 where its answer has been written."""
        async with self._http.stream("POST", self._url, content=line, headers=self._headers(message)) as response:
            kind = response.headers.get("content-type", "")
            if message.get("method") == "initialize" and response.status_code == 200:
                self._hello = dict(message)
                self._session = _session_of(response)
            if kind.startswith(_STREAM):
                async for event in _events(response):
                    await self._received(message, event)
            else:
                body = await response.aread()
                frame = _frame(body)
                if frame is None or ("result" not in frame and "error" not in frame) or frame.get("id") is None:
                    return 0 if response.status_code < 400 else response.status_code
                await self._received(message, frame)
        if message.get("method") == "notifications/initialized" and self._session:
            self._tasks.start_soon(self._listen)
        return 0

    async def _received(self, message: Mapping[str, Any], frame: dict[str, Any]) -> None:
        result = frame.get("result")
        if message.get("method") == "initialize" and isinstance(result, dict):
            version = cast(dict[str, Any], result).get("protocolVersion")
            if isinstance(version, str) and self._session:
                self._session["mcp-protocol-version"] = version
        await self._write(frame)

    def _headers(self, message: Mapping[str, Any]) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": f"application/json, {_STREAM}"}
        params = message.get("params")
        fields = cast(dict[str, Any], params) if isinstance(params, dict) else {}
        meta = fields.get("_meta")
        version = cast(dict[str, Any], meta).get(_META) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            return headers | ({} if message.get("method") == "initialize" else self._session)
        headers |= {"mcp-protocol-version": version, "mcp-method": str(message.get("method"))}
        name = fields.get("name", fields.get("uri"))
        return headers | ({"mcp-name": _header(name)} if isinstance(name, str) else {})

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
            with _quiet():
                async with self._http.stream("GET", self._url, headers={**session, "accept": _STREAM}) as response:
                    if response.status_code != 200:
                        return
                    async for event in _events(response):
                        await self._write(event)
            await anyio.sleep(1)

    async def _write(self, frame: dict[str, Any]) -> None:
        text = json.dumps(frame, ensure_ascii=True, separators=(",", ":")) + "\n"
        async with self._out:
            await anyio.to_thread.run_sync(_put, text.encode())


def _put(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class _quiet:
    """The daemon going away ends a stream, and nothing else."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, httpx2.HTTPError)


async def _lines() -> AsyncIterator[bytes]:
    while line := await anyio.to_thread.run_sync(sys.stdin.buffer.readline, abandon_on_cancel=True):
        if line.strip():
            yield line


async def _events(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    """The messages of an event stream. (`aiter_lines` also cuts at U+2028, which JSON may hold.)"""
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (frame := _frame(line[5:])) is not None:
                yield frame


def _frame(data: bytes) -> dict[str, Any] | None:
    try:
        value: object = json.loads(data)
    except ValueError:
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _session_of(response: httpx2.Response) -> dict[str, str]:
    session = response.headers.get("mcp-session-id")
    return {"mcp-session-id": session} if session else {}


def _header(value: str) -> str:
    """A name as a header can hold it (2026-07-28: what is no plain ASCII travels as base64)."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?"):
        return value
    import base64

    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="
