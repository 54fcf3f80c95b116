"""Progress and cancellation reach through (failure reports C1 and C2)."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from harness import (
    PATIENCE,
    SERVERS,
    Daemon,
    Place,
    http_server,
    proxy,
    python_server,
    until,
)
from mcp import Client
from raw_client import CLIENT, ERAS, RawClient, begin, connected, events, http, stdio

UPSTREAMS = ("raw-stdio", "sdk-stdio", "sdk-http", "sdk-http-legacy", "sdk-sse")
WAYS = list(product(("stdio", "http"), ERAS))


class Ledger:
    """What the upstreams wrote down; each waiting call appends to it."""

    def __init__(self, folder: Path) -> None:
        self.sdk, self.raw = folder / "sdk-ledger", folder / "raw" / "ledger"

    def waiting(self, upstream: str) -> int:
        """How many calls of `wait` have begun so far."""
        if upstream == "raw-stdio":
            return sum(m.get("params", {}).get("name") == "wait" for m in self._raw())
        return self._sdk().count("waiting")

    def cancelled(self, upstream: str) -> int:
        """How many of them were cancelled, under the id they came with."""
        if upstream == "raw-stdio":
            sent = {m["id"] for m in self._raw() if m.get("params", {}).get("name") == "wait"}
            given_up = [m["params"]["requestId"] for m in self._raw() if m["method"] == "notifications/cancelled"]
            assert set(given_up) <= sent, "the client's own request id was passed on"
            return len(given_up)
        return self._sdk().count("cancelled")

    def _sdk(self) -> list[str]:
        return self.sdk.read_text(encoding="utf-8").splitlines() if self.sdk.exists() else []

    def _raw(self) -> list[dict[str, Any]]:
        lines = self.raw.read_text(encoding="utf-8").splitlines() if self.raw.exists() else []
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def ledger(shared_place: Place) -> Ledger:
    return Ledger(shared_place.folder)


@pytest.fixture(scope="module")
def config(shared_place: Place, ledger: Ledger) -> Iterator[Path]:
    script = str(SERVERS / "sdk_server.py")
    with ExitStack() as stack:
        streamable = stack.enter_context(http_server(shared_place, sys.executable, script, str(ledger.sdk), "http"))
        sse = stack.enter_context(http_server(shared_place, sys.executable, script, str(ledger.sdk), "sse"))
        servers = {
            "raw-stdio": python_server("raw_server", str(ledger.raw.parent)),
            "sdk-stdio": python_server("sdk_server", str(ledger.sdk)),
            "sdk-http": {"url": f"http://127.0.0.1:{streamable}/mcp"},
            "sdk-http-legacy": {"url": f"http://127.0.0.1:{streamable}/mcp", "mode": "legacy"},
            "sdk-sse": {"url": f"http://127.0.0.1:{sse}/sse", "transport": "sse"},
        }
        yield shared_place.config(servers, first_list_wait=PATIENCE)


@pytest.fixture(params=WAYS, ids=["-".join(way) for way in WAYS], scope="module")
def client(request: pytest.FixtureRequest, shared_place: Place, config: Path, daemon: Daemon) -> Iterator[RawClient]:
    with connected(request.param, shared_place, config, daemon) as client:
        yield client


@pytest.mark.parametrize("bridge", [True, False], ids=["tool_call", "direct"])
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_all_progress_arrives_under_the_clients_token_and_before_the_result(
    client: RawClient, upstream: str, bridge: bool
) -> None:
    token = f"token-{upstream}-{bridge}"
    before = len(client.seen)
    send = client.through if bridge else client.call
    answer = send(f"{upstream}__count", {}, _meta={"progressToken": token})
    seen = client.seen[before:]
    steps = [m["params"] for m in seen if m.get("method") == "notifications/progress"]
    assert [(s["progressToken"], s["progress"], s["total"]) for s in steps] == [(token, n, 5.0) for n in range(1, 6)]
    assert [s["message"] for s in steps] == [f"step {n}" for n in range(1, 6)]
    assert seen[-1] == answer and not answer["result"].get("isError")
    if upstream == "raw-stdio":
        assert [s["x-own"] for s in steps] == [1, 2, 3, 4, 5], "an unknown field was lost"


def test_without_a_token_no_progress_is_sent(client: RawClient) -> None:
    before = len(client.seen)
    client.through("raw-stdio__count")
    assert not [m for m in client.seen[before:] if "method" in m]


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_cancelled_call_is_cancelled_at_the_upstream(client: RawClient, upstream: str, ledger: Ledger) -> None:
    waiting, cancelled = ledger.waiting(upstream), ledger.cancelled(upstream)
    with begin(client, f"{upstream}__wait"):
        until(lambda: ledger.waiting(upstream) > waiting, "the call reaches the upstream")
    until(lambda: ledger.cancelled(upstream) > cancelled, "the cancellation reaches the upstream")
    assert not client.through("raw-stdio__pid")["result"].get("isError"), "the connection did not survive"


def test_a_session_that_is_deleted_cancels_its_calls(daemon: Daemon, ledger: Ledger) -> None:
    waiting, cancelled = ledger.waiting("sdk-http"), ledger.cancelled("sdk-http")
    with http(daemon.url) as client:
        call = {"name": "tool_call", "arguments": {"name": "sdk-http__wait"}}
        with client.pending("tools/call", call, ident=77):
            until(lambda: ledger.waiting("sdk-http") > waiting, "the call reaches the upstream")
            assert client.http.delete(client.url, headers=client.session).status_code == 200
            until(lambda: ledger.cancelled("sdk-http") > cancelled, "the cancellation reaches the upstream")


def test_a_client_over_sse_that_vanishes_cancels_its_calls(daemon: Daemon, ledger: Ledger) -> None:
    waiting, cancelled = ledger.waiting("sdk-http"), ledger.cancelled("sdk-http")
    with httpx2.Client(timeout=PATIENCE) as client:
        with client.stream("GET", f"{daemon.base}/sse") as stream:
            incoming = events(stream)
            url = daemon.base + next(incoming)
            call = {"name": "tool_call", "arguments": {"name": "sdk-http__wait"}}
            hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": CLIENT}
            for message in (
                {"id": 1, "method": "initialize", "params": hello},
                {"method": "notifications/initialized"},
                {"id": 2, "method": "tools/call", "params": call},
            ):
                assert client.post(url, json={"jsonrpc": "2.0", **message}).status_code == 202
            until(lambda: ledger.waiting("sdk-http") > waiting, "the call reaches the upstream")
            assert json.loads(next(incoming))["id"] == 1
    until(lambda: ledger.cancelled("sdk-http") > cancelled, "the cancellation reaches the upstream")


def test_a_client_over_stdio_that_goes_away_cancels_its_calls(
    shared_place: Place, config: Path, ledger: Ledger
) -> None:
    waiting, cancelled = ledger.waiting("sdk-http"), ledger.cancelled("sdk-http")
    with stdio(shared_place, proxy("--config", str(config))) as client:
        client.start("tools/call", {"name": "tool_call", "arguments": {"name": "sdk-http__wait"}})
        until(lambda: ledger.waiting("sdk-http") > waiting, "the call reaches the upstream")
    until(lambda: ledger.cancelled("sdk-http") > cancelled, "the cancellation reaches the upstream")


async def in_thread(condition: Callable[[], bool], what: str) -> None:
    await anyio.to_thread.run_sync(until, condition, what)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_progress_and_cancel_of_the_sdks_client(mode: str, daemon: Daemon, ledger: Ledger) -> None:
    steps: list[float] = []
    fifth = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)
        if progress == 5:
            fifth.set()

    with anyio.fail_after(PATIENCE):
        async with Client(daemon.url, mode=mode) as client:
            arguments = {"name": "sdk-http__count", "arguments": {}}
            await client.call_tool("tool_call", arguments, progress_callback=on_progress)
            await fifth.wait()  # its callbacks may trail the result by a tick
            assert steps == [1, 2, 3, 4, 5]
            waiting, cancelled = ledger.waiting("sdk-http"), ledger.cancelled("sdk-http")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "tool_call", {"name": "sdk-http__wait", "arguments": {}})
                await in_thread(lambda: ledger.waiting("sdk-http") > waiting, "the call reaches the upstream")
                tasks.cancel_scope.cancel()
            await in_thread(lambda: ledger.cancelled("sdk-http") > cancelled, "the cancellation reaches the upstream")
