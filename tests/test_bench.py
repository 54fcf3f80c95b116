"""The verdict of `scripts/bench --check`, on which CI relies, can fail; and the table of targets is whole."""

from copy import deepcopy
from typing import Any

import pytest
from bench_mcp.blocks import percentile
from bench_mcp.report import markdown
from bench_mcp.targets import BY_NAME, CHECKED, Call
from bench_mcp.verdict import judge

KEEPS: dict[str, Any] = {
    "echo": True, "content": True, "structured": True, "meta": True, "isError": True, "unknown": "isError",
    "progress": 5, "cancel": True,
}  # fmt: skip


def figures(ratio: float, cpu_us: float, **more: Any) -> dict[str, Any]:
    return {"ratio": ratio, "cpu_us": cpu_us, "of_direct": 0.4, "keeps": deepcopy(KEEPS), **more}


def good() -> dict[str, dict[str, Any]]:
    return {
        "direct": figures(1.0, 0),
        "floor-json": figures(2.0, 190),
        "ours": figures(1.8, 200),
        "ours-guarded": figures(2.2, 250),
        "ours-http": figures(4.0, 350),
    }


def test_figures_at_the_bars_pass() -> None:
    assert judge(good()) == []


@pytest.mark.parametrize(
    ("target", "key", "value", "said"),
    [
        ("ours", "ratio", 4.1, "p50 is 4.1 x direct"),
        ("ours-guarded", "ratio", 9.0, "p50 is 9.0 x direct"),
        ("ours-http", "ratio", 8.1, "p50 is 8.1 x direct"),
        ("ours", "cpu_us", 600, "600 us CPU a call"),
        ("ours-guarded", "of_direct", 0.01, "0.01 of direct throughput"),
        ("ours", "error", "Gone: exit 1", "Gone: exit 1"),
    ],
)
def test_a_figure_far_outside_the_bars_fails(target: str, key: str, value: object, said: str) -> None:
    found = good()
    found[target][key] = value
    [wrong] = judge(found)
    assert wrong.startswith(f"{target}: ") and said in wrong


@pytest.mark.parametrize("target", ["ours", "ours-guarded", "ours-http"])
@pytest.mark.parametrize("key", ["echo", "content", "structured", "meta", "isError", "cancel"])
def test_whatever_a_result_loses_fails(target: str, key: str) -> None:
    for lost in (False, None):
        found = good()
        found[target]["keeps"][key] = lost
        assert judge(found) == [f"{target}: {key} does not arrive"]


@pytest.mark.parametrize("seen", [0, 4, 6])
def test_another_number_of_progress_notifications_fails(seen: int) -> None:
    found = good()
    found["ours-http"]["keeps"]["progress"] = seen
    assert judge(found) == [f"ours-http: {seen} of 5 progress notifications arrive"]


@pytest.mark.parametrize("missing", ["floor-json", "ours"])
def test_nothing_measured_is_not_well(missing: str) -> None:
    found = {name: each for name, each in good().items() if not name.startswith(missing)}
    assert any("nothing to judge" in wrong for wrong in judge(found))


def test_a_slow_peer_is_not_our_fault() -> None:
    assert judge({**good(), "fastmcp": figures(50, 9000, keeps={})}) == []


def test_what_is_checked_needs_nothing_to_be_installed() -> None:
    assert all(BY_NAME[name].missing is None for name in CHECKED)
    assert {BY_NAME[name].base for name in CHECKED} <= set(CHECKED)


def test_a_call_is_filled_in_at_every_depth() -> None:
    call = Call("{server}_{tool}", {"name": ["{tool}"], "arguments": "$ARGS"})
    assert call.make("u1", "echo", {"a": 1}) == ("u1_echo", {"name": ["echo"], "arguments": {"a": 1}})


def test_the_report_shows_figures_errors_and_what_was_skipped() -> None:
    found = {"duel": {"ours": {**figures(1.8, 200), "p50_ms": 0.25}, "peer": {"error": "no | luck"}}}
    text = markdown(found, "head", {"peer": "1.0"}, {"other": "not installed"})
    assert "| ours | 0.250 |" in text and "| peer | no / luck |" in text
    assert "peer 1.0" in text and "other, not installed" in text


def test_a_percentile_is_one_of_the_values() -> None:
    assert (percentile([3.0, 1.0, 2.0], 0.5), percentile([1.0], 0.99)) == (2.0, 1.0)
