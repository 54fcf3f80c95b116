"""What is measured: each scenario gives one dict of figures per target, or `error` or `skipped`."""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_mcp import processes
from bench_mcp.blocks import concurrent, fidelity, large, percentile, searches, sequential
from bench_mcp.sessions import Session, new_mark, session
from bench_mcp.targets import BY_NAME, Target

Figures = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """How much is measured."""

    rounds: int = 8
    calls: int = 80
    """Of a block."""
    starts: int = 2
    wide_tools: int = 3300
    warm_up: int = 50
    limit: float = 150.0
    """Seconds that a scenario may take for one target."""
    most_upstreams: int = 120
    """Some proxies start all upstreams again on every call; this many end the scenario."""

    @classmethod
    def quick(cls) -> "Options":
        """Fewer rounds."""
        return cls(rounds=4, calls=50, starts=1)


async def duel(options: Options, targets: Sequence[Target], work: Path, *, keeps: bool = False) -> dict[str, Figures]:
    """Everything connected at the same time, short blocks in rotation: fair on a busy machine.

    `keeps` also looks at what forwarded results keep.
    """
    found: dict[str, Figures] = {target.name: {} for target in targets}
    async with AsyncExitStack() as stack:
        live: dict[str, Session] = {}
        for target in targets:
            try:
                made = await stack.enter_async_context(session(target, 1, 10, work / target.name))
                await sequential(made, options.warm_up)
                live[target.name] = made
            except Exception as error:
                found[target.name]["error"] = f"{type(error).__name__}: {error}"[:300]
        alone: dict[str, list[tuple[float, float, float]]] = {name: [] for name in live}
        crowd: dict[str, list[tuple[float, float]]] = {name: [] for name in live}
        for _ in range(options.rounds):
            for name, made in live.items():
                before = made.cpu()
                took = await sequential(made, options.calls)
                spent = (made.cpu() - before) / len(took)
                alone[name].append((percentile(took, 0.5), percentile(took, 0.95), spent))
            for name, made in live.items():
                before = made.cpu()
                block = await concurrent(made, 64, 4 * options.calls)
                crowd[name].append((block.per_second, (made.cpu() - before) / block.calls))
        for name, made in live.items():
            found[name] |= _duelled(alone[name], crowd[name], alone[made.target.base], crowd[made.target.base])
            if (held := made.memory()) is not None:
                found[name]["rss_mb"] = held.rss
            if keeps and made.pid is not None and "floor" not in name:
                found[name]["keeps"] = await fidelity(made, live[made.target.base])
    return found


def _duelled(
    alone: Sequence[tuple[float, float, float]],
    crowd: Sequence[tuple[float, float]],
    base: Sequence[tuple[float, float, float]],
    base_crowd: Sequence[tuple[float, float]],
) -> Figures:
    best = min(block[0] for block in alone)
    return {
        "p50_ms": best * 1e3,
        "added_ms": (best - min(block[0] for block in base)) * 1e3,
        "ratio": statistics.median(own[0] / other[0] for own, other in zip(alone, base, strict=True)),
        "p95_ms": min(block[1] for block in alone) * 1e3,
        "cpu_us": min(block[2] for block in alone) * 1e6,
        "per_second": max(block[0] for block in crowd),
        "of_direct": statistics.median(own[0] / other[0] for own, other in zip(crowd, base_crowd, strict=True)),
        "cpu_us_crowd": min(block[1] for block in crowd) * 1e6,
    }


async def latency(options: Options, target: Target, work: Path) -> Figures:
    """Concurrency, large payloads, what a result keeps, and how it ends; next to a direct connection."""
    found: Figures = {}
    async with session(BY_NAME[target.base], 1, 10, work / "base") as direct:
        context = session(target, 1, 10, work)
        made = await context.__aenter__()
        try:
            for each in (direct, made):
                await sequential(each, options.warm_up)
            sleeps: dict[str, list[float]] = {"": [], "direct_": []}
            for _ in range(3):
                for key, each in (("direct_", direct), ("", made)):
                    sleeps[key].append((await concurrent(each, 64, 64, "sleep", {"ms": 50})).seconds * 1e3)
            for key, times in sleeps.items():
                found[f"{key}sleep64_ms"] = min(times)
            for up, name in ((False, "down"), (True, "up")):
                plain = await large(direct, up=up)
                try:
                    own = await large(made, up=up)
                    found |= {f"mib_{name}_ms": own * 1e3, f"mib_{name}_ratio": own / plain}
                except Exception as error:
                    found[f"mib_{name}_error"] = f"{type(error).__name__}: {error}"[:100]
            if not target.direct:
                found["keeps"] = await fidelity(made, direct)
        finally:
            upstreams = processes.upstreams(made.mark)
            began = time.perf_counter()
            await context.__aexit__(None, None, None)
            found["stop_s"] = time.perf_counter() - began
        found["orphans"] = len(set(processes.upstreams(made.mark)) & set(upstreams))
    return found


async def cold(options: Options, target: Target, work: Path) -> Figures:
    """The start with 20 upstreams of 10 tools. The second start finds what the first has kept on disk."""
    return await _starts(options, target, work, 20, 10)


async def wide(options: Options, target: Target, work: Path) -> Figures:
    """One upstream with thousands of tools."""
    return await _starts(options, target, work, 1, options.wide_tools)


async def _starts(options: Options, target: Target, work: Path, servers: int, tools: int) -> Figures:
    if servers > 1 and not target.multi:
        return {"skipped": "one upstream only"}
    found: Figures = {}
    runs: list[Session] = []
    mark = new_mark()
    for number in range(options.starts + 1):
        async with session(target, servers, tools, work / f"start{number}", mark) as made:
            runs.append(made)
            if number == options.starts:
                found |= await _used(options, made, tools)
    first, later = runs[0], runs[1:]
    found |= {"first_list_s": first.listed, "first_ready_s": first.ready}
    for key in ("init", "listed", "ready", "cpu_ready"):
        found[f"{key}_s"] = min(getattr(made, key) for made in later)
    return found | {"tools": runs[-1].tools, "list_bytes": runs[-1].list_bytes}


async def _used(options: Options, made: Session, tools: int) -> Figures:
    began = time.perf_counter()
    await made.clients[0].list_tools(made.target.timeout)
    found: Figures = {"relist_ms": (time.perf_counter() - began) * 1e3}
    await sequential(made, 20)
    found["p50_ms"] = percentile(await sequential(made, 6 if made.target.gentle else 200), 0.5) * 1e3
    if not made.target.gentle:
        found["per_second"] = (await concurrent(made, 64, 4 * options.calls)).per_second
    if made.target.search is not None and tools > 1000:
        found |= await searches(made, tools)
        await asyncio.sleep(1)  # short-lived helpers of the target end
    if (held := made.memory()) is not None:
        found |= {"rss_mb": held.rss, "processes": held.processes}
    return found


SCENARIOS: Mapping[str, Callable[[Options, Target, Path], Awaitable[Figures]]] = {
    "lat": latency,
    "cold20": cold,
    "wide": wide,
}


async def guarded(options: Options, name: str, target: Target, work: Path) -> Figures:
    """One scenario of one target, in bounded time and with a bounded number of upstreams."""
    try:
        async with asyncio.timeout(options.limit):
            job = asyncio.ensure_future(SCENARIOS[name](options, target, work))
            try:
                while not (await asyncio.wait({job}, timeout=0.5))[0]:
                    if (count := len(processes.upstreams())) > options.most_upstreams:
                        raise RuntimeError(f"{count} upstream processes at once")
                return job.result()
            finally:
                job.cancel()
                await asyncio.gather(job, return_exceptions=True)
    except Exception as error:
        print(f"{name} {target.name}: {error!r}; see {work}", file=sys.stderr)
        return {"error": f"{type(error).__name__}: {error}"[:300]}
