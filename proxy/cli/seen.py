"""What one host will see of this proxy: every text with its size, the host's limits, and what is wrong with it."""

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from proxy.app import App
from proxy.hosts import UNKNOWN, HostRow
from proxy.listing import Listing
from proxy.text import units
from proxy.tokens import child_argv, decode_answer, encode_request, estimate


@dataclass(frozen=True)
class Text:
    """One text in one slot."""

    slot: str
    text: str = field(repr=False)
    tokens: int
    limit: int | None
    """UTF-16 units that the host keeps; None for all."""

    @property
    def characters(self) -> int:
        """UTF-16 units, as hosts count."""
        return units(self.text)

    @property
    def size(self) -> int:
        """Bytes in UTF-8."""
        return len(self.text.encode("utf-8", "surrogatepass"))

    @property
    def kept(self) -> int:
        """Characters of `text` that are left when the host has cut it."""
        if self.limit is None or self.characters <= self.limit:
            return len(self.text)
        return len(self.text.encode("utf-16-le", "surrogatepass")[: 2 * self.limit].decode("utf-16-le", "ignore"))

    @property
    def cut(self) -> bool:
        """Whether the host cuts this text, or refuses it."""
        return self.shown and self.kept < len(self.text)

    @property
    def shown(self) -> bool:
        """Whether the host shows this slot at all."""
        return self.limit != 0


@dataclass(frozen=True)
class Seen:
    """One host."""

    row: HostRow
    """What the host is known to do."""
    used: HostRow
    """The row that its texts are made for; another one where the host does not say who it is, or one is configured."""
    tier: int
    """0: no bridge."""
    forms: Mapping[str, str]
    texts: Sequence[Text]
    tools: Sequence[str]
    """Names as we list them."""
    schema_tokens: int
    """Of everything in `tools/list`, the texts included."""
    advice: Sequence[str]
    """What is wrong for this host, and what to change."""
    hints: Sequence[str]
    """What could be better, and works as it is."""


class TokenCounter:
    """Counts texts in a child process, each once; estimates where exact counts are not wanted or not possible."""

    def __init__(self, *, exact: bool = True) -> None:
        self.exact = exact
        """Whether what was counted so far is exact."""
        self._known: dict[str, int] = {}

    async def count(self, texts: Iterable[str]) -> Mapping[str, int]:
        """Text -> tokens, of at least these texts."""
        wanted = [text for text in dict.fromkeys(texts) if text not in self._known]
        if wanted and self.exact:
            try:
                done = await anyio.run_process(child_argv(), input=encode_request(wanted), stderr=subprocess.DEVNULL)
                self._known |= dict(zip(wanted, decode_answer(done.stdout, wanted), strict=True))
            except (OSError, ValueError, subprocess.CalledProcessError):
                self.exact = False
        self._known |= {text: estimate(text) for text in wanted if text not in self._known}
        return self._known


def dumped(tool: Mapping[str, Any]) -> str:
    """A tool as it travels."""
    return json.dumps(tool, ensure_ascii=False, separators=(",", ":"))


async def seen(app: App, row: HostRow, our_name: str, counter: TokenCounter) -> Seen:
    """What the host of `row` sees where it calls us `our_name`; every list should be known by now."""
    search = app.settings.tool_search
    client = row.client_names[0] if row.client_names else None
    used = app.settings.hosts.row_for(client, search.host_row)
    tools = await app.tools(client)
    listing = await app.listing(client) if app.bridged else None
    instructions = app.instructions(client)
    texts: list[tuple[str, str, int | None]] = []
    if app.bridged:
        texts = [(str(tool["name"]), str(tool["description"]), row.description) for tool in tools[:3]]
        query = str(tools[0]["inputSchema"]["properties"]["query"]["description"])
        # A parameter in which no listing stands is short; that a host would drop a long one does not matter then.
        texts.insert(1, (f"{tools[0]['name']}, query", query, row.parameter or None))
        texts.append(("instructions", instructions, row.instructions))
    counted = await counter.count([text for _, text, _ in texts] + [dumped(tool) for tool in tools])
    made = [Text(slot, text, counted[text], limit) for slot, text, limit in texts]
    return Seen(
        row=row,
        used=used,
        tier=listing.tier if listing is not None else 0,
        forms=listing.forms if listing is not None else {},
        texts=made,
        tools=[str(tool["name"]) for tool in tools],
        schema_tokens=sum(counted[dumped(tool)] for tool in tools),
        advice=_advice(app, row, used, made, tools, listing, our_name),
        hints=_hints(app, row, listing, our_name),
    )


def made_for(row: HostRow) -> str:
    """Whom the texts of a row are for, in words."""
    return "any other client" if row.name == UNKNOWN.name else row.name


def _advice(
    app: App,
    row: HostRow,
    used: HostRow,
    texts: Sequence[Text],
    tools: Sequence[Mapping[str, Any]],
    listing: Listing | None,
    our_name: str,
) -> list[str]:
    """What to change, one sentence or two each."""
    cut = [text for text in texts if text.cut]
    found = [f"{t.slot} has {t.characters:,} characters, of which {row.name} keeps {t.limit:,}." for t in cut]
    if cut:
        how = "set `tool_search: {host_row: " + row.name + "}`"
        if not row.client_names and app.settings.tool_search.host_row is None:
            how += ", or `hosts: {unnamed: " + row.name + "}` if only clients without a name are such hosts"
        found.append(f"These texts were made for {made_for(used)}: {how}.")
    names = [row.shown_name(str(tool["name"]), our_name) for tool in tools]
    if long := [name for name in names if row.tool_name_limit is not None and len(name) > row.tool_name_limit]:
        found.append(
            f"{len(long)} names are longer than the {row.tool_name_limit} characters that {row.name} takes, for "
            f"example {long[0]!r} ({len(long[0])}): give the proxy a shorter name there (install --name), the server a "
            "shorter key, or do not pin these tools."
        )
    if row.tools is not None and len(tools) > row.tools:
        found.append(f"{len(tools)} tools are shown directly, and {row.name} takes {row.tools}: pin fewer tools.")
    if taken := [name for name in _bridge(app) if row.shown_name(name, our_name) in row.reserved]:
        found.append(f"The name {taken[0]!r} is reserved there: set `tool_search: {{names: {{search: find_tools}}}}`.")
    forms: Mapping[str, str] = listing.forms if listing is not None else {}
    unnamed = [key for key, form in forms.items() if form == "unnamed"]
    if unnamed:
        found.append(f"{len(unnamed)} servers are not even named: raise listing_max_tokens, or disable some.")
    shown = {key: c for key, c in app.fleet.connections.items() if key in app.catalog.servers}
    lacking = {key: connection.reason for key, connection in shown.items() if connection.needs_login}
    found += [f"{key}: {reason}" for key, reason in lacking.items()]
    unknown = [key for key, server in app.catalog.servers.items() if not server.known and key not in lacking]
    if unknown:
        found.append(f"No list of tools is known of {', '.join(unknown)}: narrow-waist check says why.")
    return found


def _hints(app: App, row: HostRow, listing: Listing | None, our_name: str) -> list[str]:
    """What may be better otherwise, one sentence or two each."""
    found: list[str] = []
    known = [name for name in _bridge(app) if name in row.reserved and row.shown_name(name, our_name) != name]
    if known:
        found.append(
            f"{row.name} has a tool {known[0]!r} of its own beside {row.shown_name(known[0], our_name)!r}; if a model "
            "mixes them up, set `tool_search: {names: {search: find_tools}}`."
        )
    if row.deferred and listing is not None and not any(s.topic for s in app.catalog.servers.values()):
        found.append(
            f"{row.name} may read the instructions before anything else: give servers a `description`, which they "
            "quote."
        )
    return found


def _bridge(app: App) -> Sequence[str]:
    """The names of our own three tools, where there are any."""
    search = app.settings.tool_search
    return (search.search_name, search.describe_name, search.call_name) if app.bridged else ()
