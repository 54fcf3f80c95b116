"""`check`: connects every server and says what is wrong, what each costs, and what clients would see."""

import argparse
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import anyio

from proxy.app import App
from proxy.catalog import Server
from proxy.cli.common import settings
from proxy.cli.logs import set_up_logging
from proxy.cli.looking import looking
from proxy.config import Settings
from proxy.eager import shown
from proxy.listing import Listing
from proxy.tokens import estimate
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
    """About what all its schemas cost when they are sent whole, on every turn."""
    listed: str
    """The form of the server in the listing, "eager" where its tools are shown directly."""
    notes: tuple[str, ...]


def run(options: argparse.Namespace) -> int:
    """0 if every enabled server is ready, else 1."""
    config = settings(options)
    set_up_logging(logging.CRITICAL, config, verbose=options.verbose)
    return anyio.run(_check, config, options)


async def _check(config: Settings, options: argparse.Namespace) -> int:
    app = looking(config)
    async with app.running():
        async with anyio.create_task_group() as tasks:
            for connection in app.fleet.connections.values():
                tasks.start_soon(_tried, connection)
        await app.counted()
        listing = await app.listing()
        app.offers()  # what is found in them is noted
        rows = [
            _row(c, app.catalog.servers[key], listing, app.base.notes(key)) for key, c in app.fleet.connections.items()
        ]
        warnings = [*config.warnings, *(f"{s.key}: disabled" for s in config.servers if not s.enabled)]
        if options.json:
            report: dict[str, Any] = {"servers": [asdict(r) for r in rows], "warnings": warnings}
            report["listing"] = None if listing is None else {"tier": listing.tier, "tokens": listing.tokens}
            print(json.dumps(report, indent=1, ensure_ascii=False))
        else:
            _print(rows, warnings, listing, app)
        failed = [r for r in rows if r.state != "ready"]
    return 1 if failed else 0


async def _tried(connection: Connection) -> None:
    """Wait until the server is ready, or one attempt has failed; a lazy one is started too."""
    connection.wake()
    with anyio.move_on_after(connection.config.connect_timeout + 1):
        await connection.wait_tried()


def _row(connection: Connection, server: Server, listing: Listing | None, guarded: Sequence[str]) -> Row:
    notes = [] if connection.state == "ready" else [connection.reason]
    tail = list(connection.stderr.lines)[-3:] if connection.state != "ready" else []
    notes += [f"stderr: {line}" for line in tail if line not in connection.reason]
    notes += [*connection.lists.warnings, *guarded]
    for tool in server.tools:
        if tool.eager and (found := shown(tool)).notes:
            left_out = "" if found.tool is not None else "not shown to clients: "
            notes.append(f"{tool.name}: {left_out}{'; '.join(found.notes)}")
    return Row(
        server.key,
        # One that has failed may be at its next attempt already.
        "failed" if connection.state == "starting" and connection.reason else connection.state,
        len(server.tools),
        connection.connect_seconds,
        sum(estimate(json.dumps(t.raw, ensure_ascii=False)) for t in server.tools),
        listing.forms.get(server.key, "eager") if listing is not None else "eager",
        tuple(notes),
    )


def _print(rows: list[Row], warnings: list[str], listing: Listing | None, app: App) -> None:
    head = ("server", "state", "tools", "connect", "tokens eager", "in the listing")
    table = [head] + [
        (
            r.server,
            r.state,
            str(r.tools),
            "-" if r.seconds is None else f"{r.seconds:.1f} s",
            f"{r.eager_tokens:,}",
            r.listed,
        )
        for r in rows
    ]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    eager = sum(r.eager_tokens for r in rows)
    print(f"\nAll {len(app.catalog.tools):,} tools sent whole: about {eager:,} tokens a turn.")
    if listing is not None:
        print(f"Through the bridge: a listing of {listing.tokens:,} tokens (tier {listing.tier}).")
    for row in rows:
        for note in row.notes:
            print(f"{row.server}: {note}")
    for warning in warnings:
        print(f"config: {warning}")
