#!/usr/bin/env python
"""What calls notice when one of many servers changes its list: the whole proxy in this process, at about 9,000 tools.

    python scripts/bench_rebuild.py [--check] [--dir FOLDER]

Catalog: that of `scripts/bench_search.py`, each of its servers a process of its own; `--dir` instead takes every
`*.json` of a folder (a list of tools, or an object with one) as a server, and the demo's catalog. While calls go
through one after the other and a heartbeat beats every millisecond, the server of 100 tools changes its list. Reported:
the longest call and the longest time that the event loop did not run (stall), without and with a change, and how long
it takes until the new listing and the new index are there. `--check` exits 1 where a call was blocked for more than
50 ms beyond the longest without a change.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bench_search
from bench_mcp import processes

from proxy.app import App
from proxy.caller import Caller
from proxy.config import load

CHANGED = bench_search.CHANGED
LIMIT_MS = 50.0
"""A call may be blocked for so long by a change."""
BEAT = 0.001
CALM = 2.0
"""Seconds that are watched without a change."""
RELIST = {"name": "relist", "description": "Read the list again", "inputSchema": {"type": "object"}}
ECHO = {"name": "echo", "description": "Answer with the arguments", "inputSchema": {"type": "object"}}


@dataclass
class Longest:
    """Of a time that was watched, in ms."""

    call: float = 0.0
    stall: float = 0.0
    calls: int = 0


def lists(folder: Path | None) -> dict[str, list[dict[str, Any]]]:
    """Server key -> raw tools."""
    if folder is None:
        found = {server.key: [dict(tool.raw) for tool in server.tools] for server in bench_search.servers()}
    else:
        found = {s.key: [dict(t.raw) for t in s.tools] for s in bench_search.servers() if s.key == "cloudflare"}
        for path in sorted(folder.glob("*.json")):
            value = json.loads(path.read_bytes())
            tools = value.get("tools") if isinstance(value, dict) else value
            if isinstance(tools, list):
                found[path.stem] = [tool for tool in tools if isinstance(tool, dict) and "name" in tool]
        first = max(found, key=lambda key: len(found[key]))
        found[CHANGED] = [{**tool, "name": f"other_{tool['name']}"} for tool in found[first][:100]]
    found[CHANGED] = [*found[CHANGED][:99], RELIST]
    found["calls"] = [ECHO]
    return found


def config(folder: Path, raw: Mapping[str, list[dict[str, Any]]]) -> Path:
    """A configuration of one process for each list."""
    servers: dict[str, Any] = {}
    for key, tools in raw.items():
        file = folder / f"{key}.tools"
        file.write_text(json.dumps(tools), encoding="utf-8")
        servers[key] = {"command": sys.executable, "args": [processes.UPSTREAM, "--list", str(file), "--label", key]}
    path = folder / "upstreams.yaml"
    path.write_text(json.dumps({"servers": servers, "first_list_wait": 60}), encoding="utf-8")
    return path


async def call(app: App, name: str) -> None:
    """One call through the bridge; it must succeed."""
    result = await app.call("tool_call", {"name": name, "arguments": {}}, {}, Caller("bench"))
    if result.get("isError"):
        raise RuntimeError(str(result))


@asynccontextmanager
async def watched(app: App) -> AsyncGenerator[Longest]:
    """Calls and a heartbeat while the block runs."""
    longest = Longest()

    async def calls() -> None:
        while True:
            began = time.perf_counter()
            await call(app, "calls__echo")
            longest.call = max(longest.call, (time.perf_counter() - began) * 1e3)
            longest.calls += 1
            await asyncio.sleep(BEAT)

    async def heart() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(BEAT)
            longest.stall = max(longest.stall, (time.perf_counter() - began - BEAT) * 1e3)

    tasks = [asyncio.create_task(calls()), asyncio.create_task(heart())]
    try:
        yield longest
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(path: Path, folder: Path, rounds: int) -> tuple[Longest, Longest, list[float]]:
    """Without a change, with `rounds` changes, and the seconds from each change to the new index and listing."""
    environ = {**os.environ, "NARROW_WAIST_CACHE": str(folder / "cache")}
    app = App(load(path, environ), environ, clients=0)
    async with app.running():
        await app.first_list()
        await app.tools("bench")
        await app.index()
        await app.counted()
        print(f"{len(app.catalog.tools):,} tools of {len(app.catalog.servers)} servers")
        async with watched(app) as calm:
            await asyncio.sleep(CALM)
        tools = json.loads((folder / f"{CHANGED}.tools").read_bytes())
        took: list[float] = []
        async with watched(app) as busy:
            for number in range(rounds):
                changed = [{**tool, "description": f"{tool['description']} Changed {number}."} for tool in tools[:-1]]
                (folder / f"{CHANGED}.tools").write_text(json.dumps([*changed, RELIST]), encoding="utf-8")
                before = app.catalog.hash
                await call(app, f"{CHANGED}__relist")
                while app.catalog.hash == before:  # noqa: ASYNC110
                    await asyncio.sleep(BEAT)
                began = time.perf_counter()
                await app.tools("bench")
                await app.index()
                took.append(time.perf_counter() - began)
                await app.counted()
                await app.tools("bench")
                await asyncio.sleep(0.3)
    return calm, busy, took


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rebuild-") as name:
        folder = Path(name)
        calm, busy, took = asyncio.run(measure(config(folder, lists(given.dir)), folder, given.rounds))
    for label, longest in (("without a change", calm), ("with changes", busy)):
        figures = f"longest call {longest.call:6.1f} ms, longest stall {longest.stall:6.1f} ms"
        print(f"{label:18} {figures}, {longest.calls} calls")
    print(f"new listing and index after {min(took):.2f} .. {max(took):.2f} s")
    blocked = busy.call - calm.call
    return 1 if given.check and blocked > LIMIT_MS else 0


if __name__ == "__main__":
    sys.exit(main())
