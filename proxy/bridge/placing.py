"""The listing laid into the three tools as one host shows them."""

from collections.abc import Callable
from typing import Any

from proxy.bridge.tools import bridge_tools, guidance_lengths
from proxy.catalog import Catalog
from proxy.config import ToolSearchConfig
from proxy.hosts import HostRow
from proxy.listing import Listing, TextCache, render


def placed_tools(
    settings: ToolSearchConfig,
    row: HostRow,
    catalog: Catalog,
    count: Callable[[str], int],
    cache: TextCache | None = None,
) -> tuple[list[dict[str, Any]], Listing]:
    """The three tools with as much of `catalog` as `row` and the budget allow, and what became of each server.

    `count` gives the tokens of any of `listing.lines(catalog)`. Every slot's whole text, guidance included, is within
    the row's characters, so that the host never cuts.
    """
    spent = guidance_lengths(settings)
    room = [None if (limit := row.limit(slot)) is None else max(0, limit - spent[slot]) for slot in row.slots]
    listing = render(catalog, budget=settings.budget, slots=room, mode=settings.listing, count=count, cache=cache)
    return bridge_tools(settings, dict(zip(row.slots, listing.slots, strict=True))), listing
