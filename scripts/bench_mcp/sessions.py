"""A target that is up: its upstreams, its process and a client that has shaken hands."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_mcp import processes
from bench_mcp.clients import AnyClient, Command, Gone, Message, RpcError, opened, spawn, stop
from bench_mcp.targets import FASTMCP, HERE, PEERS, ROOT, Target, write_config


@dataclass
class Session:
    """What a scenario measures."""

    target: Target
    servers: list[str]
    mark: str
    """Stands in the command line of each of the run's upstreams."""
    clients: list[AnyClient] = field(default_factory=list["AnyClient"])
    url: str = ""
    """Where further clients of an HTTP target can connect."""
    pid: int | None = None
    """Of the target; None for a direct connection."""
    init: float = 0.0
    """Seconds from the start to the answer of `initialize`."""
    listed: float = 0.0
    """... of `tools/list`."""
    ready: float = 0.0
    """... to the moment when an echo through every upstream has come back."""
    cpu_ready: float = 0.0
    """CPU seconds of the target until then."""
    tools: int = 0
    list_bytes: int = 0

    async def call(self, server: str, tool: str, args: Message, **more: Any) -> Message:
        """Call a tool of an upstream in the target's own way."""
        client, name, arguments = self.shaped(server, tool, args)
        return await client.call(name, arguments, **more)

    def shaped(self, server: str, tool: str, args: Message) -> tuple[AnyClient, str, Message]:
        """The client, the name and the arguments of such a call."""
        if self.target.direct:
            return self.clients[self.servers.index(server)], tool, args
        form = self.target.single if len(self.servers) == 1 and self.target.single else self.target.call
        name, arguments = form.make(server, tool, args)
        return self.clients[0], name, arguments

    def cpu(self) -> float:
        """CPU seconds of the target so far."""
        return processes.cpu(self.pid, self.mark) if self.pid else 0.0

    def memory(self) -> processes.Memory | None:
        """What the target holds."""
        return processes.memory(self.pid, self.mark) if self.pid else None


def new_mark() -> str:
    """One that no other run has."""
    return f"m{uuid.uuid4().hex[:10]}"


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _upstream(tools: int, label: str, mark: str, port: int = 0) -> list[str]:
    words = [sys.executable, processes.UPSTREAM, "--tools", str(tools), "--label", label, "--mark", mark]
    return [*words, "--http", str(port)] if port else words


async def wait_port(port: int, limit: float, process: asyncio.subprocess.Process | None = None) -> None:
    """Wait until something listens."""
    end = time.perf_counter() + limit
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            if process is not None and process.returncode is not None:
                raise Gone(f"exit {process.returncode} before listening") from None
            if time.perf_counter() > end:
                raise TimeoutError(f"nothing listens on {port} after {limit:g} s") from None
            await asyncio.sleep(0.02)


@asynccontextmanager
async def session(
    target: Target, servers: int, tools: int, work: Path, mark: str | None = None
) -> AsyncGenerator[Session]:
    """Start the upstreams and the target, shake hands, list, and wait until every upstream answers.

    `mark` is in the command lines of the upstreams: a proxy that remembers servers by these knows the same mark again.
    """
    work.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    log = str(work / f"{target.name}.log")
    mark = mark or new_mark()
    made = Session(target, [f"u{number + 1}" for number in range(servers)], mark)
    async with AsyncExitStack() as stack:
        upstreams = await _upstreams(target, made.servers, tools, mark, log, stack)
        began = time.perf_counter()
        if target.direct:
            places = [up["url"] if target.down == "http" else Command(up["argv"], log=log) for up in upstreams.values()]
            made.clients = [await stack.enter_async_context(opened(place)) for place in places]
            await asyncio.gather(*(client.initialize() for client in made.clients))
        else:
            made.clients = [await _target(made, upstreams, work, log, stack)]
        made.init = time.perf_counter() - began
        await _list(made)
        made.listed = time.perf_counter() - began
        await _wait_ready(made)
        made.ready, made.cpu_ready = time.perf_counter() - began, made.cpu()
        await _list(made)  # as the client sees it once everything is up
        try:
            yield made
        finally:
            stack.callback(_sweep, mark)


async def _list(made: Session) -> None:
    lists = await asyncio.gather(*(client.list_tools(made.target.timeout) for client in made.clients))
    made.tools, made.list_bytes = sum(len(found) for found, _ in lists), sum(size for _, size in lists)


async def _upstreams(
    target: Target, servers: list[str], tools: int, mark: str, log: str, stack: AsyncExitStack
) -> dict[str, dict[str, Any]]:
    if target.up == "stdio":
        return {name: {"argv": _upstream(tools, name, mark)} for name in servers}
    found: dict[str, dict[str, Any]] = {}
    for name in servers:
        port = free_port()
        process = await spawn(Command(_upstream(tools, name, mark, port), log=log), pipes=False)
        stack.push_async_callback(stop, process)
        await wait_port(port, 30, process)
        found[name] = {"url": f"http://127.0.0.1:{port}/mcp"}
    return found


async def _target(
    made: Session, upstreams: dict[str, dict[str, Any]], work: Path, log: str, stack: AsyncExitStack
) -> AnyClient:
    """Start the target; a client of it that has shaken hands."""
    target, port, config = made.target, free_port(), work / f"{made.target.name}.json"
    write_config(target, config, upstreams, work)
    first = next(iter(upstreams.values()))
    places = {
        "config": config, "port": port, "python": sys.executable, "here": HERE, "root": ROOT, "peers": PEERS,
        "fastmcp": FASTMCP, "work": work, "url": first.get("url", ""),
    }  # fmt: skip

    def fill(text: str) -> str:
        for key, value in places.items():
            text = text.replace("{" + key + "}", str(value))
        return text

    argv: list[str] = []
    for word in target.command:
        argv += first["argv"] if word == "*UP" else [fill(word)]
    command = Command(argv, {key: fill(value) for key, value in target.env.items()}, str(work), log)
    if target.down == "stdio":
        client = await stack.enter_async_context(opened(command))
        made.pid = client.process.pid
        await client.initialize(target.timeout)
        return client
    process = await spawn(command, pipes=False)
    made.pid = process.pid
    stack.push_async_callback(stop, process)
    await wait_port(port, target.timeout, process)
    made.url = f"http://127.0.0.1:{port}/mcp"
    return await _until(lambda: _shaken(made.url, stack), target.timeout, process)


async def _shaken(url: str, stack: AsyncExitStack) -> AnyClient:
    client = await stack.enter_async_context(opened(url))
    await client.initialize()
    return client


async def _until(attempt: Callable[[], Any], limit: float, process: asyncio.subprocess.Process) -> AnyClient:
    """Some listen before they can answer."""
    end = time.perf_counter() + limit
    while True:
        try:
            return await attempt()
        except (ConnectionError, RpcError, Gone):
            if process.returncode is not None or time.perf_counter() > end:
                raise
            await asyncio.sleep(0.03)


async def _wait_ready(made: Session) -> None:
    """Until an echo through every upstream has come back."""
    end = time.perf_counter() + made.target.timeout

    async def one(server: str) -> None:
        last = ""
        while time.perf_counter() < end:
            try:
                result = await made.call(server, "echo", {"nonce": f"ready-{server}"}, timeout=made.target.timeout)
                if not result.get("isError") and f"ready-{server}" in json.dumps(result):
                    return
                last = str(result)[:300]
            except (RpcError, TimeoutError, KeyError, TypeError) as error:
                last = repr(error)
            await asyncio.sleep(0.05)
        raise RuntimeError(f"{server} is not ready: {last}")

    if made.target.gentle and len(made.servers) > 1:
        for server in made.servers[:3]:
            await one(server)
    else:
        await asyncio.gather(*(one(server) for server in made.servers))


def _sweep(mark: str) -> None:
    """End upstreams of a finished run that outlived their proxy, found by the run's own mark."""
    for pid in processes.upstreams(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
