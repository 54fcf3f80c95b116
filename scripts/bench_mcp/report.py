"""Figures as Markdown tables."""

from collections.abc import Mapping, Sequence
from typing import Any

Results = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Scenario -> target -> figures."""

_COLUMNS: Mapping[str, Sequence[tuple[str, str, int]]] = {
    "duel": (
        ("p50 ms", "p50_ms", 3), ("added ms", "added_ms", 3), ("x direct", "ratio", 2), ("p95 ms", "p95_ms", 2),
        ("CPU us/call", "cpu_us", 0), ("calls/s at 64", "per_second", 0), ("of direct", "of_direct", 2),
        ("CPU us at 64", "cpu_us_crowd", 0), ("RSS MB", "rss_mb", 0),
    ),
    "lat": (
        ("64 x 50 ms", "sleep64_ms", 0), ("direct", "direct_sleep64_ms", 0), ("1 MiB result ms", "mib_down_ms", 1),
        ("x direct", "mib_down_ratio", 2), ("1 MiB arguments ms", "mib_up_ms", 1), ("x direct", "mib_up_ratio", 2),
        ("stop s", "stop_s", 2), ("orphans", "orphans", 0),
    ),
    "cold20": (
        ("first tools/list s", "first_list_s", 2), ("initialize s", "init_s", 2), ("tools/list s", "listed_s", 2),
        ("ready s", "ready_s", 2), ("CPU s", "cpu_ready_s", 2), ("tools shown", "tools", 0),
        ("list bytes", "list_bytes", 0), ("RSS MB", "rss_mb", 0), ("round-robin p50 ms", "p50_ms", 2),
        ("calls/s at 64", "per_second", 0),
    ),
    "wide": (
        ("first ready s", "first_ready_s", 2), ("ready s", "ready_s", 2), ("CPU s", "cpu_ready_s", 2),
        ("tools shown", "tools", 0), ("list bytes", "list_bytes", 0), ("relist ms", "relist_ms", 1),
        ("call p50 ms", "p50_ms", 2), ("RSS MB", "rss_mb", 0), ("first search ms", "search_first_ms", 1),
        ("search p50 ms", "search_p50_ms", 2), ("answer bytes", "answer_bytes", 0), ("found", "found", 0),
    ),
}  # fmt: skip
_TITLES: Mapping[str, str] = {
    "duel": "duel: 1 upstream x 10 tools, all at once, blocks in rotation",
    "lat": "lat: concurrency, large payloads, the end",
    "cold20": "cold20: 20 upstreams x 10 tools; all but the first column with a warm snapshot",
    "wide": "wide: 1 upstream with thousands of tools; all but the first column with a warm snapshot",
}
_KEEPS = ("echo", "content", "structured", "meta", "isError", "unknown", "progress", "cancel")


def markdown(results: Results, head: str, versions: Mapping[str, str], skipped: Mapping[str, str]) -> str:
    """All tables."""
    parts = [head]
    for name, found in results.items():
        parts += [f"### {_TITLES[name]}", _scenario(name, found)]
        if kept := {target: figures["keeps"] for target, figures in found.items() if "keeps" in figures}:
            rows = [[target, *(str(keeps.get(key, "")) for key in _KEEPS)] for target, keeps in kept.items()]
            parts += ["What a forwarded result keeps (progress: of 5):", _table(["target", *_KEEPS], rows)]
    if versions:
        parts.append("Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    if skipped:
        parts.append("Skipped: " + "; ".join(f"{name}, {why}" for name, why in skipped.items()) + ".")
    return "\n\n".join(parts)


def _scenario(name: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    columns = _COLUMNS[name]
    rows: list[list[str]] = []
    for target, figures in found.items():
        if why := figures.get("error") or figures.get("skipped"):
            rows.append([target, str(why)[:100].replace("|", "/"), *[""] * (len(columns) - 1)])
        else:
            rows.append([target, *(_number(figures.get(key), digits) for _, key, digits in columns)])
    return _table(["target", *(title for title, _, _ in columns)], rows)


def _number(value: object, digits: int) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,.{digits}f}"
    return "" if value is None else str(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
