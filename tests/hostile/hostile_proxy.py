"""A proxy with hostile servers behind it and the SDK's client in front of it.

`in_process` runs the whole proxy in the test's own process, the client over JSON-RPC in memory: the same code as the
real thing but for the pipes. `process` is the real thing: `python -m proxy` over stdio. `http_server` starts a
hostile server that speaks HTTP.
"""

import contextlib
import inspect
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters

from proxy.app import App
from proxy.config import load
from proxy.upstream.connection import Connection

SERVERS = Path(__file__).parent / "servers"
ROOT = Path(__file__).parents[2]
PATIENCE = 20.0
"""Seconds any one wait of a test may take; far more than any takes, so that a loaded machine fails no test."""

Servers = Mapping[str, Mapping[str, Any]]


def hostile(script: str, *args: object, **config: Any) -> dict[str, Any]:
    """The config of the stdio server `servers/SCRIPT.py`."""
    return {"command": sys.executable, "args": [str(SERVERS / f"{script}.py"), *map(str, args)], **config}


GOOD = hostile("good")
"""A server without any fault: `echo` gives its argument `text` back."""


@dataclass
class Proxy:
    """What a test sees: the client, and of an in-process proxy its inside."""

    client: Client
    notifications: list[str] = field(default_factory=list[str])
    """Methods of the notifications the client has got."""
    inside: App | None = None

    @property
    def app(self) -> App:
        assert self.inside is not None
        return self.inside

    def connection(self, server: str) -> Connection:
        return self.app.fleet.connections[server]

    async def tried(self, *servers: str) -> None:
        """Wait until each server is ready, or one attempt has failed."""
        for server in servers or tuple(self.app.fleet.connections):
            with anyio.fail_after(PATIENCE):
                await self.connection(server).wait_tried()

    async def call(self, name: str, arguments: Any = None, **options: Any) -> types.CallToolResult:
        """Call an upstream's tool through the bridge."""
        with anyio.fail_after(PATIENCE):
            return await self.client.call_tool("tool_call", {"name": name, "arguments": arguments or {}}, **options)

    async def text(self, name: str, arguments: Any = None) -> str:
        """The text of a call that must succeed."""
        result = await self.call(name, arguments)
        assert not result.is_error, text_of(result)
        return text_of(result)

    async def refusal(self, name: str, arguments: Any = None) -> str:
        """The text of a call that must fail."""
        result = await self.call(name, arguments)
        assert result.is_error, text_of(result)
        return text_of(result)

    async def search(self, query: str, **more: Any) -> dict[str, Any]:
        with anyio.fail_after(PATIENCE):
            return json.loads(text_of(await self.client.call_tool("tool_search", {"query": query, **more})))

    async def describe(self, *names: str) -> dict[str, Any]:
        with anyio.fail_after(PATIENCE):
            return json.loads(text_of(await self.client.call_tool("tool_describe", {"names": list(names)})))

    async def tools(self) -> bytes:
        """The whole `tools/list`, as bytes to compare."""
        with anyio.fail_after(PATIENCE):
            listed = await self.client.session.list_tools()
        return json.dumps([t.model_dump(mode="json", by_alias=True) for t in listed.tools]).encode()

    async def finds(self, query: str) -> set[str]:
        return {match["name"] for match in (await self.search(query))["matches"]}


def text_of(result: types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


def write_config(folder: Path, servers: Servers, **root: Any) -> Path:
    path = folder / "upstreams.yaml"
    path.write_text(json.dumps({"servers": servers, **root}), encoding="utf-8")
    return path


def environment(folder: Path) -> dict[str, str]:
    """Nothing of the person who runs the tests is read or written."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "NARROW_WAIST_CACHE": str(folder / "cache")}


@asynccontextmanager
async def in_process(
    folder: Path, servers: Servers, *, mode: str = "legacy", environ: Mapping[str, str] | None = None, **root: Any
) -> AsyncGenerator[Proxy]:
    """The proxy in this process."""
    variables = {**environment(folder), **(environ or {})}
    # Estimated tokens: exact ones cost a child process in every test, and no test here is about them.
    root = {"tool_search": {"tokenizer": "estimate"}, **root}
    app = App(load(write_config(folder, servers, **root), variables), variables)
    notifications: list[str] = []
    async with app.running(), Client(app.server.sdk, mode=mode, message_handler=_collector(notifications)) as client:
        yield Proxy(client, notifications, app)


@asynccontextmanager
async def process(
    folder: Path, servers: Servers, *, mode: str = "legacy", environ: Mapping[str, str] | None = None, **root: Any
) -> AsyncGenerator[Proxy]:
    """The proxy as its users start it."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "proxy", "--config", str(write_config(folder, servers, **root))],
        env={**environment(folder), **(environ or {})},
        cwd=ROOT,
    )
    notifications: list[str] = []
    async with Client(parameters, mode=mode, message_handler=_collector(notifications)) as client:
        yield Proxy(client, notifications)


def _collector(methods: list[str]) -> Any:
    async def collect(message: Any) -> None:
        if (method := getattr(message, "method", None)) is not None:
            methods.append(method)

    return collect


@dataclass
class HttpServer:
    """A hostile server that speaks HTTP."""

    port: int
    process: anyio.abc.Process

    def upstream(self, **config: Any) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.port}/mcp", **config}


@asynccontextmanager
async def http_server(script: str, *args: object) -> AsyncGenerator[HttpServer]:
    """Start `servers/SCRIPT.py` and wait until it listens."""
    command = [sys.executable, str(SERVERS / f"{script}.py"), *map(str, args)]
    async with await anyio.open_process(command, stderr=None) as running:
        try:
            assert running.stdout is not None
            line = b""
            with anyio.fail_after(PATIENCE):
                while not line.endswith(b"\n"):
                    line += await running.stdout.receive()
            yield HttpServer(int(line.split()[1]), running)
        finally:
            with contextlib.suppress(ProcessLookupError):
                running.kill()


async def eventually(condition: Callable[[], Any], patience: float = PATIENCE) -> None:
    """Wait until `condition` (a function, async or not) holds, for what tells nobody when it does."""
    with anyio.fail_after(patience):
        while True:
            held = condition()
            if await held if inspect.isawaitable(held) else held:
                return
            await anyio.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie, which in a container nobody may reap, does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return True


def pids_in(file: Path) -> list[int]:
    """The process ids that a server has written to a file, one a line, last word."""
    return [int(line.split()[-1]) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


class RawClient:
    """A client that shows every byte: what the SDK's models would drop or refuse is seen as it came."""

    def __init__(self, running: anyio.abc.Process) -> None:
        self.process = running
        self.messages: list[dict[str, Any]] = []
        self._next = 0
        self._buffer = b""

    async def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def begin(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request; `answer` waits for what comes back."""
        self._next += 1
        await self.send({"id": self._next, "method": method, "params": params or {}})
        return self._next

    async def answer(self, ident: int) -> dict[str, Any]:
        """Read until the answer to that request is there; everything read is in `messages`."""
        assert self.process.stdout is not None
        with anyio.fail_after(PATIENCE):
            while True:
                for message in self.messages:
                    if message.get("id") == ident and "method" not in message:
                        return message
                while b"\n" not in self._buffer:
                    self._buffer += await self.process.stdout.receive()
                line, self._buffer = self._buffer.split(b"\n", 1)
                self.messages.append(json.loads(line))

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return await self.answer(await self.begin(method, params))

    async def call(self, name: str, arguments: Any = None) -> dict[str, Any]:
        """The result of a call through the bridge."""
        params = {"name": "tool_call", "arguments": {"name": name, "arguments": arguments or {}}}
        return (await self.request("tools/call", params))["result"]

    async def initialize(self) -> dict[str, Any]:
        info = {"name": "raw", "version": "0"}
        version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        result = await self.request("initialize", version)
        await self.send({"method": "notifications/initialized"})
        return result


@asynccontextmanager
async def raw_process(
    folder: Path, servers: Servers, *, environ: Mapping[str, str] | None = None, **root: Any
) -> AsyncGenerator[RawClient]:
    """The proxy as its users start it, with a client that shows every byte; the process may end before the block."""
    command = [sys.executable, "-m", "proxy", "--config", str(write_config(folder, servers, **root))]
    variables = {**environment(folder), **(environ or {})}
    async with await anyio.open_process(command, stderr=None, env=variables, cwd=ROOT) as running:
        try:
            client = RawClient(running)
            await client.initialize()
            yield client
        finally:
            if running.returncode is None and running.stdin is not None:
                await running.stdin.aclose()
                with anyio.move_on_after(PATIENCE, shield=True):
                    await running.wait()
