"""HTTP clients that come and are never heard of again, and those whose stream was cut on the way (X9, X10, X11)."""

import contextlib
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from hostile_proxy import GOOD, PATIENCE, ROOT, environment, hostile, pids_in, write_config

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "gone", "version": "0"}},
}  # fmt: skip


class Daemon:
    def __init__(self, url: str, pid: int) -> None:
        self.url, self.pid = url, pid

    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="utf-8").split()[1]) * 4096

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    async def session(self, client: httpx2.AsyncClient) -> str:
        """Open a session, list the tools in it, and say nothing more."""
        answer = await client.post(self.url, json=INITIALIZE, headers=HEADERS)
        session = answer.headers["mcp-session-id"]
        headers = {**HEADERS, "mcp-session-id": session}
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await client.post(self.url, json=note, headers=headers)
        listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await client.post(self.url, json=listed, headers=headers)).status_code == 200
        return session

    async def knows(self, client: httpx2.AsyncClient, session: str) -> bool:
        ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        headers = {**HEADERS, "mcp-session-id": session}
        return (await client.post(self.url, json=ping, headers=headers)).status_code != 404


@asynccontextmanager
async def daemon(folder: Path, **root: object) -> AsyncGenerator[Daemon]:
    config = write_config(folder, {"good": hostile("good", folder / "pids")}, **root)
    command = [sys.executable, "-m", "proxy", "--config", str(config), "--http", "127.0.0.1:0"]
    async with await anyio.open_process(command, env=environment(folder), cwd=ROOT) as running:
        try:
            assert running.stderr is not None
            said = ""
            with anyio.fail_after(PATIENCE):
                while (match := re.search(r"http://\S+/mcp", said)) is None:
                    said += (await running.stderr.receive()).decode()

            async def drain() -> None:
                assert running.stderr is not None
                with contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError):
                    while True:
                        await running.stderr.receive()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drain)
                yield Daemon(match[0], running.pid)
                tasks.cancel_scope.cancel()
        finally:
            running.terminate()
            with anyio.move_on_after(PATIENCE, shield=True):
                await running.wait()


async def come_and_go(server: Daemon, clients: int) -> str:
    """That many clients, ten at a time; returns the session of the last."""
    limit = anyio.Semaphore(10)
    last = ""

    async def one() -> None:
        nonlocal last
        async with limit, httpx2.AsyncClient(timeout=PATIENCE) as client:
            last = await server.session(client)

    async with anyio.create_task_group() as tasks:
        for _ in range(clients):
            tasks.start_soon(one)
    return last


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
async def test_500_clients_that_vanish_leave_nothing_behind(tmp_path: Path) -> None:
    """X10, X11: after the idle time-out neither memory nor descriptors have grown, and there is one server process."""
    async with daemon(tmp_path, session_idle_timeout=1) as server, httpx2.AsyncClient(timeout=PATIENCE) as client:

        async def settled(clients: int) -> int:
            session = await come_and_go(server, clients)
            with anyio.fail_after(PATIENCE):
                while await server.knows(client, session):  # noqa: ASYNC110
                    await anyio.sleep(1.5)  # asking counts as a request, so ask less often than the time-out
            return server.descriptors()

        before_fds = await settled(500)  # warm-up: caches and the allocator take what they need
        before = server.memory()
        after_fds = await settled(500)
        assert after_fds <= before_fds + 5
        # A session that stayed would cost over 50 KB: 25 MB for 500.
        assert server.memory() < before + 8_000_000
        assert len(pids_in(tmp_path / "pids")) == 1


async def test_a_session_that_is_used_outlives_the_idle_time_out(tmp_path: Path) -> None:
    async with daemon(tmp_path, session_idle_timeout=0.6) as server, httpx2.AsyncClient(timeout=PATIENCE) as client:
        session = await server.session(client)
        for _ in range(5):
            await anyio.sleep(0.3)
            assert await server.knows(client, session)


async def test_a_second_stream_replaces_the_first(tmp_path: Path) -> None:
    """X9: the client whose stream was cut is not refused because we still hold the old one."""
    async with daemon(tmp_path) as server, httpx2.AsyncClient(timeout=PATIENCE) as client:
        headers = {"accept": "text/event-stream", "mcp-session-id": await server.session(client)}
        ended = anyio.Event()

        async def first(opened: anyio.Event) -> None:
            with contextlib.suppress(httpx2.TransportError):
                async with client.stream("GET", server.url, headers=headers) as stream:
                    assert stream.status_code == 200
                    opened.set()
                    async for _ in stream.aiter_bytes():
                        pass
            ended.set()

        async with anyio.create_task_group() as tasks:
            opened = anyio.Event()
            tasks.start_soon(first, opened)
            with anyio.fail_after(PATIENCE):
                await opened.wait()
                async with client.stream("GET", server.url, headers=headers) as second:
                    assert second.status_code == 200
                    await ended.wait()
                # The session lives on without any stream.
                assert await server.knows(client, headers["mcp-session-id"])


def test_the_idle_time_out_is_a_positive_number(tmp_path: Path) -> None:
    from proxy.config import load
    from proxy.errors import ConfigError

    assert load(write_config(tmp_path, {"good": GOOD}, session_idle_timeout=2.5)).session_idle_timeout == 2.5
    for wrong in (0, -1, "soon"):
        with pytest.raises(ConfigError, match=r"session_idle_timeout|number"):
            load(write_config(tmp_path, {"good": GOOD}, session_idle_timeout=wrong))
