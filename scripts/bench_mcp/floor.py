"""Lower bounds for a Python stdio proxy: no SDK, no checks, nothing but the bytes.

pipe     copies lines both ways between the client and one upstream
bridge   three tools over several upstreams: parse, rewrite the id, unwrap tool_call, forward, write back
"""

import argparse
import asyncio
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMIT = 1 << 28
Message = dict[str, Any]


def _dumps(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


async def _stdio() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def _child(argv: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LIMIT
    )
    assert process.stdout is not None and process.stdin is not None
    return process.stdout, process.stdin


async def pipe(argv: Sequence[str]) -> None:
    """Copy lines until the client has closed its end."""

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while line := await source.readline():
            sink.write(line)
            await sink.drain()
        sink.close()

    reader, writer = await _stdio()
    out, into = await _child(argv)
    down = asyncio.create_task(pump(out, writer))
    await pump(reader, into)
    await down


class _Upstream:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        self.writer, self._reader, self._client = writer, reader, client
        self._ids = itertools.count(1)
        self._waiting: dict[int, Any] = {}
        """Our id -> the client's, or the future of a request of our own."""
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while line := await self._reader.readline():
            message = json.loads(line)
            if "method" in message:
                if message["method"] == "notifications/progress":
                    self._client.write(line)
                continue
            to = self._waiting.pop(message["id"], None)
            if isinstance(to, asyncio.Future):
                to.set_result(message["result"])
            elif to is not None:
                message["id"] = to
                self._client.write(_dumps(message))

    async def ask(self, method: str, params: Message) -> Message:
        future = asyncio.get_running_loop().create_future()
        self.forward(method, params, future)
        return await future

    def forward(self, method: str, params: Message, to: Any) -> int:
        ident = next(self._ids)
        self._waiting[ident] = to
        self.writer.write(_dumps({"jsonrpc": "2.0", "id": ident, "method": method, "params": params}))
        return ident


async def _connect(spec: Message, client: asyncio.StreamWriter) -> _Upstream:
    upstream = _Upstream(*await _child([spec["command"], *spec["args"]]), client)
    info = {"name": "floor", "version": "1"}
    await upstream.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
    upstream.writer.write(_dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    await upstream.ask("tools/list", {})
    return upstream


async def bridge(config: Path) -> None:
    """Serve until the client has closed its end."""
    servers: Message = json.loads(config.read_bytes())["mcpServers"]  # noqa: ASYNC240
    reader, writer = await _stdio()
    upstreams = dict(zip(servers, await asyncio.gather(*(_connect(s, writer) for s in servers.values())), strict=True))
    running: dict[Any, tuple[_Upstream, int]] = {}
    tools = [
        {"name": name, "description": name, "inputSchema": {"type": "object"}}
        for name in ("tool_search", "tool_describe", "tool_call")
    ]
    while line := await reader.readline():
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if method == "tools/call":
            wrapped = params["arguments"]
            server, _, tool = wrapped["name"].partition("_")
            forwarded: Message = {"name": tool, "arguments": wrapped.get("arguments") or {}}
            if "_meta" in params:
                forwarded["_meta"] = params["_meta"]
            upstream = upstreams[server]
            running[message["id"]] = upstream, upstream.forward(method, forwarded, message["id"])
        elif method == "notifications/cancelled" and params.get("requestId") in running:
            upstream, ident = running[params["requestId"]]
            upstream.writer.write(_dumps({"jsonrpc": "2.0", "method": method, "params": {"requestId": ident}}))
        elif method in ("initialize", "tools/list"):
            info = {"name": "floor", "version": "1"}
            hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            result = hello if method == "initialize" else {"tools": tools}
            writer.write(_dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    for upstream in upstreams.values():
        upstream.writer.close()


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("pipe", "bridge"))
    parser.add_argument("--config", type=Path)
    parser.add_argument("argv", nargs="*")
    given = parser.parse_args()
    asyncio.run(pipe(given.argv) if given.kind == "pipe" else bridge(given.config))


if __name__ == "__main__":
    main()
