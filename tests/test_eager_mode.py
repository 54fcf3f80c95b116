"""Small catalogs without the bridge, and when they get it back."""

import pytest

from proxy.eager import fits_below
from proxy.tokens import estimate
from proxy.tool import Tool


def tools(count: int) -> list[Tool]:
    return [
        Tool("s", f"tool_{n:03}", {"name": f"tool_{n:03}", "inputSchema": {"type": "object"}}, f"s__tool_{n:03}")
        for n in range(count)
    ]


EACH = estimate('{"name": "tool_000", "inputSchema": {"type": "object"}}')


@pytest.mark.parametrize(
    ("count", "before", "fits"),
    [
        (99, False, True),
        (100, False, False),
        (100, True, True),
        (119, True, True),
        (120, True, False),
        (99, True, True),
    ],
)
def test_a_small_catalog_is_shown_whole_and_stays_so_within_a_fifth(count: int, before: bool, fits: bool) -> None:
    assert fits_below(tools(count), 100 * EACH, before=before) is fits


def test_a_catalog_that_swings_around_the_limit_changes_its_mode_once() -> None:
    small, changes = False, 0
    for count in [90, 101, 95, 110, 99, 118, 100, 96] * 5:
        now = fits_below(tools(count), 100 * EACH, before=small)
        changes += now != small
        small = now
    assert changes == 1


def test_nothing_is_small_where_no_list_is_known_or_no_limit_is_set() -> None:
    assert not fits_below([], 1_000, before=True)
    assert not fits_below(tools(1), 0, before=True)
