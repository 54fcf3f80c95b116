"""Check a directory of catalogs of real servers: everything arrives, names are sound, and who shows what.

    python scripts/check_catalogs.py tests/catalogs [--budget 10000] [--client claude-code]

Each `*.json` is what one server answered: `{"server", "serverInfo", "tools": [...], ...}`. Prints a table of what each
server shows in the listing and the total at the bottom; ends with 1 if anything does not hold:

- every tool of every file is in the catalog (exact duplicates of a name apart);
- every public name is valid, unique, and the same when its server stands alone or the servers come reversed;
- every name that is shown in the whole listing is accepted for a call;
- reversed servers and tools give the same bytes, within the budget.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from proxy.catalog import Catalog, Server, make_server
from proxy.config import ServerConfig
from proxy.hosts import ROWS, HostTable
from proxy.listing import Listing, TextCache, render
from proxy.listing.texts import ServerTexts
from proxy.tokens.o200k import load

PUBLIC = re.compile(r"[A-Za-z0-9_-]{1,64}")
GUIDANCE = 600
"""Characters that the guidance takes in each description, roughly."""


def main() -> int:
    """Check, print, and say with the exit code whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--budget", type=int, default=10_000, help="tokens of listing text (default 10000)")
    parser.add_argument("--client", choices=[row.name for row in ROWS], default="unknown", help="row of hosts")
    options = parser.parse_args()

    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(options.directory.glob("*.json"))]
    if not files:
        print(f"no *.json in {options.directory}", file=sys.stderr)
        return 2
    servers = [server_of(data, data["tools"]) for data in files]
    catalog = Catalog(servers)
    count, cache = counter(), TextCache()
    row = HostTable().named(options.client)
    limits = [None if (limit := row.limit(slot)) is None else max(0, limit - GUIDANCE) for slot in row.slots]

    def listing(of: Catalog, budget: int, slots: Sequence[int | None]) -> Listing:
        return render(of, budget=budget, slots=slots, mode="auto", count=count, cache=cache)

    made = listing(catalog, options.budget, limits)
    problems = [*check_tools(files, servers), *check_names(catalog, servers), *check_listing(catalog, cache)]
    kept = [[dict(tool.raw) for tool in server.tools] for server in servers]
    backwards = Catalog(server_of(data, tools[::-1]) for data, tools in reversed([*zip(files, kept, strict=True)]))
    if render(backwards, budget=options.budget, slots=limits, mode="auto", count=count) != made:
        problems.append("reversed servers and tools give another listing")
    if (text := sum(count(slot) for slot in made.slots)) > options.budget:
        problems.append(f"{text} tokens of listing in a budget of {options.budget}")

    print_table(catalog, made, cache, count)
    characters = sum(len(slot.encode("utf-16-le")) // 2 for slot in made.slots)
    print(
        f"\nlisting: tier {made.tier}, {text} tokens ({made.tokens} reckoned), {characters} characters, row {row.name}"
    )
    forms = Counter(form.partition("-")[0] for form in made.forms.values())
    print(", ".join(f"{number} {form}" for form, number in sorted(forms.items())))
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("all well" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


def server_of(data: dict[str, Any], tools: list[dict[str, Any]]) -> Server:
    """One file's server, configured with nothing but its key."""
    info: dict[str, Any] = data.get("serverInfo") or {}
    return make_server(ServerConfig(key=data["server"], transport="stdio"), tools, info.get("description"))


def counter() -> Callable[[str], int]:
    """Exact o200k counts, remembered."""
    encoding = load()
    known: dict[str, int] = {}

    def count(text: str) -> int:
        if text not in known:
            known[text] = len(encoding.encode_ordinary(text))
        return known[text]

    return count


def check_tools(files: Sequence[dict[str, Any]], servers: Sequence[Server]) -> list[str]:
    """Tools that a file has and its server has not, or that were changed."""
    keys = Counter(server.key for server in servers)
    found = [f"{number} files are of the server {key!r}" for key, number in keys.items() if number > 1]
    for data, server in zip(files, servers, strict=True):
        first: dict[str, Any] = {}
        for raw in data["tools"]:
            first.setdefault(raw["name"], raw)
        kept = {tool.name: tool.raw for tool in server.tools}
        found += [f"{server.key}: lost or changed {name!r}" for name, raw in first.items() if kept.get(name) != raw]
        found += [f"{server.key}: {name!r} comes from nowhere" for name in kept.keys() - first.keys()]
    return found


def check_names(catalog: Catalog, servers: Sequence[Server]) -> list[str]:
    """Public names that are invalid, taken twice, or that depend on which other servers there are."""
    numbers = Counter(tool.public_name for tool in catalog.tools)
    found = [f"{name!r} is the public name of {number} tools" for name, number in numbers.items() if number > 1]
    found += [f"{name!r} is not a valid public name" for name in numbers if not PUBLIC.fullmatch(name)]
    names = {(tool.server, tool.name): tool.public_name for tool in catalog.tools}
    others = [Catalog([server]) for server in servers] + [Catalog(reversed(servers)), Catalog(servers[1:])]
    for other in others:
        for tool in other.tools:
            if names[tool.server, tool.name] != tool.public_name or other.resolve(tool.public_name) is not tool:
                found.append(f"{tool.public_name!r} is another name beside other servers")
    return found


def check_listing(catalog: Catalog, cache: TextCache) -> list[str]:
    """Names as the whole listing shows them that are not accepted as the tool they stand for."""
    found: list[str] = []
    for server in catalog.servers.values():
        texts = cache.of(server)
        shown: set[str] = set()
        prefix = ""
        for line in texts.full if texts else ():
            head, star, _ = line.partition("* (")
            if star and " " not in head and ":" not in head:
                prefix = head
                continue
            name = prefix + line.partition(": ")[0]
            tool = catalog.resolve(name)
            shown.add(tool.name)
            if tool.server != server.key:
                found.append(f"{server.key}: {name!r} is a tool of {tool.server}")
        found += [f"{server.key}: {tool.name!r} is not listed" for tool in server.deferred if tool.name not in shown]
    return found


def print_table(catalog: Catalog, made: Listing, cache: TextCache, count: Callable[[str], int]) -> None:
    """One line per server: its form, and the tokens of its forms."""
    print(f"{'server':30} {'tools':>5}  {'shown as':12} {'names':>6} {'full':>6}  topic")
    totals = [0, 0, 0]
    for key, form in made.forms.items():
        texts = cache.of(catalog.servers[key])
        assert texts is not None
        tools = len(catalog.servers[key].deferred)
        names, full = (count("\n".join(lines)) for lines in (texts.names, texts.full))
        totals = [a + b for a, b in zip(totals, (tools, names, full), strict=True)]
        print(f"{texts.name[:30]:30} {tools:5}  {form:12} {names:6} {full:6}  {topic(texts)}")
    print(f"{f'{len(made.forms)} servers':30} {totals[0]:5}  {'':12} {totals[1]:6} {totals[2]:6}")


def topic(texts: ServerTexts) -> str:
    """The topic in at most 60 characters."""
    short = [line for width, line in texts.summaries if width <= 60]
    return short[-1].partition("): ")[2] if short else ""


if __name__ == "__main__":
    sys.exit(main())
