"""How steady the listing is: what changes for everybody else when one server comes, goes, or gains a tool.

    .venv/bin/python scripts/measure_stability.py                           # tests/catalogs and the tools of retrieval
    .venv/bin/python scripts/measure_stability.py tests/catalogs            # a folder with one JSON file a server
    .venv/bin/python scripts/measure_stability.py catalog.json.gz           # a file as in scripts/retrieval

Each server of at most 60 tools is added to the others, over several budgets and rows of hosts. A change is quiet if no
other server gets another form. Lines are compared too: those of other servers should be the same bytes.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proxy import bridge
from proxy.catalog import Catalog, Server, make_server
from proxy.config import ServerConfig, ToolSearchConfig
from proxy.hosts import HostTable
from proxy.listing import Listing, TextCache
from proxy.tokens import Counts

BUDGETS = (1_000, 2_000, 4_000, 7_000, 10_000, 15_000, 20_000)
ROWS = ("unknown", "claude-code", "openai-1024")
LARGEST = 60
ROOT = Path(__file__).parent.parent
CATALOGS = (ROOT / "tests" / "catalogs", ROOT / "scripts" / "retrieval" / "catalog_mcp.json.gz")


def read(place: Path) -> list[Server]:
    """The servers of a folder with one JSON file a server, or of a gzipped array of tools that name their server."""
    found: list[Server] = []
    if place.is_file():
        tools: dict[str, list[dict[str, Any]]] = {}
        for tool in json.loads(gzip.decompress(place.read_bytes())):
            tools.setdefault(tool["server"], []).append(tool)
        return [make_server(ServerConfig(key=key, transport="stdio"), raw) for key, raw in tools.items()]
    for path in sorted(place.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        topic = (data.get("serverInfo") or {}).get("description")
        found.append(make_server(ServerConfig(key=data["server"], transport="stdio"), data["tools"], topic))
    return found


class Stand:
    """Renders listings of one row and budget; texts and counts are kept between them."""

    cache, counts = TextCache(), Counts()

    def __init__(self, row: str, budget: int) -> None:
        self.row = HostTable().named(row)
        self.settings = ToolSearchConfig(listing="on", listing_max_tokens=budget)

    def listing(self, servers: Sequence[Server]) -> Listing:
        return bridge.placed_tools(self.settings, self.row, Catalog(servers), self.counts.estimated, self.cache)[1]


def more_tools(server: Server) -> Server:
    """The server with one tool more."""
    raw = [dict(tool.raw) for tool in server.tools]
    return make_server(ServerConfig(key=server.key, transport="stdio"), [*raw, {"name": "one_more_tool"}], server.topic)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("catalogs", nargs="*", type=Path, default=CATALOGS, metavar="CATALOG")
    places: Sequence[Path] = parser.parse_args().catalogs
    servers = [server for place in places for server in read(place)]
    small = [server for server in servers if len(server.tools) <= LARGEST]
    if len(servers) < 2 or not small:
        names = ", ".join(map(str, places))
        parser.error(f"{names}: needs two servers or more, one of them with at most {LARGEST} tools")
    print(f"{len(servers)} servers, {sum(len(s.tools) for s in servers):,} tools; {len(small)} of them come and go")
    print(
        "row            additions  quiet  others that change otherwise  lines of others the same  one tool more: quiet"
    )
    for row in ROWS:
        total = quiet = changed = kept = lines = grown = 0
        for budget in BUDGETS:
            stand = Stand(row, budget)
            whole = stand.listing(servers)
            for one in small:
                rest = stand.listing([s for s in servers if s is not one])
                moved = sum(whole.forms[key] != form for key, form in rest.forms.items())
                before, after = ("\n".join(made.slots).split("\n") for made in (rest, whole))
                stay = set(after)
                total, quiet, changed = total + 1, quiet + (moved == 0), changed + moved
                kept, lines = kept + sum(line in stay for line in before), lines + len(before)
                bigger = stand.listing([more_tools(s) if s is one else s for s in servers])
                grown += all(bigger.forms[key] == form for key, form in whole.forms.items() if key != one.key)
        loud = total - quiet
        print(
            f"{row:14} {total:9,}  {quiet / total:5.0%}  {changed / max(loud, 1):28.1f}  {kept / lines:24.1%}"
            f"  {grown / total:20.0%}"
        )
        back = [Stand(row, budget).listing(servers[::-1]).slots for budget in BUDGETS]
        assert back == [Stand(row, budget).listing(servers).slots for budget in BUDGETS], "not the same bytes again"
    print("A server that is lost and comes back with the same list: the same bytes, in every case.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
