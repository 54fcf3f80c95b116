"""Raw MCP clients over stdio and Streamable HTTP with one interface, small enough to add little to what is measured."""

import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PROTOCOL = "2025-11-25"
LIMIT = 1 << 28
Message = dict[str, Any]


class RpcError(Exception):
    """The server answered with a JSON-RPC error, or with an HTTP status that is one."""

    def __init__(self, code: object, message: object) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Gone(Exception):
    """The server closed the connection or has exited."""


@dataclass
class Command:
    """A process to start."""

    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    log: str | None = None


def dumps(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


async def spawn(command: Command, *, pipes: bool = True) -> asyncio.subprocess.Process:
    """Start a process in a group of its own, with its stderr in a file."""
    err: Any = open(command.log, "ab") if command.log else asyncio.subprocess.DEVNULL  # noqa: ASYNC230
    try:
        return await asyncio.create_subprocess_exec(
            *command.argv,
            env={**os.environ, **command.env},
            cwd=command.cwd,
            start_new_session=True,
            limit=LIMIT,
            stdin=asyncio.subprocess.PIPE if pipes else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if pipes else err,
            stderr=err,
        )
    finally:
        if command.log:
            err.close()


async def stop(process: asyncio.subprocess.Process, grace: float = 3.0) -> float:
    """End a process group that we started: end of stdin, then TERM, then KILL. The seconds it took."""
    began = time.perf_counter()
    if process.stdin:
        process.stdin.close()
    for sig, wait in ((None, grace if process.stdin else 0), (signal.SIGTERM, grace), (signal.SIGKILL, grace)):
        if sig is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, sig)
        if wait and process.returncode is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), wait)
        if process.returncode is not None:
            break
    took = time.perf_counter() - began
    with suppress(ProcessLookupError):  # stragglers of the same group
        os.killpg(process.pid, signal.SIGKILL)
    return took


class Client:
    """JSON-RPC bookkeeping that both transports share."""

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.last_bytes = 0
        """Size of the last answer on the wire."""
        self._progress: dict[str, Callable[[Message], None]] = {}

    async def request(
        self, method: str, params: Message | None = None, timeout: float = 60.0, ident: int | None = None
    ) -> Message:
        """Send a request; its result. Raises RpcError, Gone or TimeoutError."""
        raise NotImplementedError

    async def notify(self, method: str, params: Message | None = None) -> None:
        """Send a notification."""
        raise NotImplementedError

    async def initialize(self, timeout: float = 60.0) -> Message:
        """The handshake."""
        info = {"name": "bench", "version": "1"}
        hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": info}
        result = await self.request("initialize", hello, timeout)
        await self.notify("notifications/initialized")
        return result

    async def list_tools(self, timeout: float = 120.0) -> tuple[list[Message], int]:
        """All pages of tools/list, and the bytes of the answers."""
        tools: list[Message] = []
        size, cursor = 0, None
        for _ in range(1000):
            result = await self.request("tools/list", {"cursor": cursor} if cursor else {}, timeout)
            size += self.last_bytes
            tools += result["tools"]
            cursor = result.get("nextCursor")
            if not cursor:
                break
        return tools, size

    async def call(
        self,
        name: str,
        arguments: Message,
        timeout: float = 60.0,
        on_progress: Callable[[Message], None] | None = None,
    ) -> Message:
        """One tools/call."""
        params: Message = {"name": name, "arguments": arguments}
        if on_progress is None:
            return await self.request("tools/call", params, timeout)
        token = f"p{next(self.ids)}"
        self._progress[token] = on_progress
        params["_meta"] = {"progressToken": token}
        try:
            return await self.request("tools/call", params, timeout)
        finally:
            del self._progress[token]

    def _told(self, message: Message) -> None:
        if message["method"] == "notifications/progress":
            heard = self._progress.get(message["params"].get("progressToken"))
            if heard is not None:
                heard(message["params"])


def result_of(message: Message) -> Message:
    """The result of an answer; raises RpcError."""
    if "error" in message:
        error = message["error"]
        raise RpcError(error.get("code"), error.get("message")) if isinstance(error, dict) else RpcError(None, error)
    if "result" not in message:
        raise RpcError(None, f"not a JSON-RPC answer: {str(message)[:200]}")
    return message["result"]


class StdioClient(Client):
    """Over the pipes of a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self.process = process
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ConnectionError, ValueError):
            while line := await self.process.stdout.readline():
                if line[:1] == b"{":
                    self._take(json.loads(line), len(line))
        for future in self._pending.values():
            if not future.done():
                future.set_exception(Gone(f"exit {self.process.returncode}"))
        self._pending.clear()

    def _take(self, message: Message, size: int) -> None:
        if "method" in message:
            if "id" in message:
                error = {"code": -32601, "message": "not supported"}
                self._write({"jsonrpc": "2.0", "id": message["id"], "error": error})
            else:
                self._told(message)
            return
        future = self._pending.pop(message.get("id", -1), None)
        if future and not future.done():
            self.last_bytes = size
            future.set_result(message)

    def _write(self, message: Message) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(dumps(message) + b"\n")

    async def request(
        self, method: str, params: Message | None = None, timeout: float = 60.0, ident: int | None = None
    ) -> Message:
        if self._reader.done():
            raise Gone(f"exit {self.process.returncode}")
        assert self.process.stdin is not None
        ident = next(self.ids) if ident is None else ident
        future = self._pending[ident] = asyncio.get_running_loop().create_future()
        self._write({"jsonrpc": "2.0", "id": ident, "method": method, "params": params or {}})
        await self.process.stdin.drain()
        try:
            async with asyncio.timeout(timeout):
                return result_of(await future)
        finally:
            self._pending.pop(ident, None)

    async def notify(self, method: str, params: Message | None = None) -> None:
        assert self.process.stdin is not None
        self._write({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})
        await self.process.stdin.drain()

    async def close(self) -> None:
        """End the process."""
        await stop(self.process)
        self._reader.cancel()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpClient(Client):
    """Streamable HTTP over kept-alive HTTP/1.1 connections; answers as JSON or as an event stream."""

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname or "", parts.port or 80, parts.path or "/"
        self._session: str | None = None
        self._version: str | None = None
        self._idle: list[Connection] = []

    async def initialize(self, timeout: float = 60.0) -> Message:
        result = await super().initialize(timeout)
        self._version = result["protocolVersion"]
        return result

    def _head(self, length: int) -> bytes:
        lines = [
            f"POST {self._path} HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {length}",
        ]
        if self._session:
            lines.append(f"Mcp-Session-Id: {self._session}")
        if self._version:
            lines.append(f"MCP-Protocol-Version: {self._version}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def _exchange(self, body: bytes, ident: int | None) -> Message | None:
        """One POST; the answer with that id, None for a notification."""
        while True:
            reused = bool(self._idle)
            connection = self._idle.pop() if reused else await self._connect()
            try:
                connection[1].write(self._head(len(body)) + body)
                head = (await connection[0].readuntil(b"\r\n\r\n")).decode("latin-1")
                break
            except (asyncio.IncompleteReadError, ConnectionError):
                connection[1].close()
                if not reused:  # a kept connection may have been dropped meanwhile; a new one may not
                    raise Gone("connection closed") from None
        keep = False
        try:
            status, headers = _parsed(head)
            self._session = headers.get("mcp-session-id", self._session)
            answer, data = None, b""
            if headers.get("content-type", "").startswith("text/event-stream"):
                async for event in _events(_parts(connection[0], headers)):
                    message = json.loads(event)
                    if "method" in message:
                        self._told(message)
                    elif message.get("id") == ident:
                        answer, self.last_bytes = message, len(event)
                keep = "chunked" in headers.get("transfer-encoding", "")
            else:
                data = b"".join([part async for part in _parts(connection[0], headers)])
                keep = headers.get("connection", "").lower() != "close"
                if data and "json" in headers.get("content-type", ""):
                    answer, self.last_bytes = json.loads(data), len(data)
            if status >= 400 and (answer is None or "error" not in answer):
                raise RpcError(status, f"HTTP {status} {data[:200]!r}")
            return answer
        finally:
            if keep:
                self._idle.append(connection)
            else:
                connection[1].close()

    async def _connect(self) -> Connection:
        return await asyncio.open_connection(self._host, self._port, limit=LIMIT)

    async def request(
        self, method: str, params: Message | None = None, timeout: float = 60.0, ident: int | None = None
    ) -> Message:
        ident = next(self.ids) if ident is None else ident
        body = dumps({"jsonrpc": "2.0", "id": ident, "method": method, "params": params or {}})
        async with asyncio.timeout(timeout):
            message = await self._exchange(body, ident)
        if message is None:
            raise Gone("no answer")
        return result_of(message)

    async def notify(self, method: str, params: Message | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}
        await self._exchange(dumps(message), None)

    async def close(self) -> None:
        """Close the idle connections."""
        for _, writer in self._idle:
            writer.close()


def _parsed(head: str) -> tuple[int, dict[str, str]]:
    first, *lines = head.split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
    return int(first.split(" ")[1]), headers


async def _parts(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body of a response as it comes."""
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    elif "content-length" in headers:
        if size := int(headers["content-length"]):
            yield await reader.readexactly(size)
    else:
        while data := await reader.read(1 << 16):
            yield data


async def _events(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each event of a stream."""
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (data := line[5:].strip()):
                yield data


AnyClient = StdioClient | HttpClient


@asynccontextmanager
async def opened(to: Command | str) -> AsyncGenerator[AnyClient]:
    """A client of a process to start, or of a URL; without the handshake."""
    client: AnyClient = StdioClient(await spawn(to)) if isinstance(to, Command) else HttpClient(to)
    try:
        yield client
    finally:
        await client.close()
