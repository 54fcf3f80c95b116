"""`tokens`: what the tools cost a model, all of them directly or through the proxy; per server, mode and turn."""

import argparse
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import anyio

from proxy.app import App
from proxy.caller import Caller
from proxy.cli.common import settings
from proxy.cli.logs import set_up_logging
from proxy.cli.looking import all_known, looking
from proxy.cli.seen import TokenCounter, dumped
from proxy.cli.table import printed_table
from proxy.config import Settings

_QUERY = "create list get update"
"""A query that most catalogs answer with as many matches as are asked for: what an answer weighs."""
_TURNS = (1, 10, 50)


@dataclass(frozen=True)
class ServerCost:
    """One server."""

    server: str
    tools: int
    eager: int
    """Tokens of its schemas, sent whole on every turn."""
    bridge: int
    """Tokens of what is sent of it on every turn through the proxy: its lines in the listing, and its eager tools."""
    form: str


@dataclass(frozen=True)
class ModeCost:
    """One mode of the proxy."""

    mode: str
    per_turn: int
    """Tokens of `tools/list` and the instructions, which every turn carries."""
    tools: int
    """How many tools the client sees."""


def run(options: argparse.Namespace) -> int:
    """Always 0: figures, no judgement."""
    config = settings(options)
    set_up_logging(logging.CRITICAL, config, verbose=options.verbose)
    report = anyio.run(_measure, config, options.client, options.profile)
    if options.json:
        print(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        _print(report)
    return 0


async def _measure(config: Settings, client: str | None, profiles: Sequence[str] | None) -> dict[str, Any]:
    modes: list[ModeCost] = []
    servers: list[ServerCost] = []
    search = answer = 0
    counter = TokenCounter(exact=config.tool_search.tokenizer == "o200k")
    for mode, changed in _modes(config).items():
        app = looking(changed, profiles)
        async with app.running():
            await all_known(app)
            await app.counted()
            tools = await app.tools(client)
            texts = [*map(dumped, tools), app.instructions(client)]
            counted = await counter.count(texts)
            modes.append(ModeCost(mode, sum(counted[text] for text in texts), len(tools)))
            if mode == "as configured":
                servers = await _servers(app, client, counter)
                search, answer = await _answers(app, counter)
    return {
        "modes": [asdict(m) for m in modes],
        "servers": [asdict(s) for s in servers],
        "per_use": {"search": search, "describe": answer},
        "turns": {m.mode: {str(n): n * m.per_turn for n in _TURNS} for m in modes},
        "tokenizer": config.tool_search.tokenizer,
    }


def _modes(config: Settings) -> dict[str, Settings]:
    """What there is to choose from, the configuration itself first."""

    def with_search(**changes: Any) -> Settings:
        return replace(config, tool_search=replace(config.tool_search, **changes))

    return {
        "as configured": config,
        "bridge, servers only": with_search(enabled="on", listing="off"),
        "bridge, listing: auto": with_search(enabled="on", listing="auto"),
        "bridge, listing: on": with_search(enabled="on", listing="on"),
        "everything direct": with_search(enabled="off"),
    }


async def _servers(app: App, client: str | None, counter: TokenCounter) -> list[ServerCost]:
    """Each server: its schemas, and its own lines in the listing (what it would cost to leave it out)."""
    listing = await app.listing(client) if app.bridged else None
    schemas = {key: [dumped(tool.raw) for tool in server.tools] for key, server in app.catalog.servers.items()}
    counted = await counter.count([text for texts in schemas.values() for text in texts])
    lines = _lines(app, listing.slots if listing is not None else ())
    listed = await counter.count(list(lines.values()))
    found: list[ServerCost] = []
    for key, server in app.catalog.servers.items():
        eager = sum(counted[text] for text in schemas[key])
        direct = sum(counted[dumped(tool.raw)] for tool in server.tools if tool.eager or not app.bridged)
        form = listing.forms.get(key, "eager") if listing is not None else "eager"
        found.append(ServerCost(key, len(server.tools), eager, direct + listed.get(lines.get(key, ""), 0), form))
    return found


def _lines(app: App, slots: Sequence[str]) -> dict[str, str]:
    """The listing's text by server: summaries by their name, blocks by the heading they follow."""
    found: dict[str, list[str]] = {}
    keys = sorted(app.catalog.servers, key=len, reverse=True)
    current: str | None = None
    for line in "\n".join(slots).split("\n"):
        if line.startswith("- "):
            current = next((k for k in keys if line.startswith(f"- {k} (")), None)
        elif line.endswith(":") or ":" in line:
            if (owner := next((k for k in keys if line.startswith(f"{k}__") and "* (" in line), None)) is not None:
                current = owner
            elif line.startswith(("Servers (tools):", "Listed below:")):
                current = None
        if current is not None:
            found.setdefault(current, []).append(line)
    return {key: "\n".join(lines) for key, lines in found.items()}


async def _answers(app: App, counter: TokenCounter) -> tuple[int, int]:
    """What one search and one describe add to a conversation, once each."""
    names = [tool.public_name for tool in app.catalog.tools]
    if not names:
        return 0, 0
    search, caller = app.settings.tool_search, Caller(client=None)
    texts: list[str] = []
    for name, arguments in ((search.search_name, {"query": _QUERY}), (search.describe_name, {"name": names[0]})):
        result = await app.call(name, arguments, {}, caller)
        texts.append(str(result["content"][0].get("text", "")))
    counted = await counter.count(texts)
    return counted[texts[0]], counted[texts[1]]


def _print(report: dict[str, Any]) -> None:
    head = ("mode", "tools", "tokens a turn", *(f"{n} turns" for n in _TURNS[1:]))
    lines: list[Sequence[str]] = [head]
    for mode in report["modes"]:
        turns = [f"{n * mode['per_turn']:,}" for n in _TURNS[1:]]
        lines.append((mode["mode"], f"{mode['tools']:,}", f"{mode['per_turn']:,}", *turns))
    printed_table(lines)
    use = report["per_use"]
    print(f"\nThrough the bridge each search adds about {use['search']:,} tokens once, a describe {use['describe']:,}.")
    print()
    servers = [ServerCost(**server) for server in report["servers"]]
    servers.sort(key=lambda s: (-s.eager, s.server))
    rows = [(s.server, f"{s.tools:,}", f"{s.eager:,}", f"{s.bridge:,}", s.form) for s in servers]
    printed_table([("server", "tools", "direct", "through the proxy", "in the listing"), *rows])
    counted = "o200k tokens" if report["tokenizer"] == "o200k" else "estimated tokens"
    print(f"\nAll figures are {counted} a turn: what a model reads before the first word, if nothing is cached.")
