"""`check`: connects every server and says what is wrong, what each costs, and what clients would see.

With `--profile` it shows what the callers of that profile have, and tells of nothing else, as the other commands do.
"""

import argparse
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import anyio

from proxy.app import App
from proxy.catalog import Server
from proxy.cli.common import settings
from proxy.cli.logs import set_up_logging
from proxy.cli.looking import all_tried, looking, withheld_note
from proxy.cli.seen import TokenCounter, dumped
from proxy.cli.table import printed_table
from proxy.config import RISKS, Risk, Settings
from proxy.eager import shown
from proxy.guard.unmatched import Unmatched, unmatched
from proxy.listing import Listing
from proxy.upstream.connection import Connection


@dataclass(frozen=True)
class Row:
    """One server in the table."""

    server: str
    state: str
    tools: int
    seconds: float | None
    """How long it took to connect."""
    eager_tokens: int
    """What all its schemas cost when they are sent whole, on every turn; what `tokens` calls direct."""
    listed: str
    """The form of the server in the listing, "eager" where its tools are shown directly, "-" where it has none."""
    notes: tuple[str, ...]


def run(options: argparse.Namespace) -> int:
    """0 if there is a server, all of them are ready, the lock withholds nothing and no glob protects in vain; or 1."""
    config = settings(options)
    set_up_logging(logging.CRITICAL, config, verbose=options.verbose)
    return anyio.run(_check, config, options)


async def _check(config: Settings, options: argparse.Namespace) -> int:
    app = looking(config, options.profile)
    async with app.running():
        await all_tried(app)
        await app.counted()
        listing = await app.listing()
        app.offers()  # what is found in them is noted
        servers, whole = app.catalog.servers, not options.profile
        counter = TokenCounter(exact=config.tool_search.tokenizer == "o200k")
        tokens = await counter.count(dumped(tool.raw) for tool in app.catalog.tools)
        rows = [
            _row(c, servers[key], listing, app, tokens, whole)
            for key, c in app.fleet.connections.items()
            if key in servers
        ]
        warnings: list[str] = []
        emptied: list[str] = []
        globs: list[Unmatched] = []
        withheld = ""
        if whole:
            warnings = [*config.warnings, *(f"{s.key}: disabled" for s in config.servers if not s.enabled)]
            emptied, withheld = _emptied(app, config), withheld_note(app)
            globs = unmatched(config, app.fleet.names())
        if options.json:
            report: dict[str, Any] = {"servers": [asdict(r) for r in rows], "warnings": warnings}
            report |= {"profiles": emptied, "withheld": withheld, "globs": [asdict(each) for each in globs]}
            report["listing"] = None if listing is None else {"tier": listing.tier, "tokens": listing.tokens}
            print(json.dumps(report, indent=1, ensure_ascii=False))
        else:
            said = [*(f"config: {text}" for text in warnings), *emptied, *filter(None, [withheld])]
            said += [f"{'' if each.protects else 'advice: '}{each}" for each in globs]
            if not rows and config.servers:
                said.append("no server is left by the profile" if options.profile else "no server is enabled")
            _print(rows, said, listing, counted="o200k" if counter.exact else "estimated")
        failed = [r for r in rows if r.state != "ready"]
    return 1 if not rows or failed or withheld or any(each.protects for each in globs) else 0


def _emptied(app: App, config: Settings) -> list[str]:
    """The servers that a profile is said to hold, and of whose tools it leaves none."""
    if app.gate is None:
        return []
    base, scopes, found = app.base.catalog(app.fleet.catalog), app.gate.scopes, list[str]()
    for name, profile in config.profiles.items():
        left = scopes.view(base, scopes.scope(name)).servers
        for key, server in base.servers.items():
            if server.tools and scopes.may_hold(key, (name,)) and not (key in left and left[key].tools):
                risks: set[Risk] = {app.gate.policy.risk(tool) for tool in server.tools}
                denied = all(profile.policy.get(risk) == "deny" for risk in risks)
                what = " or ".join(risk for risk in RISKS if risk in risks)
                why = f": all count as {what} (see guard.risk and trust_annotations)" if denied else ""
                found.append(f"profile {name}: leaves no tool of {key}{why}")
    return found


def _row(
    connection: Connection,
    server: Server,
    listing: Listing | None,
    app: App,
    tokens: Mapping[str, int],
    whole: bool,
) -> Row:
    notes = [] if connection.state == "ready" else [connection.reason or connection.trouble]
    tail = connection.last_words.telling() if connection.state != "ready" else []
    notes += [f"stderr: {line}" for line in tail if line not in connection.reason]
    if whole:  # these name tools that a profile may hide
        notes += [*connection.lists.warnings, *app.base.notes(server.key)]
    for tool in server.tools:
        if tool.unshowable:
            notes.append(f"{tool.name}: not shown to clients: {tool.unshowable}")
        elif tool.eager and (mended := shown(tool).notes):
            notes.append(f"{tool.name}: {'; '.join(mended)}")
    return Row(
        server.key,
        # One that has failed may be at its next attempt already.
        "failed" if connection.state == "starting" and connection.reason else connection.state,
        len(server.tools),
        connection.connect_seconds,
        sum(tokens[dumped(tool.raw)] for tool in server.tools),
        _form(server, listing),
        tuple(notes),
    )


def _form(server: Server, listing: Listing | None) -> str:
    if not server.tools:
        return "-"
    return listing.forms.get(server.key, "eager") if listing is not None else "eager"


def _print(rows: list[Row], said: list[str], listing: Listing | None, *, counted: str) -> None:
    head = ("server", "state", "tools", "connect", "tokens direct", "in the listing")
    took = {r.server: "-" if r.seconds is None else f"{r.seconds:.1f} s" for r in rows}
    lines = [(r.server, r.state, str(r.tools), took[r.server], f"{r.eager_tokens:,}", r.listed) for r in rows]
    if rows:
        printed_table([head, *lines])
        print()
    if tools := sum(r.tools for r in rows):
        eager = sum(r.eager_tokens for r in rows)
        print(f"All {tools:,} tools sent whole by their servers, without the proxy: {eager:,} {counted} tokens a turn.")
        if listing is not None:
            print(f"Through the bridge: a listing of {listing.tokens:,} tokens (tier {listing.tier}).")
        print("narrow-waist tokens adds the instructions, and the longer names that tools have behind the proxy.")
    for row in rows:
        for note in row.notes:
            print(f"{row.server}: {note}")
    for text in said:
        print(text)
