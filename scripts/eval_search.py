#!/usr/bin/env python
"""Recall of the search on the labelled queries in `scripts/retrieval`.

    python scripts/eval_search.py [--scope mcp|api|all|heldout|stranger] [--check]
                                  [--baseline] [--semantic] [--misses N]

Prints recall@1, @5 and @10, MRR, the share of queries without any result, recall@5 by kind of query, exact-name
recall@1 (a tool's own name as the query), and the time of a build and of a query. The search was tuned on mcp and api;
heldout and stranger have more servers (those of `tests/catalogs`) and harder queries, written before the search was run
on them, stranger's by somebody who knew nothing of it; `scripts/retrieval` tells what was chosen by half of heldout.
match "any": one gold tool suffices; "all": share of the gold found.
`--baseline` measures rank-bm25 with our tokenizer too, `--semantic` the extra narrow-waist[semantic] (12 ms a tool to
embed, kept in `.cache`). `--check` fails when recall@5 on any file is more than half a point below the committed
figures.
"""

import argparse
import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "retrieval"
sys.path.insert(0, str(DATA.parent.parent))

from proxy.catalog import Catalog, make_server  # noqa: E402
from proxy.config import ServerConfig  # noqa: E402
from proxy.search import Index  # noqa: E402
from proxy.search.encoder import Encoder, installed  # noqa: E402
from proxy.search.semantic import Meaning, Vectors  # noqa: E402
from proxy.text import Tokenizer, normal_forms  # noqa: E402

COMMITTED = {"mcp": 0.925, "api": 0.952, "heldout": 0.632, "stranger": 0.54}
"""Recall@5 as committed. Raise it with the search; lower it only with a reason in the commit. heldout reaches .638; it
and stranger are small (one query is .6 points), and must not become files to tune on.
"""
TOLERANCE = 0.005

CATALOGS = DATA.parent.parent / "tests" / "catalogs"
CACHE = DATA.parent.parent / ".cache"

Search = Callable[[str, int], list[str]]


def load(scope: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tools and the labelled queries of one file pair, or of both."""
    tools: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    for part in ("mcp", "api") if scope == "all" else (scope,):
        if part in ("heldout", "stranger"):
            tools += real_tools()
        else:
            tools += json.loads(gzip.decompress((DATA / f"catalog_{part}.json.gz").read_bytes()))
        lines = gzip.decompress((DATA / f"queries_{part}.jsonl.gz").read_bytes()).decode()
        queries += map(json.loads, lines.splitlines())
    return tools, queries


def real_tools() -> list[dict[str, Any]]:
    """The tools of all the catalogs of the tests, as one proxy in front of those servers would have them."""
    lists = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))["tools"] for path in sorted(CATALOGS.glob("*.json"))
    }
    blank = {"description": "", "inputSchema": {}}
    return [{**blank, **tool, "server": server} for server, tools in lists.items() for tool in tools]


def catalog_of(tools: Sequence[dict[str, Any]]) -> Catalog:
    """The tools as a catalog."""
    servers: dict[str, list[dict[str, Any]]] = {}
    for tool in tools:
        servers.setdefault(tool["server"], []).append(tool)
    return Catalog(make_server(ServerConfig(key, "stdio"), raw) for key, raw in servers.items())


def ours(tools: Sequence[dict[str, Any]]) -> Search:
    index = Index(catalog_of(tools))
    return lambda query, limit: [f"{tool.server}/{tool.name}" for tool, _ in index.search(query, limit).matches]


def semantic(tools: Sequence[dict[str, Any]]) -> Search:
    index, encoder = Index(catalog_of(tools)), Encoder()
    kept = CACHE / f"eval-vectors-{len(tools)}.bin"
    vectors = Vectors.unpack(kept.read_bytes() if kept.exists() else b"")
    if missing := vectors.missing(index.tools):
        vectors = vectors.plus(missing, encoder.embed(missing).astype("float16"))
        CACHE.mkdir(exist_ok=True)
        kept.write_bytes(vectors.pack())
    index = index.with_meaning(Meaning(vectors, index.tools, encoder.embed))
    return lambda query, limit: [f"{tool.server}/{tool.name}" for tool, _ in index.search(query, limit).matches]


def baseline(tools: Sequence[dict[str, Any]]) -> Search:
    """rank-bm25 over one bag of words: name three times, description, parameter names."""
    import numpy as np
    from rank_bm25 import BM25Okapi

    tokenizer = Tokenizer()

    def bag(tool: dict[str, Any]) -> list[str]:
        parameters = " ".join(tool["inputSchema"].get("properties", ()))
        return normal_forms(
            tokenizer.words(f"{tool['server']} " + f"{tool['name']} " * 3 + f"{tool['description']} {parameters}")
        )

    ranker = BM25Okapi([bag(tool) for tool in tools])

    def search(query: str, limit: int) -> list[str]:
        scores = ranker.get_scores(normal_forms(tokenizer.words(query)))
        best = np.argsort(-scores, kind="stable")[:limit]
        return [f"{tools[n]['server']}/{tools[n]['name']}" for n in best if scores[n] > 0]

    return search


def recall(found: list[str], gold: list[str], match: str, k: int) -> float:
    hits = len(set(found[:k]) & set(gold))
    return float(hits > 0) if match == "any" else hits / len(set(gold))


def measure(label: str, scope: str, factory: Callable[[Sequence[dict[str, Any]]], Search], misses: int) -> float:
    """Print one table and return recall@5."""
    tools, queries = load(scope)
    start = time.process_time()
    search = factory(tools)
    build = time.process_time() - start
    at: dict[int, list[float]] = {1: [], 5: [], 10: []}
    reciprocal: list[float] = []
    times: list[float] = []
    missed: list[tuple[dict[str, Any], list[str]]] = []
    kinds: dict[str, list[float]] = {}
    empty = 0
    for query in queries:
        begun = time.perf_counter()
        found = search(query["query"], 10)
        times.append(time.perf_counter() - begun)
        empty += not found
        for k, values in at.items():
            values.append(recall(found, query["gold"], query["match"], k))
        rank = next((n for n, name in enumerate(found, 1) if name in query["gold"]), 0)
        reciprocal.append(1 / rank if rank else 0.0)
        kinds.setdefault(query["kind"], []).append(at[5][-1])
        if not at[5][-1]:
            missed.append((query, found[:3]))
    mean = statistics.fmean
    print(f"{label}, {scope}: {len(tools)} tools, {len(queries)} queries")
    table = "  ".join(f"R@{k} {mean(values):.3f}" for k, values in at.items())
    print(f"  {table}  MRR {mean(reciprocal):.3f}  empty {empty / len(queries):.3f}")
    print("  R@5 by kind: " + "  ".join(f"{kind} {mean(values):.2f} ({len(values)})" for kind, values in kinds.items()))
    slow = sorted(times)[int(len(times) * 0.95)]
    print(f"  build {build:.2f} s CPU, query p50 {statistics.median(times) * 1e3:.2f} ms, p95 {slow * 1e3:.2f} ms")
    by_name: dict[str, set[str]] = {}
    for tool in tools:
        by_name.setdefault(tool["name"].lower(), set()).add(f"{tool['server']}/{tool['name']}")
    sample = sorted(by_name)[:: max(1, len(by_name) // 500)]
    exact = [bool(set(search(name, 1)[:1]) & by_name[name]) for name in sample]
    print(f"  exact name R@1 {mean(exact):.3f} ({len(sample)} names)")
    for query, found in missed[:misses]:
        print(f"  miss {query['query']!r}: wanted {query['gold']}, got {found}")
    return mean(at[5])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scope", choices=("mcp", "api", "all", "heldout", "stranger"))
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--semantic", action="store_true")
    parser.add_argument("--misses", type=int, default=0)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    scopes = [args.scope] if args.scope else ["mcp", "api", "heldout", "stranger"]
    failed = False
    for scope in scopes:
        if args.baseline:
            measure("rank-bm25", scope, baseline, 0)
        if args.semantic and installed():
            measure("with meaning", scope, semantic, args.misses)
        elif args.semantic:
            print("semantic: skipped, the extra narrow-waist[semantic] is not installed")
        reached = measure("narrow-waist", scope, ours, args.misses)
        if args.check and scope in COMMITTED and reached < COMMITTED[scope] - TOLERANCE:
            print(f"FAILED: R@5 on {scope} is {reached:.3f}, committed {COMMITTED[scope]:.3f}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
