"""How steady the listing is: what changes for everybody else when one server comes, goes, or gains a tool.

    scripts/measure_stability.py [FOLDER]     # catalogs as in tests/catalogs, one JSON file a server

Each server of at most 60 tools is added to the others, over several budgets and rows of hosts. A change is quiet if no
other server gets another form. Lines are compared too: those of other servers should be the same bytes.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from proxy import bridge
from proxy.catalog import Catalog, Server, make_server
from proxy.config import ServerConfig, ToolSearchConfig
from proxy.hosts import HostTable
from proxy.listing import Listing, TextCache
from proxy.tokens import Counts

BUDGETS = (1_000, 2_000, 4_000, 7_000, 10_000, 15_000, 20_000)
ROWS = ("unknown", "claude-code", "openai-1024")
LARGEST = 60
CATALOGS = Path(__file__).parent.parent / "tests" / "catalogs"


def read(folder: Path) -> list[Server]:
    found: list[Server] = []
    for path in sorted(folder.glob("*.json")):
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


def main() -> None:
    servers = read(Path(sys.argv[1]) if len(sys.argv) > 1 else CATALOGS)
    small = [server for server in servers if len(server.tools) <= LARGEST]
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


if __name__ == "__main__":
    main()
