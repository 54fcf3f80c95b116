"""What each host shows: for every row of the table the texts fit, stand alone, and name every server."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from listing_reader import HEADING, count, read, real_servers, server

from proxy import bridge
from proxy.catalog import Catalog, Server
from proxy.config import ToolSearchConfig
from proxy.hosts import ROWS, UNKNOWN, HostRow
from proxy.hosts.rows import HostTable
from proxy.listing import Listing, TextCache
from proxy.search import Index

SETTINGS = ToolSearchConfig()
CACHE = TextCache()
ROW = {row.name: row for row in ROWS}
SIZES = (1, 2, 5, 12, 20, 34)


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


class Shown:
    """The texts of one host for one catalog, as the model reads them."""

    def __init__(self, row: HostRow, servers: Sequence[Server], settings: ToolSearchConfig = SETTINGS) -> None:
        self.row = row
        self.catalog = Catalog(servers)
        self.tools, self.listing = bridge.placed_tools(settings, row, self.catalog, count, CACHE)
        self.instructions = bridge.instructions(settings, self.catalog, limit=row.instructions, topics=row.deferred)
        self.descriptions: dict[str, str] = {
            slot: tool["description"] for slot, tool in zip(("search", "describe", "call"), self.tools, strict=True)
        }
        self.parameter: str = self.tools[0]["inputSchema"]["properties"]["query"]["description"]

    @property
    def slots(self) -> dict[str, str]:
        return {**self.descriptions, "parameter": self.parameter}

    @property
    def named(self) -> set[str]:
        reading = read(self.listing.slots)
        return {*reading.summaries, *reading.bare, *reading.listed}


@cache
def shown(row: str, size: int) -> Shown:
    return Shown(ROW[row], spread(size))


def spread(size: int) -> tuple[Server, ...]:
    """`size` of the real servers, small and large ones."""
    servers = real_servers()
    return tuple(servers[n * len(servers) // size] for n in range(size)) if size < len(servers) else servers


def many(number: int) -> list[Server]:
    """Servers that are many rather than large."""
    return [server(f"server-number-{n:03}", [f"do_{n}_{k}" for k in range(3)]) for n in range(number)]


EVERY_ROW = pytest.mark.parametrize("row", ROW)
EVERY_SIZE = pytest.mark.parametrize("size", SIZES)


@EVERY_ROW
@EVERY_SIZE
def test_every_text_fits_the_row(row: str, size: int) -> None:
    made = shown(row, size)
    for slot, text in made.slots.items():
        limit = made.row.limit(slot)  # type: ignore[arg-type]
        if slot in made.row.slots or slot != "parameter":
            assert limit is None or units(text) <= limit, slot
    assert made.row.instructions is None or units(made.instructions) <= made.row.instructions
    assert made.listing.tokens <= SETTINGS.budget


@EVERY_ROW
@EVERY_SIZE
def test_the_text_says_how_to_search_and_names_every_server(row: str, size: int) -> None:
    made = shown(row, size)
    text = made.descriptions["search"]
    assert text.startswith("Search the tools of all connected MCP servers.")
    assert "verb + product noun" in text[:600]
    if size <= 20:
        assert made.named == made.catalog.servers.keys()
    else:
        said = re.search(r"… and (\d+) more servers", text)
        unnamed = [form for form in made.listing.forms.values() if form == "unnamed"]
        assert len(unnamed) == (int(said[1]) if said else 0)


@EVERY_ROW
def test_beyond_what_fits_a_line_says_how_many_more_there_are(row: str) -> None:
    made = Shown(ROW[row], many(2_000))
    said = re.search(r"… and (\d+) more servers", " ".join(made.slots.values()))
    unnamed = [form for form in made.listing.forms.values() if form == "unnamed"]
    assert said is not None and int(said[1]) == len(unnamed) > 0
    assert len(unnamed) < 2_000, "as many as fit are named"


@EVERY_ROW
@EVERY_SIZE
def test_each_text_stands_alone_and_is_cut_only_between_lines_and_entries(row: str, size: int) -> None:
    made = shown(row, size)
    assert "tool_search" in made.descriptions["describe"].split("\n")[0]
    assert "tool_search" in made.descriptions["call"].split("\n")[0]
    for slot, text in made.slots.items():
        if slot in made.row.slots[1:] and "\n" in text:
            assert "\n\nListing, continued:\n" in text
    assert read(made.listing.slots)  # each line whole, or it could not be read back
    if made.instructions:
        first = made.instructions.split("\n")[0]
        assert units(first) <= 250 and "tool_search" in first
        assert made.row.first_line is None or units(first) <= made.row.first_line


@EVERY_ROW
@EVERY_SIZE
def test_nothing_repeats_what_another_slot_already_says(row: str, size: int) -> None:
    made = shown(row, size)
    parts = [part for text in (*made.slots.values(), made.instructions) for part in _sentences(text)]
    assert len(parts) == len(set(parts))
    if not made.row.deferred:
        assert not re.search(r"^- ", made.instructions, re.MULTILINE)


def _sentences(text: str) -> list[str]:
    """What is said once: sentences of guidance, lines about one server, headings with what they hold."""
    guidance, *listing = text.split("\n\n")
    lines = "\n".join(listing).split("\n")
    return [s for s in re.split(r"(?<=[.:]) |\n", guidance) if len(s) > 25] + [
        line for line in lines if line.startswith("- ") or re.match(r"\S+\* \(\d+\):", line) or len(line) > 200
    ]


def test_the_topics_are_in_the_instructions_where_the_host_may_hide_the_descriptions() -> None:
    servers = [server(f"s{n}", ["a"], description=f"topic {n}") for n in range(3)]
    hidden = Catalog(Server(s.key, topic=f"topic {n}") for n, s in enumerate(servers))
    for name, row in ROW.items():
        text = bridge.instructions(SETTINGS, hidden, limit=row.instructions, topics=row.deferred)
        assert ("- s1: topic 1" in text) == (row.deferred and row.instructions != 0), name


@pytest.mark.parametrize("limit", [0, 50, 120, 200, 400, 1_000, 5_000])
def test_instructions_fit_any_limit_that_is_configured(limit: int) -> None:
    catalog = Catalog(Server(f"server-𝒳-{n}", topic="some topic") for n in range(60))
    text = bridge.instructions(SETTINGS, catalog, limit=limit)
    assert units(text) <= limit
    assert text == "" or "tool_search" in text.split("\n")[0]


# Claude Code.


def test_claude_code_reads_every_server_in_the_first_description_and_small_servers_tools_beside_it() -> None:
    made = shown("claude-code", 34)
    description = made.descriptions["search"]
    assert units(description) <= 4_096
    # a block may go on in the other slot; what stands before the blocks must not
    lines = made.listing.slots[0].split("\n")
    blocks = next((n for n, line in enumerate(lines) if HEADING.fullmatch(line)), len(lines))
    first = read(["\n".join(lines[:blocks])])
    assert {*first.summaries, *first.bare, *first.listed} == made.catalog.servers.keys()
    small = [s for s in made.catalog.servers.values() if len(s.tools) <= 5]
    assert small
    for each in small:
        for tool in each.tools:
            assert re.search(rf"\b{re.escape(tool.name)}\b", made.parameter), tool.name


def test_the_slot_that_is_not_cut_takes_what_the_budget_still_has() -> None:
    """With the description alone three times less would be listed."""
    both = shown("claude-code", 34)
    alone = Shown(HostRow(name="x", description=4_096), real_servers())
    assert both.listing.tokens > 3 * alone.listing.tokens
    assert both.listing.tokens > 0.8 * SETTINGS.budget


def test_older_claude_code_and_strict_endpoints_have_the_listing_spread_over_three_tools() -> None:
    for row in ("claude-code-2048", "openai-1024"):
        made = shown(row, 20)
        assert [slot for slot in ("search", "describe", "call") if "\n\n" in made.descriptions[slot]] != ["search"]
        assert "\n\n" not in made.parameter


# Unknown hosts.


@pytest.mark.parametrize("cut", [600, 1_024, 2_048, 4_096, 10_000])
def test_a_cut_anywhere_is_harmless_for_an_unknown_host(cut: int) -> None:
    """Guidance first, then every server, then what is promoted (failure report L1)."""
    text = shown("unknown", 20).descriptions["search"]
    kept = text[:cut]
    assert "verb + product noun" in kept
    blocks = text.find("\n", text.find("Listed below:"))
    if cut >= blocks > 0:
        reading = read(shown("unknown", 20).listing.slots)
        for name in {*reading.summaries, *reading.bare, *reading.listed}:
            assert name in kept


def test_one_setting_chooses_the_row_of_endpoints_that_refuse_more_than_1024_characters() -> None:
    """Failure report L2: one longer description fails the whole request."""
    row = HostTable().row_for("somebody", "openai-1024")
    made = Shown(row, real_servers())
    assert all(units(text) <= 1_024 for text in made.descriptions.values())
    assert units(made.parameter) <= 1_024


def test_a_row_changes_texts_and_never_the_tools() -> None:
    def bones(tools: list[dict[str, Any]]) -> list[Any]:
        return [(t["name"], t["annotations"], t["inputSchema"]["properties"].keys(), t["_meta"]) for t in tools]

    assert all(bones(shown(row, 5).tools) == bones(shown(UNKNOWN.name, 5).tools) for row in ROW)


@EVERY_ROW
def test_answers_stay_below_what_the_host_keeps_and_no_line_is_cut(row: str) -> None:
    kept = ROW[row].result
    catalog = Catalog(spread(12))
    index, room = Index(catalog), bridge.room_in(kept)
    for arguments in ({"query": "create issue", "limit": 20, "detail": "full"}, {"limit": 50}):
        answer = bridge.search_answer(arguments, catalog, index, SETTINGS, unavailable={}, room=room)
        text = answer["content"][0]["text"]
        assert kept is None or units(text) <= kept
        assert len(text.split("\n")) > 3
    names = [t.public_name for t in catalog.tools[::40]][:10]
    answer = bridge.describe_answer({"names": names}, catalog, SETTINGS, unavailable={}, room=room)
    assert kept is None or units(answer["content"][0]["text"]) <= kept


# Stability: what a client sees changes only with its view, and then as little as possible.


def forms(servers: Sequence[Server], row: str = "unknown") -> Listing:
    return Shown(ROW[row], servers).listing


@pytest.mark.parametrize("row", ["unknown", "claude-code", "openai-1024"])
def test_four_of_five_additions_of_a_server_leave_every_other_server_as_it_was(row: str) -> None:
    servers = [*real_servers(), *many(6)]
    quiet = total = 0
    whole = forms(servers, row)
    for added in servers:
        if len(added.tools) > 60:
            continue
        before = forms([s for s in servers if s is not added], row)
        total += 1
        quiet += all(whole.forms[key] == form for key, form in before.forms.items())
    assert total >= 20
    assert quiet >= 0.75 * total


def test_losing_a_server_takes_its_own_lines_and_no_others_where_the_budget_does_not_force_it() -> None:
    servers = [s for s in real_servers() if len(s.tools) <= 30]
    whole = forms(servers)
    for lost in servers:
        rest = [s for s in servers if s is not lost]
        less = forms(rest)
        assert less.forms == {key: form for key, form in whole.forms.items() if key != lost.key}
        own = forms([lost]).slots[0].split("\n")
        gone = [line for line in whole.slots[0].split("\n") if line not in less.slots[0].split("\n")]
        assert all(line in own or line.startswith(("Listed below:", "Servers (tools):")) for line in gone)
        assert forms([*rest, lost]).slots == whole.slots, "back again: the same bytes"


def test_a_server_that_is_down_or_slow_changes_not_one_byte() -> None:
    """Its last list is kept, so what flaps is never in the texts; the same list again is the same text."""
    servers = [*real_servers()]
    texts = {forms(order).slots for order in (servers, servers[::-1], servers[7:] + servers[:7])}
    assert len(texts) == 1
