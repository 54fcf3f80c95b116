"""The client's pipe as the SDK's stream pair: bytes in, bytes out, no threads, lines of any length.

The wire is moved to private descriptors first; fd 0 then reads nothing and fd 1 writes to stderr, so that no stray
print and no child process can ever put a byte between two messages.
"""

import asyncio
import os
import stat
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Protocol, Self, cast

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from proxy.wire import Lines, decode, encode, encode_answer, read_modestly

READ_AHEAD = 256
"""Messages taken from the pipe ahead of the SDK; beyond it the client waits."""
MAX_LINE = 256 * 1024 * 1024
"""Bytes of one message."""
HIGH_WATER = 1024 * 1024
_CHUNK = 256 * 1024


class _Writer(Protocol):
    def write(self, data: bytes, /) -> object: ...


class LineReader(asyncio.Protocol):
    """The read side: lines to messages. A line that is no message is answered at once, as JSON-RPC asks."""

    def __init__(self, writer: "LineWriter") -> None:
        self._writer = writer
        self._lines = Lines(MAX_LINE)
        self.door: Callable[[bytes], bool] | None = None
        """Sees each line first; True if it has dealt with it."""
        self._ready: deque[SessionMessage] = deque()
        self._wake = anyio.Event()
        self._ended = False
        self._transport: asyncio.ReadTransport | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The pipe is open."""
        self._transport = cast(asyncio.ReadTransport, transport)
        read_modestly(transport)

    def data_received(self, data: bytes) -> None:
        """Take a chunk as it came."""
        for line, too_long in self._lines.feed(data):
            if too_long:
                self._writer.send_raw(_error(None, types.INVALID_REQUEST, f"Message longer than {MAX_LINE} bytes"))
            elif line.strip() and (self.door is None or not self.door(line)):
                self._line(line)
        if self._transport is not None and len(self._ready) > READ_AHEAD:
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """The client has closed its end."""
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """The pipe is closed."""
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._wake.set()

    def _line(self, line: bytes) -> None:
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            for each in _rescued(line):
                if isinstance(each, dict):
                    self._writer.send_raw(cast(dict[str, Any], each))
                else:
                    self._put(cast(types.JSONRPCMessage, each))
            return
        self._put(message)

    def _put(self, message: types.JSONRPCMessage) -> None:
        self._ready.append(SessionMessage(message))
        self._wake.set()

    # mcp.shared ReadStream

    async def receive(self) -> SessionMessage | Exception:
        """The next message; raises anyio.EndOfStream at the end."""
        while not self._ready:
            if self._ended:
                raise anyio.EndOfStream
            self._wake = anyio.Event()
            await self._wake.wait()
        message = self._ready.popleft()
        if self._transport is not None and len(self._ready) == READ_AHEAD // 2:
            self._transport.resume_reading()
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def frames(self) -> AsyncGenerator[dict[str, Any]]:
        """The messages as they are on the wire."""
        async for item in self:
            if isinstance(item, SessionMessage):
                yield item.message.model_dump(by_alias=True, exclude_unset=True)

    async def aclose(self) -> None:
        """End the stream."""
        self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class LineWriter(asyncio.BaseProtocol):
    """The write side: messages to lines."""

    def __init__(self) -> None:
        self._full: anyio.Event | None = None
        """While the pipe is full: set when it no longer is."""
        self.out: _Writer | None = None
        self.gone = anyio.Event()
        """Set when the client no longer reads."""

    def pause_writing(self) -> None:
        """The pipe is full."""
        self._full = anyio.Event()

    def resume_writing(self) -> None:
        """The pipe takes more."""
        if self._full is not None:
            self._full.set()
            self._full = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed its end."""
        self.gone.set()
        self.out = None
        self.resume_writing()

    def send_raw(self, message: dict[str, Any]) -> None:
        """Write a plain dict."""
        self._write(encode(message))

    async def send_frame(self, message: dict[str, Any]) -> None:
        """Write an answer, waiting while the pipe is full."""
        self._write(encode_answer(message))
        if self._full is not None:
            await self._full.wait()

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message, waiting while the pipe is full."""
        self._write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
        if self._full is not None:
            await self._full.wait()

    def _write(self, line: bytes) -> None:
        if self.out is None:
            raise anyio.BrokenResourceError
        self.out.write(line + b"\n")

    async def aclose(self) -> None:
        """Nothing to do: the pipe is closed with the process."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


def _rescued(line: bytes) -> list[object]:
    """What can still be made of a line that is not one message: a batch's messages, or the error to answer with."""
    try:
        value: object = decode(line)
    except (ValueError, RecursionError):
        return [_error(None, types.PARSE_ERROR, "Parse error: not a line of JSON")]
    frames: list[object] = cast(list[object], value) if isinstance(value, list) and value else [value]
    found: list[object] = []
    for frame in frames:
        try:
            found.append(types.jsonrpc_message_adapter.validate_python(frame, by_name=False))
        except ValidationError:
            ident = cast(dict[str, Any], frame).get("id") if isinstance(frame, dict) else None
            ident = ident if isinstance(ident, str | int) and not isinstance(ident, bool) else None
            found.append(_error(ident, types.INVALID_REQUEST, "Invalid request: not a JSON-RPC 2.0 message"))
    return found


def _error(ident: str | int | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": message}}


@asynccontextmanager
async def client_pipes() -> AsyncGenerator[tuple[LineReader, LineWriter]]:
    """Take over stdin and stdout of this process."""
    loop = asyncio.get_running_loop()
    wire_in, wire_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    writer = LineWriter()
    reader = LineReader(writer)
    async with anyio.create_task_group() as tasks:
        if _is_stream(wire_out):
            transport, _ = await loop.connect_write_pipe(lambda: writer, os.fdopen(wire_out, "wb", buffering=0))
            transport.set_write_buffer_limits(HIGH_WATER)
            writer.out = transport
        else:
            writer.out = os.fdopen(wire_out, "wb", buffering=0)
        if _is_stream(wire_in):
            await loop.connect_read_pipe(lambda: reader, os.fdopen(wire_in, "rb", buffering=0))
        else:
            tasks.start_soon(_feed_from_file, wire_in, reader)
        yield reader, writer
        tasks.cancel_scope.cancel()


def _is_stream(fd: int) -> bool:
    """Whether an event loop can wait on the descriptor; a redirected file cannot be waited on."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and os.isatty(fd))


async def _feed_from_file(fd: int, reader: LineReader) -> None:
    while data := await anyio.to_thread.run_sync(os.read, fd, _CHUNK, abandon_on_cancel=True):
        reader.data_received(data)
    reader.eof_received()
