#!/usr/bin/env python
"""A long run: does anything grow? Eight clients of one daemon over HTTP, and one over stdio with a proxy of its own.

    python scripts/soak.py [--calls 1000000]

Each of nine clients has a connection and a session of its own and calls as fast as it is answered: mostly `echo`, now
and then a rich result, an error, 16 KB, progress, a search, a description and a cancelled call. The guard is on, with
policy, limits and audit. After the warm-up the run is cut into ten parts. Exit code 1 where the last is not as the
first:

- memory (RSS of each proxy with its helpers, without upstreams): at most 5 % and 2 MB more in the last part;
- descriptors: at most 8 more (a cancelled call closes its connection, and each client may be about to open one);
- latency of `echo`, p50 and p99: the best of the last three parts at most 1.25 and 2 times the worst of the first three
  (what grows stays grown; what a neighbour of the machine does, does not).

Linux.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_mcp import processes
from bench_mcp.blocks import percentile
from bench_mcp.clients import AnyClient, Gone, RpcError, opened
from bench_mcp.sessions import Session, session
from bench_mcp.targets import BY_NAME

PARTS = 10
HTTP_CLIENTS = 8
MEMORY_RATIO, MEMORY_MB = 1.05, 2.0
DESCRIPTORS = HTTP_CLIENTS
P50_RATIO, P99_RATIO = 1.25, 2.0
WINDOW = 3
"""Parts at each end that latencies are compared over."""


@dataclass(frozen=True)
class Part:
    """One tenth of the run, for one proxy."""

    rss: float
    pss: float
    """MB."""
    descriptors: int
    p50: float
    p99: float
    """ms."""
    calls: int


def judge(name: str, parts: Sequence[Part]) -> list[str]:
    """What grew from the first part to the last; empty where nothing did."""
    first, last = parts[0], parts[-1]
    wrong: list[str] = []
    if last.rss > first.rss * MEMORY_RATIO + MEMORY_MB:
        wrong.append(f"{name}: memory grew from {first.rss:.1f} to {last.rss:.1f} MB")
    if last.descriptors > first.descriptors + DESCRIPTORS:
        wrong.append(f"{name}: descriptors grew from {first.descriptors} to {last.descriptors}")
    for what, limit in (("p50", P50_RATIO), ("p99", P99_RATIO)):
        before = max(getattr(part, what) for part in parts[:WINDOW])
        after = min(getattr(part, what) for part in parts[-WINDOW:])
        if after > before * limit:
            wrong.append(f"{name}: {what} grew from {before:.2f} to {after:.2f} ms")
    return wrong


class Crowd:
    """The clients of one proxy."""

    def __init__(self, made: Session, clients: Sequence[AnyClient]) -> None:
        self.made, self._clients = made, clients
        self.errors = 0
        self._left = 0
        self._took: list[float] = []

    async def run(self, calls: int) -> Part:
        """So many calls, and how things stand then."""
        self._left, self._took = calls, []
        await asyncio.gather(*(self._client(client) for client in self._clients))
        assert self.made.pid is not None
        held = processes.memory(self.made.pid, self.made.mark)
        open_ = processes.descriptors(self.made.pid, self.made.mark)
        p50, p99 = (percentile(self._took, part) * 1e3 for part in (0.5, 0.99))
        return Part(held.rss, held.pss, open_, p50, p99, calls)

    async def _client(self, client: AnyClient) -> None:
        while self._left > 0:
            self._left -= 1
            number = self._left
            if number % 20:
                began = time.perf_counter()
                await self._call(client, "echo", {"nonce": f"n{number}"})
                self._took.append(time.perf_counter() - began)
            else:
                await self._odd(client, number // 20)

    async def _odd(self, client: AnyClient, number: int) -> None:
        match number % 10:
            case 0 | 1:
                await self._call(client, "rich", {})
            case 2 | 3:
                await self._call(client, "fail", {"message": "m"}, fails=True)
            case 4:
                await self._call(client, "big", {"kb": 16})
            case 5:
                steps: list[object] = []
                name, arguments = self.made.target.call.make("u1", "progress", {"steps": 2})
                await client.call(name, arguments, on_progress=steps.append)
                self.errors += len(steps) != 2
            case 6:
                await client.call("tool_search", {"query": f"account dns {number % 97}"})
            case 7:
                await client.call("tool_describe", {"name": "u1__echo"})
            case 8:
                await self._call(client, "no_such_tool", {}, fails=True)
            case _:
                await self._cancel(client)

    async def _call(self, client: AnyClient, tool: str, arguments: dict[str, object], *, fails: bool = False) -> None:
        name, given = self.made.target.call.make("u1", tool, arguments)
        result = await client.call(name, given)
        self.errors += bool(result.get("isError")) != fails

    async def _cancel(self, client: AnyClient) -> None:
        name, arguments = self.made.target.call.make("u1", "sleep", {"ms": 60_000})
        ident = next(client.ids)
        params = {"name": name, "arguments": arguments}
        call = asyncio.ensure_future(client.request("tools/call", params, ident=ident))
        await asyncio.sleep(0.002)
        await client.notify("notifications/cancelled", {"requestId": ident})
        await asyncio.sleep(0.002)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError, RpcError, Gone, OSError):
            await call


def show(name: str, number: int, part: Part, seconds: float) -> None:
    """One line of the table."""
    held = f"RSS {part.rss:6.1f}  PSS {part.pss:6.1f} MB  {part.descriptors:3} fds"
    took = f"p50 {part.p50:6.3f}  p99 {part.p99:7.3f} ms  {part.calls / seconds:7,.0f}/s"
    print(f"{name:7} {number:2} {part.calls:9,} calls  {held}  {took}", flush=True)


async def soak(calls: int, folder: Path) -> list[str]:
    """Run; what is wrong."""
    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(session(BY_NAME["ours-http-guarded"], 1, 100, folder / "http"))
        stdio = await stack.enter_async_context(session(BY_NAME["ours-guarded"], 1, 100, folder / "stdio"))
        clients = [http.clients[0]]
        for _ in range(HTTP_CLIENTS - 1):
            client = await stack.enter_async_context(opened(http.url))
            await client.initialize()
            clients.append(client)
        crowds = {"daemon": Crowd(http, clients), "stdio": Crowd(stdio, stdio.clients)}
        share = {"daemon": 8 / 9, "stdio": 1 / 9}
        parts: dict[str, list[Part]] = {name: [] for name in crowds}
        for number in range(PARTS + 1):
            size = calls // PARTS if number else max(calls // 20, 500)
            began = time.perf_counter()
            done = await asyncio.gather(*(crowd.run(int(size * share[name])) for name, crowd in crowds.items()))
            took = time.perf_counter() - began
            for name, part in zip(crowds, done, strict=True):
                show(name, number, part, took)
                if number:  # the first one warms up
                    parts[name].append(part)
        wrong = [line for name in crowds for line in judge(name, parts[name])]
        return wrong + [f"{name}: {crowd.errors} wrong answers" for name, crowd in crowds.items() if crowd.errors]


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    calls: int = parser.parse_args().calls
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        began = time.perf_counter()
        wrong = asyncio.run(soak(calls, Path(folder)))
    print("\n".join(wrong) if wrong else f"flat over {calls:,} calls, {time.perf_counter() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
