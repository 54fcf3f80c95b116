#!/usr/bin/env python
"""What the search costs at 9,000 tools, and what its answers cost a model.

    python scripts/bench_search.py [--check]

Catalog: the two of `scripts/retrieval`, the demo's, and copies of the first under other server keys, one of them of
exactly 100 tools. Queries: the labelled ones. Prints the CPU of a cold build and of a build after the server of 100
tools changed, the memory of the index, the time of a query, and the median size of an answer (limit 5, over the two
labelled catalogs, o200k tokens). All times are CPU, so a busy machine does not change
them much. `--check` exits 1 where a figure is above its limit.
"""

import argparse
import gc
import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from eval_search import catalog_of, load

from proxy.bridge import search_answer
from proxy.catalog import Catalog, Server, make_server
from proxy.config import ServerConfig, ToolSearchConfig
from proxy.search import Index
from proxy.tokens.o200k import count_all

TOOLS = 9_000
CHANGED = "changed"
LIMITS: Mapping[str, float] = {
    "build cold, s CPU": 3.5,
    "rebuild after one server of 100, s CPU": 1.0,
    "memory of the index, MB": 100,
    "query p50, ms CPU": 2,
    "query p95, ms CPU": 5,
    "answer median, tokens": 600,
}


def servers() -> list[Server]:
    """Servers with `TOOLS` tools together, in the order of their making."""
    labelled, _ = load("all")
    demo = Path(__file__).resolve().parents[1] / "proxy" / "data" / "cloudflare.jsonl.gz"
    other = [json.loads(line)["tool"] for line in gzip.decompress(demo.read_bytes()).decode("utf-8").splitlines()]
    raws = {CHANGED: labelled[:100], "cloudflare": other}
    for tool in labelled:
        raws.setdefault(tool["server"], []).append(tool)
    missing = TOOLS - sum(map(len, raws.values()))
    for number in range(0, max(missing, 0), 200):
        raws[f"copy{number}"] = labelled[100 + number : 100 + number + min(200, missing - number)]
    return [make_server(ServerConfig(key, "stdio"), tools) for key, tools in raws.items()]


def changed(found: list[Server]) -> Catalog:
    """The same with another list of the server of 100 tools."""
    raw = [
        {**tool.raw, "description": f"{tool.description} Changed."}
        for s in found
        if s.key == CHANGED
        for tool in s.tools
    ]
    return Catalog([*(s for s in found if s.key != CHANGED), make_server(ServerConfig(CHANGED, "stdio"), raw)])


def cpu(what: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = what()
    return time.process_time() - start, found


def resident() -> float:
    """MB that this process holds in memory; 0 where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    figures: dict[str, float] = {}
    found = servers()
    catalog = Catalog(found)
    gc.collect()
    before = resident()
    figures["build cold, s CPU"], index = cpu(lambda: Index(catalog))
    gc.collect()
    figures["memory of the index, MB"] = resident() - before
    after = changed(found)
    figures["rebuild after one server of 100, s CPU"], index = cpu(lambda: Index(after, index.words))
    _, queries = load("all")
    texts = [query["query"] for query in queries]
    index.search(texts[0], 10)
    times: list[float] = []
    for text in texts:
        start = time.thread_time()
        index.search(text, 10)
        times.append((time.thread_time() - start) * 1e3)
    figures["query p50, ms CPU"] = statistics.median(times)
    figures["query p95, ms CPU"] = sorted(times)[int(len(times) * 0.95)]
    labelled = catalog_of(load("all")[0])
    union, settings = Index(labelled), ToolSearchConfig()
    answers = [
        search_answer({"query": text, "limit": 5}, labelled, union, settings, unavailable={})["content"][0]["text"]
        for text in texts
    ]
    sizes = sorted(count_all(answers))
    figures["answer median, tokens"] = statistics.median(sizes)
    print(f"{len(index.tools)} tools, {len(texts)} queries; answers: p95 {sizes[int(len(sizes) * 0.95)]} tokens")
    for name, limit in LIMITS.items():
        print(f"  {name:<40} {figures[name]:8.2f}   (at most {limit:g})")
    return 1 if check and any(figures[name] > limit for name, limit in LIMITS.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
