"""View: what the callers of one scope are shown, computed from their view of the catalog and from nothing else.

Index, listing and tool lists are pure and kept by the view's hash: made in a worker thread when the catalog has
changed, or at the first need, and never on the path of a call. Where nothing is guarded there is one view, of all.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from proxy import bridge
from proxy.caller import Scope
from proxy.catalog import Catalog, Server
from proxy.config import Settings
from proxy.eager import fits_below, shown
from proxy.guard import DEFAULT, Scopes
from proxy.hosts import HostRow
from proxy.listing import Listing, TextCache, lines
from proxy.offers import Offers
from proxy.search import Index
from proxy.semantics import Semantics
from proxy.tokens import Counts
from proxy.tool import Tool

READS_ONLY = "_readonly"
"""What the name of the second call tool, which runs only what reads, ends in."""


Indexed = tuple[str, Index]
"""The hash of a catalog, and its index."""


@dataclass
class Shared:
    """What all views of one proxy use."""

    settings: Settings
    catalog: Callable[[], Catalog]
    """What exists for anyone."""
    offers: Callable[[], Offers]
    scopes: Scopes | None
    counts: Counts
    semantics: Semantics | None
    texts: TextCache = field(default_factory=TextCache)
    making: anyio.Lock = field(default_factory=anyio.Lock)
    indexing: anyio.Lock = field(default_factory=anyio.Lock)


class View:
    """What one scope holds, and what its callers are shown of it."""

    def __init__(self, shared: Shared, scope: Scope, indexed: Indexed | None = None) -> None:
        """`indexed`: of the scope's view by an earlier configuration, so that its index is not made from nothing."""
        self._shared, self.scope = shared, scope
        self._settings = shared.settings
        self._gone = shared.scopes is None and not {DEFAULT}.issuperset(scope)
        """Whether it is of a profile that went with all guards: like one that went alone, it leaves nothing."""
        self._seen: tuple[Catalog, Catalog] | None = None
        """What exists for anyone, and this scope's part of it."""
        self._offered: tuple[Offers, Offers] | None = None
        self._configs = [s for s in self._settings.servers if s.enabled and self._may_hold(s.key)]
        self._configured = Catalog(Server(s.key, topic=s.description) for s in self._configs)
        self._bounded = {s.key for s in self._configs if s.max_result_chars}
        """Servers whose long results are shortened."""
        self._small = self.bridged = False
        """Whether all schemas together are small enough to be shown without the bridge."""
        self.counted = False
        """Whether every text of the view has its exact count, or never will."""
        self.indexed = indexed
        self._listings: dict[tuple[str, str, bool], Listing] = {}
        self._tools: dict[tuple[str, str, bool], list[dict[str, Any]]] = {}
        self.weigh()

    def _may_hold(self, key: str) -> bool:
        scopes = self._shared.scopes
        return not self._gone if scopes is None else scopes.may_hold(key, self.scope)

    def weigh(self) -> None:
        """The catalog has changed: judge its size; within 20 % above the limit the last judgement holds."""
        self.counted = False
        below = self._settings.tool_search.eager_below_tokens
        self._small = fits_below(self.catalog.tools, below, before=self._small)
        self.bridged = self._judged()

    # What is in it.

    @property
    def catalog(self) -> Catalog:
        """What the callers may see and call."""
        everything = self._shared.catalog()
        if self._shared.scopes is None:
            return Catalog() if self._gone else everything
        if self._seen is None or self._seen[0] is not everything:
            self._seen = (everything, self._shared.scopes.view(everything, self.scope))
        return self._seen[1]

    @property
    def offers(self) -> Offers:
        """The resources and prompts that the callers may use."""
        everything = self._shared.offers()
        if self._shared.scopes is None:
            return everything.of(lambda _: False) if self._gone else everything
        if self._offered is None or self._offered[0] is not everything:
            self._offered = (everything, self._shared.scopes.offers(everything, self.scope))
        return self._offered[1]

    def wanted(self) -> list[str]:
        """The lines whose tokens a listing of the view may count."""
        return self._lines(self.catalog)

    def _lines(self, catalog: Catalog) -> list[str]:
        return list(dict.fromkeys(lines(catalog, self._shared.texts)))

    # What is shown of it.

    def _judged(self) -> bool:
        """Whether the three tools are shown."""
        search = self._settings.tool_search
        if search.enabled != "auto":
            return search.enabled == "on"
        if all(not s.lazy for s in self._configs):
            return False
        return not self._small

    def instructions(self, row: HostRow) -> str:
        """The server's instructions: from the config alone, so that they are the same whatever is up.

        The topics of the servers are in them only for hosts that may show no description at the start.
        """
        if not self.bridged:
            return ""
        search = self._settings.tool_search
        return bridge.instructions(search, self._configured, limit=row.instructions, topics=row.deferred)

    async def tools(self, row: HostRow) -> list[dict[str, Any]]:
        """The tools shown to a client of that row: the bridge, then eager tools by public name."""
        key = self._key(row)
        if key not in self._tools:
            async with self._shared.making:
                tools = await anyio.to_thread.run_sync(partial(self._make_tools, self.catalog, row, key))
            self._tools = {k: v for k, v in self._tools.items() if k[0] == key[0]} | {key: tools}
            self._listings = {k: v for k, v in self._listings.items() if k[0] == key[0]}  # of old catalogs none stays
        return self._tools[key]

    async def listing(self, row: HostRow) -> Listing | None:
        """What the descriptions say to a client of that row; None where there is no bridge."""
        await self.tools(row)
        return self._listings.get(self._key(row))

    def _key(self, row: HostRow) -> tuple[str, str, bool]:
        return (self.catalog.hash, row.name, self.counted)

    def _make_tools(self, catalog: Catalog, row: HostRow, key: tuple[str, str, bool]) -> list[dict[str, Any]]:
        bridged, search = self.bridged, self._settings.tool_search
        eager = catalog.eager if bridged or search.enabled != "auto" else catalog.tools
        listed = [t for tool in sorted(eager, key=lambda t: t.public_name) if (t := self._shown(tool)) is not None]
        if not bridged:
            return listed
        count, _ = self._shared.counts.counter(self._lines(catalog), exact=search.tokenizer == "o200k")
        tools, self._listings[key] = bridge.placed_tools(search, row, catalog, count, self._shared.texts)
        if self._settings.guard is not None and self._settings.guard.read_call:
            tools = [*tools, _reading(tools[-1], search.call_name)]
        return [*tools, *listed]

    def _shown(self, tool: Tool) -> dict[str, Any] | None:
        found = shown(tool).tool
        if found is not None and tool.server in self._bounded and "outputSchema" in found:
            # A shortened result has no structured content, which a client with this schema would insist on.
            return {key: value for key, value in found.items() if key != "outputSchema"}
        return found

    async def index(self) -> Index:
        """The search index of the view, as it is now."""
        catalog = self.catalog
        if self.indexed is None or self.indexed[0] != catalog.hash:
            async with self._shared.indexing:
                if self.indexed is None or self.indexed[0] != catalog.hash:
                    words = self.indexed[1].words if self.indexed is not None else None
                    index = await anyio.to_thread.run_sync(partial(Index, catalog, words))
                    self.indexed = (catalog.hash, index)
        semantics = self._shared.semantics
        return self.indexed[1] if semantics is None else await semantics.enrich(self.indexed[1])


def _reading(call: dict[str, Any], name: str) -> dict[str, Any]:
    """The second call tool: as the first, for tools that only read, so that a host can approve it once and for all."""
    schema = json.loads(json.dumps(call["inputSchema"]))
    note = f"Call a tool that only reads. {name} calls every tool."
    quiet = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True}
    meta = {**call["_meta"], "anthropic/searchHint": "run a tool that only reads of a connected server by name"}
    return {
        "name": name + READS_ONLY,
        "title": "Call a tool that reads",
        "description": note,
        "inputSchema": schema,
        "annotations": quiet,
        "_meta": meta,
    }
