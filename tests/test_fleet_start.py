"""When servers that were seen before are started: a few at once, many only when the first client has been answered; and
what becomes of calls when all end."""

import math
import os
import sys
from pathlib import Path

import anyio
import pytest

from proxy.caller import Caller
from proxy.config.settings import ServerConfig, Settings
from proxy.errors import UpstreamFailure
from proxy.upstream import connection as module
from proxy.upstream.discovery import Found
from proxy.upstream.fleet import Fleet
from proxy.upstream.snapshot import Entry, Snapshot

SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and message["method"] != "tools/call":
        known = {"initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}},
                 "tools/list": {"tools": [{"name": "t"}]}}.get(message["method"])
        answer = {"result": known} if known else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
PATIENCE = 10.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def fleet(folder: Path, number: int, *, start: str = "eager") -> Fleet:
    """That many servers, whose lists are known from an earlier start."""
    snapshot = Snapshot(folder)
    configs = tuple(
        ServerConfig(f"s{n}", "stdio", command=sys.executable, args=("-c", SERVER), start=start, launch_hash=f"{n:064}")  # type: ignore[arg-type]
        for n in range(number)
    )
    for config in configs:
        snapshot.save(config, Entry(Found(tools=[{"name": "t"}], capabilities={"tools": {}}), modern=False))
    return Fleet(Settings(servers=configs), {"PATH": os.environ["PATH"]}, snapshot)


@pytest.mark.parametrize(("number", "start", "at_once"), [(1, "eager", True), (2, "eager", False), (1, "lazy", False)])
async def test_as_many_as_leave_a_processor_free_are_started_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, start: str, at_once: bool
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(module, "START_DELAY", math.inf)
    servers = fleet(tmp_path, number, start=start)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        await anyio.wait_all_tasks_blocked()
        states = {connection.state for connection in servers.connections.values()}
        assert (states == {"known"}) != at_once, states
        with anyio.fail_after(PATIENCE):
            if not at_once:
                servers.start()  # the first client has been answered
            if start != "lazy":
                for connection in servers.connections.values():
                    await connection.wait_tried()
        states = {connection.state for connection in servers.connections.values()}
        assert states == ({"known"} if start == "lazy" else {"ready"})
        tasks.cancel_scope.cancel()


async def test_a_call_in_flight_at_the_end_is_told_that_the_proxy_stops(tmp_path: Path) -> None:
    """It was told, and audited, that "the connection could not be set up"."""
    servers = fleet(tmp_path, 1)
    told: list[UpstreamFailure] = []

    async def call() -> None:
        try:
            await servers.call_tool(servers.catalog.tools[0], {}, {}, Caller())
        except UpstreamFailure as failure:
            told.append(failure)

    async with anyio.create_task_group() as calls, anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        calls.start_soon(call)
        with anyio.fail_after(PATIENCE):
            await servers.connections["s0"].wait_tried()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert [(failure.reason, failure.may_have_run) for failure in told] == [("the proxy is stopping", True)]
