"""The verdict of `scripts/soak.py` finds what grows, and not what only wobbles. The run itself is too long for here."""

from dataclasses import replace
from typing import Any

import pytest
from soak import PARTS, Part, judge

FLAT = [Part(95.0, 68.0, 30, 6.0, 20.0, 2_000)] * PARTS


def changed(index: int, **more: Any) -> list[Part]:
    parts = list(FLAT)
    parts[index] = replace(parts[index], **more)
    return parts


def growing(what: str, factor: float) -> list[Part]:
    start = getattr(FLAT[0], what)
    return [replace(part, **{what: start * factor ** (n / (PARTS - 1))}) for n, part in enumerate(FLAT)]


def test_a_flat_run_passes() -> None:
    assert judge("daemon", FLAT) == []


@pytest.mark.parametrize(
    ("what", "factor"), [("rss", 1.5), ("rss", 1.1), ("descriptors", 3.0), ("p50", 2.0), ("p99", 5.0)]
)
def test_what_grows_from_part_to_part_fails(what: str, factor: float) -> None:
    [wrong] = judge("daemon", growing(what, factor))
    assert wrong.startswith("daemon: ") and "grew from" in wrong


@pytest.mark.parametrize("what", ["rss", "descriptors"])
def test_what_the_last_part_holds_counts_alone(what: str) -> None:
    high = 2 * getattr(FLAT[0], what)
    assert judge("daemon", changed(-1, **{what: high})) != []
    assert judge("daemon", changed(5, **{what: high})) == []


@pytest.mark.parametrize("part", range(PARTS))
def test_one_slow_part_is_a_neighbour_of_the_machine(part: int) -> None:
    assert judge("daemon", changed(part, p50=60.0, p99=500.0)) == []


def test_what_shrinks_is_well() -> None:
    assert judge("daemon", growing("rss", 0.5)) == judge("daemon", growing("p50", 0.5)) == []
