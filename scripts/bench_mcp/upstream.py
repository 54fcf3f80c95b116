"""A synthetic upstream, standard library only, in the handshake era over stdio or Streamable HTTP.

It starts in tens of milliseconds and answers in tens of microseconds, so a proxy in front of it is measured with
little noise. Answers are plain JSON; an event stream only where progress is sent.

    python upstream.py --tools 100                # stdio
    python upstream.py --tools 100 --http 9001    # http://127.0.0.1:9001/mcp
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_mcp.catalog import make_tools

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LIMIT = 1 << 26
Message = dict[str, Any]
Notify = Callable[[str, Message], Awaitable[None]]


def dumps(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def text(value: str, **more: Any) -> Message:
    """A result with one block of text."""
    return {"content": [{"type": "text", "text": value}], **more}


async def say_nothing(_method: str, _params: Message) -> None:
    """For answers that can hold no notification."""


class App:
    """The server, whatever the transport."""

    def __init__(self, tools: list[Message], label: str, file: Path | None = None) -> None:
        """`file` holds the tools instead, as JSON; a call of `relist` reads it again and says that they changed."""
        self._label, self._file = label, file
        self._list = dumps({"tools": tools}) if file is None else b'{"tools":' + file.read_bytes() + b"}"
        self._running: dict[Any, asyncio.Future[bytes]] = {}
        self._stats: Message = {"calls": 0, "cancelled": 0, "lists": 0, "pid": os.getpid(), "label": label}

    async def _call(self, name: str, args: Message, token: object, notify: Notify) -> Message:
        self._stats["calls"] += 1
        if name == "echo":
            return text(json.dumps(args, ensure_ascii=False), isError=False)
        if name == "sleep":
            try:
                await asyncio.sleep(float(args.get("ms", 0)) / 1000)
            except asyncio.CancelledError:
                self._stats["cancelled"] += 1
                raise
            return text("slept")
        if name == "big":
            return text("0123456789abcdef" * 64 * int(args.get("kb", 1)))
        if name == "fail":
            return text(f"failed on purpose: {args.get('message', '')}", isError=True)
        if name == "progress":
            steps = int(args.get("steps", 5))
            for step in range(steps):
                if token is not None:
                    progress = {"progressToken": token, "progress": step + 1, "total": steps}
                    await notify("notifications/progress", progress)
                await asyncio.sleep(0.001)
            return text(f"{steps} steps")
        if name == "rich":
            return _rich()
        if name == "relist" and self._file is not None:
            self._list = b'{"tools":' + self._file.read_bytes() + b"}"
            await notify("notifications/tools/list_changed", {})
            return text("changed")
        if name == "stats":
            return text(json.dumps(self._stats))
        return text(json.dumps({"tool": name, "arguments": args}))

    async def cancellable(self, message: Message) -> bytes:
        """The answer to a request that another connection may cancel."""
        task = self._running[message["id"]] = asyncio.ensure_future(self.answer(message, say_nothing))
        try:
            return await task
        except asyncio.CancelledError:
            return dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32800, "message": "cancelled"}})
        finally:
            self._running.pop(message["id"], None)

    def cancel(self, ident: Any) -> None:
        """Cancel such a request."""
        if (task := self._running.get(ident)) is not None:
            task.cancel()

    async def answer(self, message: Message, notify: Notify) -> bytes:
        """The whole answer to a request."""
        method, params = message["method"], message.get("params") or {}
        head = b'{"jsonrpc":"2.0","id":' + dumps(message["id"])
        if method == "tools/call":
            token = (params.get("_meta") or {}).get("progressToken")
            try:
                result = await self._call(params["name"], params.get("arguments") or {}, token, notify)
            except (KeyError, TypeError, ValueError) as error:
                return head + b',"error":' + dumps({"code": -32602, "message": f"bad arguments: {error}"}) + b"}"
            return head + b',"result":' + dumps(result) + b"}"
        if method == "tools/list":
            self._stats["lists"] += 1
            return head + b',"result":' + self._list + b"}"
        if method == "initialize":
            asked = params.get("protocolVersion")
            hello = {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": self._label, "version": "1.0"},
            }
            return head + b',"result":' + dumps(hello) + b"}"
        if method == "ping":
            return head + b',"result":{}}'
        return head + b',"error":' + dumps({"code": -32601, "message": f"Method not found: {method}"}) + b"}"


def _rich() -> Message:
    return {
        "content": [
            {"type": "text", "text": "forty-two", "annotations": {"audience": ["user"]}},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "resource_link", "uri": "file:///x.txt", "name": "x.txt"},
        ],
        "structuredContent": {"answer": 42, "items": ["a", "b"]},
        "_meta": {"bench/mark": "kept"},
    }


async def serve_stdio(app: App) -> None:
    """Serve until the end of stdin."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    running: dict[Any, asyncio.Task[None]] = {}

    async def notify(method: str, params: Message) -> None:
        writer.write(dumps({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n")

    async def run(message: Message) -> None:
        try:
            writer.write(await app.answer(message, notify) + b"\n")
            await writer.drain()
        except asyncio.CancelledError:
            pass
        finally:
            running.pop(message["id"], None)

    while line := await reader.readline():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if "id" in message and "method" in message:
            running[message["id"]] = asyncio.create_task(run(message))
        elif message.get("method") == "notifications/cancelled":
            if (task := running.get(message["params"].get("requestId"))) is not None:
                task.cancel()


async def serve_http(app: App, port: int) -> None:
    """Serve for ever."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _exchange(app, reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", port, limit=LIMIT, backlog=256)
    async with server:
        await server.serve_forever()


async def _exchange(app: App, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """One request and its response; whether the connection goes on."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
    method, path = first.split(" ", 2)[:2]
    length = int(headers.get("content-length", 0))
    body = await reader.readexactly(length) if length else b""
    goes_on = headers.get("connection", "").lower() != "close"
    if path.split("?")[0] != "/mcp":
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        return goes_on
    if method != "POST":
        code = b"200 OK" if method == "DELETE" else b"405 Method Not Allowed"
        writer.write(b"HTTP/1.1 " + code + b"\r\nContent-Length: 0\r\n\r\n")
        return goes_on
    message = json.loads(body)
    if "id" not in message or "method" not in message:
        if message.get("method") == "notifications/cancelled":
            app.cancel(message["params"].get("requestId"))
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
    elif message["method"] == "tools/call" and message["params"].get("name") == "progress":
        head = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked"
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")

        def event(data: bytes) -> None:
            part = b"event: message\ndata: " + data + b"\n\n"
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))

        async def notify(method: str, params: Message) -> None:
            event(dumps({"jsonrpc": "2.0", "method": method, "params": params}))

        event(await app.answer(message, notify))
        writer.write(b"0\r\n\r\n")
    else:
        answer = await app.cancellable(message)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
        writer.write(head + answer)
    return goes_on


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=int, default=10)
    parser.add_argument("--label", default="bench-upstream")
    parser.add_argument("--http", type=int, default=0, help="port; without it stdio")
    parser.add_argument("--list", type=Path, help="a JSON file with the tools")
    given, _ = parser.parse_known_args()
    app = App(make_tools(given.tools), given.label, given.list)
    try:
        asyncio.run(serve_http(app, given.http) if given.http else serve_stdio(app))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
