"""Short blocks of calls, and what a forwarded result keeps."""

import asyncio
import json
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench_mcp import catalog
from bench_mcp.clients import Message, RpcError
from bench_mcp.sessions import Session

MIB = 1 << 20
BLOCK_SECONDS = 5.0
"""The longest that a block may take."""


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which that part of `values` lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


@dataclass(frozen=True)
class Concurrent:
    """What a block of concurrent calls gave."""

    per_second: float
    seconds: float
    calls: int
    errors: int


async def sequential(session: Session, calls: int) -> list[float]:
    """The seconds of each of `calls` echoes, one after the other, round the upstreams."""
    took: list[float] = []
    end = time.perf_counter() + BLOCK_SECONDS
    servers = session.servers[:3] if session.target.gentle else session.servers
    for number in range(calls):
        began = time.perf_counter()
        result = await session.call(servers[number % len(servers)], "echo", {"nonce": f"n{number}"})
        now = time.perf_counter()
        if result.get("isError"):
            raise RuntimeError(f"echo failed: {str(result)[:200]}")
        took.append(now - began)
        if now > end:
            break
    return took


async def concurrent(
    session: Session, workers: int, calls: int, tool: str = "echo", args: Message | None = None
) -> Concurrent:
    """`calls` calls from `workers` tasks."""
    left = iter(range(calls))
    done = errors = 0
    end = time.perf_counter() + BLOCK_SECONDS

    async def work() -> None:
        nonlocal done, errors
        for number in left:
            server = session.servers[number % len(session.servers)]
            try:
                result = await session.call(server, tool, args or {"nonce": f"c{number}"})
                errors += bool(result.get("isError"))
            except (RpcError, TimeoutError):
                errors += 1
            done += 1
            if time.perf_counter() > end:
                return

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(workers)))
    took = time.perf_counter() - began
    return Concurrent(done / took, took, done, errors)


async def large(session: Session, *, up: bool, rounds: int = 5) -> float:
    """The best seconds of a call with 1 MiB of arguments (`up`) or of result."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        if up:
            result = await session.call(session.servers[0], "echo", {"nonce": "x" * MIB})
        else:
            result = await session.call(session.servers[0], "big", {"kb": 1024})
        best = min(best, time.perf_counter() - began)
        if (size := len(json.dumps(result))) < MIB:
            raise RuntimeError(f"the payload shrank to {size} bytes")
    return best


async def fidelity(session: Session, direct: Session) -> dict[str, Any]:
    """What arrives of content, structured content, `_meta`, errors, progress and a cancellation."""
    server = session.servers[0]

    async def both(tool: str, args: Message) -> tuple[Message, Message]:
        wanted = await direct.call(direct.servers[0], tool, args)
        try:
            return wanted, await session.call(server, tool, args, timeout=15)
        except Exception as error:
            return wanted, {"error": repr(error)}

    odd = {"nonce": "ünïcödé", "n": 1.0, "big": 12345678901234567890, "nested": {"a": [None, True]}}
    wanted, echoed = await both("echo", odd)
    same, (rich, got) = echoed.get("content") == wanted.get("content"), await both("rich", {})
    _, failed = await both("fail", {"message": "m"})
    keeps: dict[str, Any] = {
        "echo": same,
        "content": got.get("content") == rich["content"],
        "structured": got.get("structuredContent") == rich["structuredContent"],
        "meta": (got.get("_meta") or {}).get("bench/mark") == "kept",
        "isError": failed.get("isError") is True and "failed on purpose: m" in json.dumps(failed),
    }
    try:
        unknown = await session.call(server, "no_such_tool_here", {}, timeout=15)
        keeps["unknown"] = "isError" if unknown.get("isError") else "plain result"
    except RpcError as error:
        keeps["unknown"] = f"error {error.code}"
    steps: list[Message] = []
    await session.call(server, "progress", {"steps": 5}, timeout=15, on_progress=steps.append)
    keeps["progress"] = len(steps)
    keeps["cancel"] = await _cancel_arrives(session)
    return keeps


async def _cancel_arrives(session: Session) -> bool:
    """Whether the upstream hears that a call was cancelled."""
    server, ident = session.servers[0], 900_001
    client, name, arguments = session.shaped(server, "sleep", {"ms": 3000})
    before = await _cancelled(session)
    params = {"name": name, "arguments": arguments}
    call = asyncio.create_task(client.request("tools/call", params, 2.5, ident))
    await asyncio.sleep(0.2)  # it has to be on its way
    await client.notify("notifications/cancelled", {"requestId": ident, "reason": "bench"})
    arrived = False
    for _ in range(20):
        await asyncio.sleep(0.05)
        if arrived := await _cancelled(session) > before:
            break
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    return arrived


async def _cancelled(session: Session) -> int:
    stats = await session.call(session.servers[0], "stats", {}, timeout=10)
    found = re.search(r"cancelled\W+(\d+)", json.dumps(stats))
    return int(found[1]) if found else -1


async def searches(session: Session, tools: int) -> dict[str, Any]:
    """The time of searches over `tools` tools, in ms; `found` is a smoke check, not retrieval quality."""
    search = session.target.search
    assert search is not None
    took: list[float] = []
    sizes: list[int] = []
    hits = 0
    queries = catalog.queries(20, tools)
    for query, wanted in queries:
        name, arguments = search.make(query)
        began = time.perf_counter()
        result = await session.clients[0].call(name, arguments)
        took.append(time.perf_counter() - began)
        body = json.dumps(result)
        sizes.append(len(body))
        hits += wanted in body
    return {
        "search_first_ms": took[0] * 1e3,
        "search_p50_ms": percentile(took[1:], 0.5) * 1e3,
        "answer_bytes": int(statistics.median(sizes)),
        "found": f"{hits}/{len(queries)}",
    }
