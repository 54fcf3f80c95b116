"""`doctor`: what each host shows of this proxy, where it would cut, and what to change."""

import argparse
import json
import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
from anyio.to_thread import run_sync

from proxy.cli.common import settings
from proxy.cli.files import surroundings
from proxy.cli.given import Given, given_by
from proxy.cli.logs import set_up_logging
from proxy.cli.looking import all_known, all_tried, looking
from proxy.cli.seen import Seen, Text, TokenCounter, made_for, seen
from proxy.cli.startup import Startup, measure
from proxy.cli.table import printed_table
from proxy.config import Settings
from proxy.errors import ConfigError
from proxy.hosts import UNKNOWN, HostRow

_NOTES = {
    UNKNOWN.name: "any other client",
    "claude-code-2048": "2.1.84 to 2.1.234",
    "openai-1024": "an API behind clients",
    "xai": "an API behind clients",
}
"""What the names of rows leave open."""


def run(options: argparse.Namespace) -> int:
    """0 if nothing has to be changed for the host that is named, else 1."""
    config = settings(options)
    given = Given()
    if options.host is not None:
        given = given_by(_row(config, options.host).name, options.name, surroundings())
        config = settings(options, {**os.environ, **given.values})
    set_up_logging(logging.CRITICAL, config, verbose=options.verbose)
    if options.text and options.host is None:
        raise ConfigError("--text shows the texts of one host: narrow-waist doctor HOST --text")
    rows = list(config.hosts.rows) if options.host is None else [_row(config, options.host)]
    found, startup = anyio.run(_examine, config, rows, options, given)
    if options.json:
        print(json.dumps(_report(found, startup), indent=1, ensure_ascii=False))
    elif options.host is None:
        _print_all(found, startup)
    else:
        _print_one(found[0], startup, options, given)
    # Over all hosts it is an overview: nobody uses every one of them.
    return 1 if options.host is not None and found[0].advice else 0


def _row(config: Settings, name: str) -> HostRow:
    """A row by its name, or by what a client calls itself."""
    known = next((row for row in config.hosts.rows if name in row.client_names), None)
    if known is not None:
        return known
    try:
        return config.hosts.named(name)
    except ConfigError as error:
        raise ConfigError(str(error).replace("host_row: ", "doctor: ")) from None


async def _examine(
    config: Settings, rows: Sequence[HostRow], options: argparse.Namespace, given: Given
) -> tuple[list[Seen], Startup]:
    environ = {**os.environ, **given.values}
    app = looking(config, options.profile, environ)
    async with app.running():
        await all_known(app)
        await all_tried(app, with_login=True)
        await app.counted()
        counter = TokenCounter(exact=config.tool_search.tokenizer == "o200k")
        found = [await seen(app, row, options.name, counter) for row in rows]
    # After that, so that it is a start like most: the lists of the servers are remembered.
    client = rows[0].client_names[0] if len(rows) == 1 and rows[0].client_names else "doctor"
    arguments = ["--demo"] if options.demo else ["--config", str(config.path)]
    arguments += [f"--profile={name}" for name in options.profile or ()]
    startup = await run_sync(measure, arguments, client, environ)
    return [replace(each, advice=[*each.advice, *_late(each.row, startup)]) for each in found], startup


def _late(row: HostRow, startup: Startup) -> list[str]:
    """What to do where we are slower than the host waits."""
    if startup.listed is None:
        return ["The proxy did not answer a client: narrow-waist check says what is wrong."]
    if row.patience is None or startup.listed <= row.patience:
        return []
    took = f"{row.name} waits about {row.patience:g} s, and this start took {startup.listed:.1f} s"
    how = "let it connect to a proxy that runs already (narrow-waist --http)"
    return [f"{took}: {how}, or raise the time it gives a server to start."]


def _cells(text: Text) -> tuple[str, ...]:
    limit = "-" if text.limit is None else f"{text.limit:,}"
    state = f"CUT after {text.limit:,}" if text.cut else "whole" if text.shown else "not shown there"
    return text.slot, f"{text.characters:,}", f"{text.size:,}", f"{text.tokens:,}", limit, state


def _print_all(found: Sequence[Seen], startup: Startup) -> None:
    def line(each: Seen) -> tuple[str, ...]:
        return (
            f"{each.row.name} ({note})" if (note := _NOTES.get(each.row.name)) else each.row.name,
            made_for(each.used),
            str(each.tier),
            f"{sum(text.characters for text in each.texts):,}",
            f"{each.schema_tokens:,}",
            str(sum(text.cut for text in each.texts)),
            str(len(each.tools)),
            str(len(each.advice)),
        )

    head = ("host", "texts made for", "tier", "characters", "tokens", "cut", "tools", "to change")
    printed_table([head, *map(line, found)])
    _print_startup(startup)
    print(f"\n{made_for(UNKNOWN)}: one that does not say who it is, or that this table does not have")
    print("tokens: everything in tools/list, as sent. What to change, and every text: narrow-waist doctor HOST")


def _print_startup(startup: Startup) -> None:
    if startup.initialized is not None and startup.listed is not None:
        print(f"\nFrom start to initialize: {startup.initialized:.2f} s; to tools/list: {startup.listed:.2f} s")


def _print_one(each: Seen, startup: Startup, options: argparse.Namespace, given: Given) -> None:
    row = each.row
    known = f"clientInfo.name {', '.join(row.client_names)}" if row.client_names else "does not say who it is"
    used = made_for(each.used) if each.used.name == UNKNOWN.name else f"the row {each.used.name!r}"
    print(f"{row.name}: {known}; texts made for {used}\n{row.source}\n")
    printed_table([("slot", "characters", "bytes", "tokens", "kept", ""), *map(_cells, each.texts)])
    kinds = Counter(form.partition("-")[0] for form in each.forms.values())
    shown = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"\nTier {each.tier}" + (f"; servers: {shown}" if shown else ""))
    print(f"tools/list: {len(each.tools)} tools, {each.schema_tokens:,} tokens as sent")
    names = ", ".join(row.shown_name(name, options.name) for name in each.tools[:3])
    print(f"names there: {names}" + (f" and {len(each.tools) - 3} more" if len(each.tools) > 3 else ""))
    if given.values:
        print(f"with what our entry in {given.file} gives us: {', '.join(sorted(given.values))}")
    if given.asked:
        print(f"{row.name} knows {', '.join(given.asked)}, which is not known here")
    if row.first_line is not None:
        first = each.texts[-1].text.split("\n")[0][: row.first_line] if each.texts else ""
        print(f"before its own search has loaded us, only this is shown:\n  {first}")
    if row.deferred:
        print("it may hide descriptions until its own search; the instructions name the servers for that case")
    _print_startup(startup)
    print("\nTo change:" if each.advice else "\nNothing to change." + (" Advice:" if each.hints else ""))
    for sentence in each.advice:
        print(f"- {sentence}")
    if each.advice and each.hints:
        print("\nAdvice:")
    for sentence in each.hints:
        print(f"- {sentence}")
    for text in each.texts if options.text else ():
        print(f"\n=== {text.slot} ({text.characters:,} characters)")
        print(text.text[: text.kept])
        if text.cut:
            print(f"--- {row.name} cuts here; it does not show:\n{text.text[text.kept :]}")


def _report(found: Sequence[Seen], startup: Startup) -> dict[str, Any]:
    return {
        "startup": {"initialize_seconds": startup.initialized, "tools_list_seconds": startup.listed},
        "hosts": [
            {
                "host": each.row.name,
                "row": each.used.name,
                "tier": each.tier,
                "tools": len(each.tools),
                "tokens": each.schema_tokens,
                "slots": [
                    {
                        "slot": text.slot,
                        "characters": text.characters,
                        "bytes": text.size,
                        "tokens": text.tokens,
                        "limit": text.limit,
                        "cut": text.cut,
                        "text": text.text,
                    }
                    for text in each.texts
                ],
                "forms": dict(each.forms),
                "source": each.row.source,
                "advice": list(each.advice),
                "hints": list(each.hints),
            }
            for each in found
        ],
    }
