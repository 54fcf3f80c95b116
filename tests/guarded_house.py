"""A whole proxy in the test's own process, with its two front doors: what a start of it would cost is spared.

`stdio` speaks through the very reader, writer and door of `narrow-waist`, `http` to the very application of
`narrow-waist --http`, without pipes and sockets. Upstreams are real processes (guarded_upstream.py).
"""

import json
import math
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
from starlette.types import ASGIApp

from proxy.app import App
from proxy.config import GuardConfig, load
from proxy.guard.tokens import TokenFile
from proxy.server import StdioDoor
from proxy.serving.access import Doorkeeper
from proxy.serving.http import application, listener, serve_http
from proxy.serving.pipes import LineReader, LineWriter

OLD, MODERN = "2024-11-05", "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
NAMED = {"name": "guarded-client", "version": "1"}
PATIENCE = 30.0
Message = dict[str, Any]


def upstream(folder: Path, offers: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
    """Write what a server offers, and give its entry of the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "offers.json").write_text(json.dumps(offers), encoding="utf-8")
    script = str(Path(__file__).with_name("guarded_upstream.py"))
    # -I -S: nothing but the standard library is looked for, so that a start takes 15 ms.
    return {"command": sys.executable, "args": ["-I", "-S", script, str(folder)], "mode": "legacy", **keys}


def called(folder: Path) -> list[str]:
    """What a server was asked for, `method name`."""
    ledger = folder / "ledger"
    return ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []


def write(path: Path, servers: Mapping[str, Any], **root: Any) -> Path:
    """A configuration file. (Exact token counts would take a process.)"""
    common = {"first_list_wait": PATIENCE, "tool_search": {"tokenizer": "estimate"}}
    path.write_text(json.dumps({"servers": servers, **common, **root}), encoding="utf-8")
    path.chmod(0o600)
    return path


@asynccontextmanager
async def house(path: Path, clients: int | None = None, profiles: tuple[str, ...] = ()) -> AsyncGenerator[App]:
    """A running proxy; `clients` is 1 for stdio, None for a daemon.

    A daemon knows every server's list by now; over stdio servers wait for the client's hello.
    """
    environ = {"NARROW_WAIST_CACHE": str(path.parent / "cache"), "PATH": "/usr/bin:/bin", "HOME": str(path.parent)}
    app = App(load(path, environ, home=path.parent), environ, clients=clients, profiles=profiles)
    async with app.running():
        if clients is None:
            await app.fleet.wait_known(PATIENCE)
        yield app


class Client:
    """Bare JSON-RPC in one era."""

    def __init__(self, era: str, capabilities: Mapping[str, Any] | None = None) -> None:
        self.era, self.capabilities = era, dict(capabilities or {})
        self.ids = count(1)
        self.told: list[Message] = []
        """Notifications that came."""

    async def exchange(self, message: Message) -> Message:
        raise NotImplementedError

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """The answer, without its id."""
        fields = dict(params or {})
        if self.era == MODERN:
            envelope = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientInfo": NAMED}
            fields["_meta"] = {f"{PREFIX}clientCapabilities": self.capabilities, **envelope}
        with anyio.fail_after(PATIENCE):
            answer = await self.exchange({"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": fields})
        return {key: value for key, value in answer.items() if key != "id"}

    async def notify(self, method: str) -> None:
        raise NotImplementedError

    async def hello(self) -> Message:
        if self.era == MODERN:
            return await self.request("server/discover")
        params = {"protocolVersion": OLD, "capabilities": self.capabilities, "clientInfo": NAMED}
        answer = await self.request("initialize", params)
        await self.notify("notifications/initialized")
        return answer

    async def call(self, name: str, arguments: Any = None, **params: Any) -> Message:
        return await self.request("tools/call", {"name": name, "arguments": arguments or {}, **params})

    async def through(self, name: str, arguments: Any = None, **params: Any) -> Message:
        return await self.call("tool_call", {"name": name, "arguments": arguments or {}}, **params)


class _Stdio(Client):
    def __init__(
        self, era: str, reader: LineReader, writer: LineWriter, capabilities: Mapping[str, Any] | None
    ) -> None:
        super().__init__(era, capabilities)
        self.reader, self.writer = reader, writer
        self.lines, self.received = anyio.create_memory_object_stream[bytes](math.inf)

    def write(self, data: bytes) -> None:
        self.lines.send_nowait(data)

    def send(self, message: Message) -> None:
        self.reader.data_received(json.dumps(message).encode() + b"\n")

    def ask(self, ident: int, name: str, arguments: Any, **meta: Any) -> None:
        """Send a call through the bridge, and do not wait for its answer."""
        params = {"name": "tool_call", "arguments": {"name": name, "arguments": arguments}, "_meta": meta}
        self.send({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params})

    async def next(self) -> Message:
        return json.loads(await self.received.receive())

    async def exchange(self, message: Message) -> Message:
        self.send(message)
        while True:
            answer = await self.next()
            if answer.get("id") == message["id"] and "method" not in answer:
                return answer
            self.told.append(answer)
            if "id" in answer:
                self.send({"jsonrpc": "2.0", "id": answer["id"], "result": self.answer_to(answer)})

    def answer_to(self, question: Message) -> Message:
        return {"action": "accept", "content": {}}

    async def notify(self, method: str) -> None:
        self.send({"jsonrpc": "2.0", "method": method})


@asynccontextmanager
async def stdio(app: App, era: str, capabilities: Mapping[str, Any] | None = None) -> AsyncGenerator[_Stdio]:
    """A client over stdio that has not said hello yet."""
    writer = LineWriter()
    reader = LineReader(writer)
    client = _Stdio(era, reader, writer, capabilities)
    writer.out = client
    server = app.server
    server.door = StdioDoor(server, writer.send_frame)
    reader.door = server.door.take
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.sdk.run, reader, writer, server.sdk.create_initialization_options())
        yield client
        reader.eof_received()
        await server.door.close()
        tasks.cancel_scope.cancel()
    client.lines.close()
    client.received.close()


class _Http(Client):
    def __init__(self, era: str, http: httpx2.AsyncClient, path: str, token: str | None) -> None:
        super().__init__(era)
        self.http, self.path = http, path
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    async def post(self, message: Message) -> httpx2.Response:
        headers = {"accept": "application/json, text/event-stream", **self.headers}
        if self.era == MODERN:
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
            params = message.get("params", {})
            if isinstance(name := params.get("name", params.get("uri")), str):
                headers["mcp-name"] = name
        response = await self.http.post(self.path, json=message, headers=headers)
        if session := response.headers.get("mcp-session-id"):
            self.headers["mcp-session-id"] = session
        return response

    async def exchange(self, message: Message) -> Message:
        response = await self.post(message)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            texts = [line[5:] for line in response.text.split("\n") if line.startswith("data:") and line[5:].strip()]
        else:
            assert response.text, (message, response.status_code)
            texts = [response.text]
        return next(m for m in map(json.loads, texts) if m.get("id") == message["id"])

    async def notify(self, method: str) -> None:
        assert (await self.post({"jsonrpc": "2.0", "method": method})).status_code == 202


@asynccontextmanager
async def listening(app: App, tokens: TokenFile | None = None, token: str | None = None) -> AsyncGenerator[int]:
    """The daemon of a running proxy on a real socket, in this process; its port."""
    if tokens is not None:
        tokens.look()
    sock = listener("127.0.0.1", 0)

    async def serve() -> None:
        await serve_http(
            app.server,
            sock,
            keeper=Doorkeeper(token, tokens, lambda: app.settings.profiles, app.narrowed),
            allowed_hosts=(),
            status=app.status,
            session_idle_timeout=app.settings.session_idle_timeout,
            limits=app.settings.guard or GuardConfig(),
        )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        port: int = sock.getsockname()[1]
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http:
            await http.get("/health")  # the socket listens already; this is answered once the daemon does
        yield port
        signal.raise_signal(signal.SIGTERM)


class Daemon:
    """The application of `narrow-waist --http`."""

    def __init__(self, app: App, asgi: ASGIApp, http: httpx2.AsyncClient) -> None:
        self.app, self.asgi, self.http = app, asgi, http

    def client(self, era: str, path: str = "/mcp", token: str | None = None) -> _Http:
        return _Http(era, self.http, path, token)


@asynccontextmanager
async def daemon(app: App, tokens: TokenFile | None = None, token: str | None = None) -> AsyncGenerator[Daemon]:
    """The front door over HTTP of a running proxy."""
    if tokens is not None:
        tokens.look()
    asgi = application(
        app.server,
        keeper=Doorkeeper(token, tokens, lambda: app.settings.profiles, app.narrowed),
        allowed_hosts=app.settings.allowed_hosts,
        status=app.status,
        session_idle_timeout=app.settings.session_idle_timeout,
        limits=app.settings.guard or GuardConfig(),
    )
    async with app.server.sdk.session_manager.run():
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(asgi), base_url="http://127.0.0.1", timeout=PATIENCE
        ) as http:
            yield Daemon(app, asgi, http)
