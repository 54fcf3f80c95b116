"""One proxy in this process with four ways in: stdio and HTTP, each through its short door and through the SDK alone.

Nothing in the product can close a door; the fronts here are put together like `serving` does it, with or without one.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp.server.transport_security import TransportSecuritySettings

from proxy.app import App
from proxy.config import load
from proxy.server import StdioDoor
from proxy.serving.http_door import HttpDoor
from proxy.serving.pipes import LineReader, LineWriter

OLD, MODERN = "2025-11-25", "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
PATIENCE = 10.0
Message = dict[str, Any]
CLIENT = {"name": "doors", "version": "1"}


@dataclass
class Answer:
    """What came back to one frame."""

    final: Message | None
    """The answer itself; None where there is none."""
    before: list[Message] = field(default_factory=list[Message])
    """What came during the call."""
    status: int = 200
    """Of HTTP."""


def declined(request: Message) -> bytes:
    """What a client answers that was asked for something it has not declared."""
    error = {"code": -32601, "message": "Method not found"}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()


class Front:
    """One way in, for a client of one era that has shaken hands."""

    def __init__(self, name: str, era: str) -> None:
        self.name, self.era = name, era

    def frame(self, ident: object, params: Mapping[str, Any], method: str = "tools/call") -> bytes:
        """A request as this client sends it."""
        if self.era == MODERN and "_meta" not in params:
            params = {**params, "_meta": {}}
        if self.era == MODERN and isinstance(params.get("_meta"), dict):
            own = {"protocolVersion": MODERN, "clientCapabilities": {}, "clientInfo": CLIENT}
            params = {**params, "_meta": {**{PREFIX + key: value for key, value in own.items()}, **params["_meta"]}}
        message = {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}
        return json.dumps(message, ensure_ascii=False).encode()

    async def send(self, frame: bytes, *, name: str = "", fenced: bool = False) -> Answer:
        """Send a frame and wait for its answer.

        `name` is what the headers say of a modern call. `fenced`: perhaps there is none; a later request's is waited
        for.
        """
        raise NotImplementedError

    async def cancelled(self, ident: int, params: Mapping[str, Any], begun: asyncio.Event) -> Answer:
        """Send a call, cancel it the client's way once it has begun upstream, and give what comes back."""
        raise NotImplementedError


class _Sink:
    """The client's end of our stdout."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()

    def write(self, data: bytes, /) -> None:
        for line in data.splitlines():
            self.messages.put_nowait(json.loads(line))


class StdioFront(Front):
    """Over the streams that `serve_stdio` gives the SDK."""

    def __init__(self, name: str, era: str, app: App, *, door: bool) -> None:
        super().__init__(name, era)
        self._writer = LineWriter()
        self._reader = LineReader(self._writer)
        self._sink = _Sink()
        self._writer.out = self._sink
        self._app = app
        app.server.door = StdioDoor(app.server, self._writer.send_frame) if door else None
        if app.server.door is not None:
            self._reader.door = app.server.door.take

    async def run(self) -> None:
        sdk = self._app.server.sdk
        await sdk.run(self._reader, self._writer, sdk.create_initialization_options())

    async def shake_hands(self) -> None:
        params = {"protocolVersion": self.era, "capabilities": {}, "clientInfo": CLIENT}
        method = "server/discover" if self.era == MODERN else "initialize"
        answer = await self.send(self.frame("hello", {} if self.era == MODERN else params, method))
        assert answer.final is not None and "result" in answer.final, answer
        if self.era == OLD:
            self._reader.data_received(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            await self._fence()
        assert self._app.server.door is None or self._app.server.door.is_open

    async def _fence(self) -> list[Message]:
        """What has come until a later request is answered."""
        method = "tools/list" if self.era == MODERN else "ping"
        self._reader.data_received(self.frame("fence", {}, method) + b"\n")
        came: list[Message] = []
        while (message := await self._next()).get("id") != "fence":
            came.append(message)
        return came

    async def _next(self) -> Message:
        async with asyncio.timeout(PATIENCE):
            return await self._sink.messages.get()

    async def send(self, frame: bytes, *, name: str = "", fenced: bool = False) -> Answer:
        self._reader.data_received(frame.replace(b"\n", b" ") + b"\n")
        if fenced:
            came = await self._fence()
            return Answer(came[-1] if came else None, came[:-1])
        before: list[Message] = []
        while "method" in (message := await self._next()):
            before.append(message)
            if "id" in message:
                self._reader.data_received(declined(message) + b"\n")
        return Answer(message, before)

    async def cancelled(self, ident: int, params: Mapping[str, Any], begun: asyncio.Event) -> Answer:
        self._reader.data_received(self.frame(ident, params) + b"\n")
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ident}}
        self._reader.data_received(json.dumps(cancel).encode() + b"\n")
        results = [m for m in await self._fence() if m.get("id") == ident and "result" in m]
        return Answer(results[0] if results else None)


class HttpFront(Front):
    """Straight into the ASGI application."""

    def __init__(self, name: str, era: str, asgi: Any) -> None:
        super().__init__(name, era)
        self._asgi = asgi
        self._session: dict[str, str] = {}

    async def shake_hands(self) -> None:
        params = {"protocolVersion": self.era, "capabilities": {}, "clientInfo": CLIENT}
        if self.era == OLD:
            answer = await self.send(self.frame("hello", params, "initialize"))
            assert answer.final is not None and "result" in answer.final, answer
            await self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
            # The door knows a session from the first request on that the SDK has seen.
            await self.send(self.frame("again", {}, "tools/list"))

    async def send(
        self, frame: bytes, *, name: str = "", fenced: bool = False, gone: asyncio.Event | None = None
    ) -> Answer:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        headers |= {"host": "127.0.0.1", "content-length": str(len(frame)), **self._session}
        if self.era == MODERN:
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": name}
        elif self._session:
            headers["mcp-protocol-version"] = OLD
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/mcp", "raw_path": b"/mcp", "query_string": b"", "root_path": "", "state": {},
            "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        parts: list[bytes] = []
        started: Message = {}
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if sent:
                await (gone or asyncio.Event()).wait()
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": frame, "more_body": False}

        async def write(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            else:
                parts.append(message.get("body", b""))
                for line in parts[-1].split(b"\n"):
                    if line.startswith(b"data: {") and {"id", "method"} <= (asked := json.loads(line[5:])).keys():
                        await self.send(declined(asked))

        async with asyncio.timeout(PATIENCE):
            await self._asgi(scope, receive, write)
        given = {key.decode().lower(): value.decode() for key, value in started.get("headers", ())}
        if (session := given.get("mcp-session-id")) is not None:
            self._session = {"mcp-session-id": session}
        body = b"".join(parts)
        texts = [body] if body else []
        if given.get("content-type", "").startswith("text/event-stream"):
            texts = [line[5:] for line in body.split(b"\n") if line.startswith(b"data:") and line[5:].strip()]
        messages: list[Message] = [json.loads(text) for text in texts]
        final = next((m for m in messages if "method" not in m), None)
        return Answer(final, [m for m in messages if m is not final], started.get("status", 0))

    async def cancelled(self, ident: int, params: Mapping[str, Any], begun: asyncio.Event) -> Answer:
        gone = asyncio.Event()
        call = asyncio.create_task(self.send(self.frame(ident, params), name=str(params["name"]), gone=gone))
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        if self.era == MODERN:
            gone.set()
        else:
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ident}}
            await self.send(json.dumps(cancel).encode())
        with suppress(TimeoutError):
            return await call
        return Answer(None)


class House:
    """The proxy and its ways in."""

    def __init__(self, app: App, folder: Path) -> None:
        self.app, self.folder = app, folder
        self.fronts: dict[str, Front] = {}
        self.short = 0
        """Calls so far that came through a short door."""

    def ledger(self, server: str = "raw") -> list[Message]:
        """Every message that the server has got."""
        path = self.folder / server / "ledger"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]  # the last one may be half written


@asynccontextmanager
async def house(folder: Path, config: Mapping[str, Any]) -> AsyncGenerator[House]:
    """A proxy with that configuration, all upstreams settled, and eight clients: four ways in, two eras."""
    path = folder / "upstreams.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    environ = {**os.environ, "NARROW_WAIST_CACHE": str(folder / "cache"), "HOME": str(folder)}
    app = App(load(path, environ), environ, clients=None, profiles=())
    made = House(app, folder)
    plain = app.server.call

    async def counted(*args: Any, **more: Any) -> dict[str, Any]:
        made.short += 1
        return await plain(*args, **more)

    app.server.call = counted  # type: ignore[method-assign]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.running())
        await app.fleet.wait_known(PATIENCE)
        await app.index()
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        # Host and Origin are checked by a layer in front of both.
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        sdk = app.server.sdk.streamable_http_app(transport_security=unchecked)
        await stack.enter_async_context(sdk.router.lifespan_context(sdk))
        door = HttpDoor(sdk, app.server, idle_timeout=1800.0, max_body=1 << 26)
        for era, label in ((OLD, "handshake"), (MODERN, "stateless")):
            for name, short in (("sdk", False), ("door", True)):
                stdio = StdioFront(f"stdio-{name}-{label}", era, app, door=short)
                tasks.start_soon(stdio.run)
                http = HttpFront(f"http-{name}-{label}", era, door if short else sdk)
                for front in (stdio, http):
                    await front.shake_hands()
                    made.fronts[front.name] = front
        made.short = 0
        yield made


def server(folder: Path, listed: list[Message], answers: Mapping[str, Message], **keys: Any) -> dict[str, Any]:
    """The config of an upstream without any SDK that lists these tools and gives these answers."""
    (folder / "answers").mkdir(parents=True)
    (folder / "tools.json").write_text(json.dumps(listed), encoding="utf-8")
    for name, answer in answers.items():
        text = json.dumps(answer, ensure_ascii=False)[1:-1]
        (folder / "answers" / f"{name}.json").write_text(text, encoding="utf-8")
    script = Path(__file__).parent / "e2e" / "servers" / "raw_server.py"
    return {"command": sys.executable, "args": [str(script), str(folder)], **keys}
