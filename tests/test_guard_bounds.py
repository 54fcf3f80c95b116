"""What whoever reaches the daemon can take from it: sessions, connections, time. All of it is bounded, and a client
that behaves is served meanwhile.
"""

import asyncio
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
import pytest
from guarded_house import MODERN, NAMED, OLD, PATIENCE, daemon, house, listening, upstream, write

from proxy.serving.connections import most_connections

ACCEPT = {"accept": "application/json, text/event-stream"}
HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": OLD, "capabilities": {}, "clientInfo": NAMED},
}
TOOL = {"name": "look", "description": "Look", "inputSchema": {"type": "object"}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Sessions.


@pytest.mark.parametrize("number", [1_000, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
async def test_sessions_that_nobody_ends_are_bounded_and_a_client_that_behaves_is_served(
    number: int, tmp_path: Path
) -> None:
    """Failure report X10."""
    limit = 40
    servers = {"s": upstream(tmp_path / "s", {"tools": [TOOL]})}
    path = write(tmp_path / "upstreams.yaml", servers, guard={"max_sessions": limit})
    async with house(path) as app, daemon(app) as front:
        open_ones: dict[str, Any] = app.server.sdk.session_manager._server_instances  # type: ignore[assignment]
        good = front.client(OLD)
        await good.hello()
        most = tasks = 0
        for opened in range(number):
            assert (await front.http.post("/mcp", json=HELLO, headers=ACCEPT)).status_code == 200
            if opened % 20 == 0:
                assert (await good.through("s__look"))["result"]["content"][0]["text"] == "ran look"
            most, tasks = max(most, len(open_ones)), max(tasks, len(asyncio.all_tasks()))
        assert most == limit
        assert tasks < 4 * limit + 40, "what a session needs is given back"
        assert len(app.server.sessions) <= limit and len(app.server.changes._clients) <= limit  # type: ignore[attr-defined]
        assert (await front.client(MODERN).through("s__look"))["result"]["content"][0]["text"] == "ran look"


@contextlib.contextmanager
def process(path: Path) -> Any:
    """A daemon of its own: (process, base address)."""
    words = [sys.executable, "-P", "-m", "proxy", "--http", "127.0.0.1:0", "--config", str(path)]
    environ = {**os.environ, "NARROW_WAIST_CACHE": str(path.parent / "cache")}
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=environ, text=True) as running:
        assert running.stderr is not None
        try:
            for line in running.stderr:
                if found := re.search(r"(http://[^/]+)/mcp", line):
                    yield running, found[1]
                    return
        finally:
            running.terminate()
            running.stderr.read()


def memory(pid: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process uses")
def test_ten_thousand_sessions_of_a_real_daemon(tmp_path: Path) -> None:
    """With the limits that hold where nothing is configured."""
    path = write(tmp_path / "upstreams.yaml", {"s": upstream(tmp_path / "s", {"tools": [TOOL]})})
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "s__look", "arguments": {}}}
    with process(path) as (running, base), httpx2.Client(base_url=base, headers=ACCEPT, timeout=PATIENCE) as client:
        good = {"mcp-session-id": client.post("/mcp", json=HELLO).headers["mcp-session-id"]}
        client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=good)
        start = descriptors = len(os.listdir(f"/proc/{running.pid}/fd"))
        sizes: list[int] = []
        for number in range(10_000):
            assert client.post("/mcp", json=HELLO).status_code == 200
            if number % 500 == 0:
                assert "ran look" in client.post("/mcp", json=call, headers=good).text
                sizes.append(memory(running.pid))
                descriptors = max(descriptors, len(os.listdir(f"/proc/{running.pid}/fd")))
        assert "ran look" in client.post("/mcp", json=call, headers=good).text
    assert descriptors <= start + 5
    # The first thousand may cost what a thousand sessions cost; the other nine nothing.
    assert sizes[-1] - sizes[0] < 120e6 and sizes[-1] - sizes[4] < 30e6, sizes


# Connections.


@asynccontextmanager
async def served(tmp_path: Path, **guard: Any) -> AsyncGenerator[int]:
    """A daemon on a real socket; its port."""
    servers = {"s": upstream(tmp_path / "s", {"tools": [TOOL]})}
    path = write(tmp_path / "upstreams.yaml", servers, guard=guard)
    async with house(path) as app, listening(app, token="the-token") as port:
        yield port


async def ask(port: int) -> int:
    """The status that a client with the token gets."""
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
        headers = {**ACCEPT, "authorization": "Bearer the-token"}
        return (await client.post("/mcp", json=HELLO, headers=headers)).status_code


async def rest(stream: anyio.abc.SocketStream) -> bytes:
    """What comes until the other side has closed; fails where it does not."""
    found = b""
    with anyio.fail_after(PATIENCE):
        with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                found += await stream.receive()
    return found


def head(*lines: str, token: str = "the-token") -> bytes:
    """The head of a POST that is not finished."""
    fixed = ("POST /mcp HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {token}")
    return "\r\n".join((*fixed, "content-type: application/json", f"accept: {ACCEPT['accept']}", *lines)).encode()


async def test_a_head_that_does_not_end_is_given_up_though_it_drips(tmp_path: Path) -> None:
    async with served(tmp_path, head_timeout=0.3) as port:
        ended = anyio.Event()
        async with await anyio.connect_tcp("127.0.0.1", port) as slow, anyio.create_task_group() as tasks:

            async def drip() -> None:
                await slow.send(head("x-slow: "))
                with contextlib.suppress(anyio.BrokenResourceError):
                    while not ended.is_set():
                        await slow.send(b"x")
                        with anyio.move_on_after(0.02):
                            await ended.wait()

            tasks.start_soon(drip)
            assert (await rest(slow)).startswith(b"HTTP/1.1 408 ")
            ended.set()
        assert await ask(port) == 200


async def test_the_second_head_of_a_connection_is_bounded_like_the_first(tmp_path: Path) -> None:
    async with served(tmp_path, head_timeout=0.3) as port, await anyio.connect_tcp("127.0.0.1", port) as slow:
        await slow.send(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert (await slow.receive()).startswith(b"HTTP/1.1 200")
        await slow.send(b"GET /health HTTP/1.1\r\nx-slow: ")
        assert b"HTTP/1.1" not in await rest(slow)


async def test_a_body_that_drips_on_after_its_answer_is_given_up(tmp_path: Path) -> None:
    async with served(tmp_path, head_timeout=0.3) as port:
        ended = anyio.Event()
        async with await anyio.connect_tcp("127.0.0.1", port) as slow, anyio.create_task_group() as tasks:
            await slow.send(head("content-length: 100000", "", "", token="wrong"))

            async def drip() -> None:
                with contextlib.suppress(anyio.BrokenResourceError):
                    while not ended.is_set():
                        await slow.send(b" ")
                        with anyio.move_on_after(0.02):
                            await ended.wait()

            tasks.start_soon(drip)
            assert b" 401 " in await rest(slow)
            ended.set()


@pytest.mark.parametrize("kind", ["silent", "in the head", "in the body"])
async def test_connections_that_wait_never_shut_a_client_out(kind: str, tmp_path: Path) -> None:
    start = {"silent": b"", "in the head": head("x-slow: "), "in the body": head("content-length: 9", "", "{")}[kind]
    async with served(tmp_path, max_connections=20, head_timeout=PATIENCE, body_timeout=PATIENCE) as port:
        async with contextlib.AsyncExitStack() as stack:
            streams: list[anyio.abc.SocketStream] = []
            for number in range(100):
                streams.append(await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)))
                if start:
                    await streams[-1].send(start)
                if number % 10 == 0:
                    assert await ask(port) == 200
            for stream in streams[:70]:
                await rest(stream)  # the oldest were closed to make room
            assert await ask(port) == 200


def test_the_limit_of_connections_leaves_descriptors_for_the_rest() -> None:
    assert 0 < most_connections() <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


# Requests.


async def test_who_is_refused_costs_nothing_and_others_are_served(tmp_path: Path) -> None:
    """Wrong token, no token, a foreign Host or Origin, a large body: none opens a session."""
    servers = {"s": upstream(tmp_path / "s", {"tools": [TOOL]})}
    path = write(tmp_path / "upstreams.yaml", servers, guard={"max_body": 2_000})
    async with house(path) as app, daemon(app, token="the-token") as front:
        right = {**ACCEPT, "authorization": "Bearer the-token"}
        large = json.dumps({**HELLO, "padding": "x" * 3_000})
        kind = {"content-type": "application/json"}
        for headers, body, status in (
            (ACCEPT, json.dumps(HELLO), 401),
            ({**ACCEPT, "authorization": "Bearer the-tokem"}, json.dumps(HELLO), 401),
            ({**ACCEPT, "authorization": "Basic the-token"}, json.dumps(HELLO), 401),
            ({**right, "host": "evil.example"}, json.dumps(HELLO), 421),
            ({**right, "origin": "https://evil.example"}, json.dumps(HELLO), 403),
            (right, large, 413),
        ):
            answer = await front.http.post("/mcp", content=body, headers={**headers, **kind})
            assert answer.status_code == status, headers
        for twice in ("host", "origin", "authorization", "mcp-session-id"):
            said = [*right.items(), *kind.items(), ("host", "127.0.0.1"), (twice, "127.0.0.1"), (twice, "evil.example")]
            answer = await front.http.post("/mcp", content=json.dumps(HELLO), headers=said)
            assert (answer.status_code, repr(twice) in answer.text) == (400, True), answer.text
        assert not app.server.sdk.session_manager._server_instances  # type: ignore[attr-defined]
        good = front.client(OLD, token="the-token")
        await good.hello()
        assert (await good.through("s__look"))["result"]["content"][0]["text"] == "ran look"
