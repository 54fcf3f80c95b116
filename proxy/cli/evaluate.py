"""`eval`: how well the search finds the person's own tools, and for what is missed, what the ranking saw."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from proxy.app import App
from proxy.catalog import Catalog, NotFound
from proxy.cli.table import printed_table
from proxy.errors import NarrowWaistError
from proxy.search import Explanation, Index
from proxy.search.probing import Probe, probes
from proxy.tool import Tool

DEPTH = 50
"""How far down a missed tool is looked for."""
CUTS = (1, 5, 10)
_KINDS = {
    "name": "the name as words",
    "paraphrase": "in other words",
    "parameters": "by its parameters",
    "labelled": "from the file",
}
_TERMS = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one probe found."""

    probe: Probe
    found: tuple[tuple[Tool, float], ...]

    def recall(self, cut: int) -> float:
        """1 where one is enough and there; else the share of the wanted tools that are there."""
        first = {tool for tool, _ in self.found[:cut]}
        there = sum(tool in first for tool in self.probe.gold)
        return there / len(self.probe.gold) if self.probe.every else float(there > 0)


async def evaluate(app: App, options: argparse.Namespace) -> int:
    """Measure and print; 1 where there is nothing to measure."""
    if app.semantics is not None:
        await app.semantics.learned()
    index = await app.index()
    wanted, problems = _wanted(app.catalog, options)
    outcomes = [Outcome(probe, index.search(probe.query, DEPTH).matches) for probe in wanted]
    if not outcomes:
        sys.stderr.write("narrow-waist: there is nothing to measure: no tool is known, or no query names one\n")
        return 1
    missed = [outcome for outcome in outcomes if not outcome.recall(5)]
    if options.json:
        print(json.dumps(_as_json(index, outcomes, missed[: options.misses], problems), ensure_ascii=False, indent=1))
        return 0
    print(f"{len(index.tools)} tools, {len(outcomes)} queries{' by meaning too' if app.semantics is not None else ''}")
    printed_table([["queries", "", *(f"recall@{cut}" for cut in CUTS)], *_rows(outcomes)])
    for problem in problems:
        print(problem)
    if missed:
        shown = min(len(missed), options.misses)
        print(f"\n{len(missed)} queries find none of their tools among the first five; {shown} of them:")
    for outcome in missed[: options.misses]:
        _print_miss(index, outcome)
    return 0


def _wanted(catalog: Catalog, options: argparse.Namespace) -> tuple[list[Probe], list[str]]:
    if options.file is not None:
        return read_queries(Path(options.file), catalog)
    tools = [t for t in catalog.tools if options.server in (None, t.server)]
    step = max(1, -(-len(tools) // max(1, options.sample)))
    problems = [f"a sample: every {step}th tool (--sample)"] if step > 1 else []
    return probes(catalog, tools[::step]), problems


def read_queries(file: Path, catalog: Catalog) -> tuple[list[Probe], list[str]]:
    """The labelled queries of a JSON-lines file, and what is wrong with it.

    A line is `{"query": text, "gold": [names], "match": "any" or "all"}`; a name is any that is accepted for a call.

    Raises:
        NarrowWaistError: the file cannot be read, or a line is no such object.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NarrowWaistError(f"{file}: cannot be read ({error})") from None
    found: list[Probe] = []
    unknown: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        query, names, every = _query(line, f"{file}:{number}")
        tools: list[Tool] = []
        for name in names:
            try:
                tools.append(catalog.resolve(name))
            except NotFound:
                unknown.append(name)
        if tools:
            found.append(Probe(query, tuple(dict.fromkeys(tools)), "labelled", every))
    names = list(dict.fromkeys(unknown))
    told = f"no such tool, or more than one: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
    return found, [told] if names else []


def _query(line: str, where: str) -> tuple[str, list[str], bool]:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    entry = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    query, gold = entry.get("query"), entry.get("gold")
    names = cast(list[object], gold) if isinstance(gold, list) else [gold]
    if not isinstance(query, str) or not names or not all(isinstance(name, str) for name in names):
        raise NarrowWaistError(f'{where}: expected {{"query": "...", "gold": ["server/tool"]}}')
    return query, cast(list[str], names), entry.get("match") == "all"


def _rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    def row(label: str, of: Sequence[Outcome]) -> list[str]:
        return [label, str(len(of)), *(f"{fmean(o.recall(cut) for o in of):.3f}" for cut in CUTS)]

    kinds = [(text, [o for o in outcomes if o.probe.kind == kind]) for kind, text in _KINDS.items()]
    rows = [row(text, of) for text, of in kinds if of]
    return rows if len(rows) == 1 else [*rows, row("all", outcomes)]


def _print_miss(index: Index, outcome: Outcome) -> None:
    probe = outcome.probe
    print(f"\n  {probe.query!r}")
    ranks = {tool: rank for rank, (tool, _) in enumerate(outcome.found, 1)}
    for tool in probe.gold[:3]:
        place = f"rank {ranks[tool]}" if tool in ranks else f"not among the first {DEPTH}"
        print(f"    wanted {tool.public_name}: {place}; {explained(index.explain(probe.query, tool))}")
    for tool, _ in outcome.found[:2]:
        print(f"    found  {tool.public_name}: {explained(index.explain(probe.query, tool))}")
    if unmatched := index.search(probe.query, 1).unmatched:
        print(f"    no tool has: {', '.join(unmatched)}")


def explained(parts: Explanation) -> str:
    """One line of a score's parts: words, words as written, how much of the name is covered, meaning."""
    meaning = f" + meaning {parts.meaning:.2f}" if parts.meaning else ""
    if not parts.words and not parts.surface:
        return f"{parts.score:.2f} = no word in common{meaning}"
    words, surface = _terms(parts.words), sum(parts.surface.values())
    return f"{parts.score:.2f} = ({words} + as written {surface:.2f}) x name {parts.coverage:.2f}{meaning}"


def _terms(words: Mapping[str, float]) -> str:
    ordered = sorted(words.items(), key=lambda item: -item[1])
    more = [f"others {sum(value for _, value in ordered[_TERMS:]):.2f}"] if len(ordered) > _TERMS else []
    return " + ".join([*(f"{word} {value:.2f}" for word, value in ordered[:_TERMS]), *more]) or "0"


def _as_json(
    index: Index, outcomes: Sequence[Outcome], missed: Sequence[Outcome], problems: Sequence[str]
) -> dict[str, Any]:
    def recall(of: Sequence[Outcome]) -> dict[str, float]:
        return {f"recall@{cut}": round(fmean(o.recall(cut) for o in of), 4) for cut in CUTS}

    kinds = {kind: [o for o in outcomes if o.probe.kind == kind] for kind in _KINDS}
    return {
        "tools": len(index.tools),
        "queries": len(outcomes),
        **recall(outcomes),
        "kinds": {kind: {"queries": len(of), **recall(of)} for kind, of in kinds.items() if of},
        "notes": list(problems),
        "misses": [
            {
                "query": o.probe.query,
                "wanted": {t.public_name: explained(index.explain(o.probe.query, t)) for t in o.probe.gold},
                "found": {t.public_name: explained(index.explain(o.probe.query, t)) for t, _ in o.found[:5]},
            }
            for o in missed
        ],
    }
