"""The raw dicts of the three tools, with the listing laid into them as one host shows them; the server instructions.

Guidance comes first in each description, the listing after it: what a host cuts off is never the way to use the tool.
Guidance and schemas together stay below 400 tokens (tested), because every conversation pays for them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proxy.catalog import Catalog
from proxy.config import ToolSearchConfig
from proxy.hosts import HostRow
from proxy.listing import Listing, TextCache, render
from proxy.text import first_sentence, one_line, units

DETAILS = ("names", "brief", "full")
MAX_QUERIES = 10
MAX_NAMES = 10
MAX_RESULT_CHARACTERS = 500_000
"""Claude Code's ceiling for what a tool result may hold before it is moved to a file."""

_FIRST_LINE = 250
"""Codex shows no more of the instructions until its own search has loaded the server (failure report L3)."""
_INSTRUCTIONS = 2_000
_TOPIC = 100
_CONTINUED = "Listing, continued:"


def bridge_tools(settings: ToolSearchConfig, listing: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The three tools as `tools/list` shows them.

    `listing` has the listing's text for each slot: `search`, `describe`, `call` (the tool's description) and
    `parameter` (the description of the first tool's `query`). Missing or "" adds nothing.
    """
    texts = listing or {}
    quiet = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    acting = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
    guidance = _guidance(settings)
    schemas = _schemas(settings)
    query = schemas["search"]["properties"]["query"]
    query["description"] = _with_listing(query["description"], texts.get("parameter"), continued=True)
    names = {"search": settings.search_name, "describe": settings.describe_name, "call": settings.call_name}
    titles = {"search": "Search tools", "describe": "Describe tools", "call": "Call a tool"}
    hints = {
        "search": "find tools of all connected servers by what they do",
        "describe": "full input schema of a tool of a connected server",
        "call": "run a tool of a connected server by name",
    }
    tools: list[dict[str, Any]] = []
    for key, name in names.items():
        meta: dict[str, Any] = {"anthropic/alwaysLoad": True, "anthropic/searchHint": hints[key]}
        if key == "call":
            meta["anthropic/maxResultSizeChars"] = MAX_RESULT_CHARACTERS
        tools.append(
            {
                "name": name,
                "title": titles[key],
                "description": _with_listing(guidance[key], texts.get(key), continued=key != "search"),
                "inputSchema": schemas[key],
                "annotations": dict(acting if key == "call" else quiet),
                "_meta": meta,
            }
        )
    return tools


def guidance_lengths(settings: ToolSearchConfig) -> dict[str, int]:
    """UTF-16 units that our own words take in each slot before listing text begins, line breaks included."""
    texts = {**_guidance(settings), "parameter": _schemas(settings)["search"]["properties"]["query"]["description"]}
    return {slot: units(_with_listing(text, "x", continued=slot != "search")) - 1 for slot, text in texts.items()}


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


def _with_listing(text: str, listing: str | None, *, continued: bool) -> str:
    if not listing:
        return text
    return f"{text}\n\n{_CONTINUED}\n{listing}" if continued else f"{text}\n\n{listing}"


def _guidance(settings: ToolSearchConfig) -> dict[str, str]:
    search, describe, call = settings.search_name, settings.describe_name, settings.call_name
    return {
        "search": (
            "Search the tools of all connected MCP servers. Matches show their parameters, ready for "
            f'{call}. Ask with verb + product noun, a few words, one capability per query: "create github issue". '
            "On a miss, try another noun. Skip the search when the tool's name is listed here."
        ),
        "describe": (
            f"Full input schema of tools that {search} of this server found or lists. "
            f"Needed only where parameters end in (see {describe}) or a call was refused."
        ),
        "call": f"Call a tool of a connected MCP server. Names and parameters come from {search} of this server.",
    }


def _schemas(settings: ToolSearchConfig) -> dict[str, dict[str, Any]]:
    """New dicts each time: `bridge_tools` writes the listing into one."""

    def parameter(kind: str, text: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "description": text, **more}

    def strings(text: str) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string"}, "description": text}

    search = {
        "query": parameter("string", "Verb + product noun; empty: page through all tools"),
        "queries": strings(f"Up to {MAX_QUERIES} queries at once"),
        "server": parameter("string", "Only this server"),
        "limit": parameter("integer", f"Matches per query, default {settings.search_default_limit}"),
        "offset": parameter("integer", "Start of the next page"),
        "detail": parameter("string", "full adds schemas; default brief", enum=list(DETAILS)),
    }
    describe = {"name": parameter("string", "Tool name"), "names": strings(f"Up to {MAX_NAMES} tool names")}
    call = {"name": parameter("string", "Tool name"), "arguments": parameter("object", "The tool's arguments")}
    return {
        "search": {"type": "object", "properties": search},
        "describe": {"type": "object", "properties": describe},
        "call": {"type": "object", "properties": call, "required": ["name"]},
    }


def instructions(settings: ToolSearchConfig, catalog: Catalog, *, limit: int | None = None, topics: bool = True) -> str:
    """The server instructions: names and topics of the servers in view, never what is up or how many tools there are.

    The first line stands alone in 250 UTF-16 units; the whole has at most 2,000, or `limit` if that is less ("" where
    not even a first line fits). Without `topics` the servers are only named, in the first line: for hosts whose model
    reads the topics in the listing.
    """
    room = _INSTRUCTIONS if limit is None else min(limit, _INSTRUCTIONS)
    keys = [one_line(key) for key in catalog.servers]
    start = "Gateway to other MCP servers"
    end = f". When a task needs a tool that you do not see, call {settings.search_name} of this server first."
    first = f"{start}{_some(keys, min(room, _FIRST_LINE) - len(start + end))}{end}"
    text = (
        f"{first}\nSearch with {settings.search_name} of this server (verb + product noun, a few words, one capability "
        f"per query) before you say that something cannot be done; run what it finds with {settings.call_name}; "
        f"{settings.describe_name} shows a tool's whole schema."
    )
    if units(text) > room:
        return first if units(first) <= room else ""
    if not topics:
        return text
    told = [s for s in catalog.servers.values() if s.topic]
    parts = [f"\n- {one_line(s.key)}: {first_sentence(s.topic or '', _TOPIC)}" for s in told]
    others = [one_line(s.key) for s in catalog.servers.values() if not s.topic]
    parts += [f", {key}" if number else f"\nAlso: {key}" for number, key in enumerate(others)]
    return _as_many(text, parts, room)


def _as_many(text: str, parts: list[str], limit: int) -> str:
    """`text` and as many of `parts` as fit, then how many more there are."""
    for number, part in enumerate(parts):
        more = f"\n… and {len(parts) - number} more servers"
        last = number + 1 == len(parts)
        if units(text + part) + (0 if last else units(more)) > limit:
            return text + more if units(text + more) <= limit else text
        text += part
    return text


def _some(keys: Iterable[str], room: int) -> str:
    """` (a, b, c and 4 more)` in at most `room` UTF-16 units."""
    names = list(keys)
    for count in range(len(names), 0, -1):
        rest = len(names) - count
        text = f" ({', '.join(names[:count])}{f' and {rest} more' if rest else ''})"
        if units(text) <= room:
            return text
    return ""
