"""Upstream whose tools/list is paginated. argv[1] picks the mode (default: normal).

normal  3 pages of 4 tools (t00..t11); cursor is an opaque base64-looking string.
loop    nextCursor never advances: every page is page 1 again (DeusData/codebase-memory-mcp#1247).
empty   last page carries nextCursor "" ; some clients treat it as "more".
badlast page 3 answers -32602 (expired cursor).
blank   middle page has zero tools but a nextCursor.
Seen in: vercel/ai#19240, Factory-AI/factory#7, open-webui#29912, knowsuchagency/mcp2cli#64 (first page only),
sparfenyuk/mcp-proxy#233 (cursor not forwarded -> endless loop, page 2 unreachable).
Right behaviour: normal/empty/blank -> all 12 tools known, each once, `t11` callable; loop -> stop after a
repeated cursor (or a page cap), 4 distinct tools, a warning, no hang; badlast -> keep the 8 tools already
read (or retry the listing once) and say so in the server's status.
"""

import sys

from _raw import RpcError, Server, serve, text, tool

MODE = sys.argv[1] if len(sys.argv) > 1 else "normal"
ALL = [tool(f"t{i:02d}", f"Paginated tool number {i}") for i in range(12)]
CUR = {None: 0, "b2Zmc2V0OjQ=": 1, "b2Zmc2V0Ojg=": 2}
NEXT = [*list(CUR)[1:], None]


def listing(params):
    c = (params or {}).get("cursor")
    if c not in CUR:
        raise RpcError(-32602, "Invalid cursor")
    page = 0 if MODE == "loop" else CUR[c]
    if MODE == "badlast" and page == 2:
        raise RpcError(-32602, "Cursor expired")
    tools = ALL[page * 4 : page * 4 + 4]
    if MODE == "blank":
        tools = [ALL[:6], [], ALL[6:]][page]
    nxt = NEXT[0] if MODE == "loop" else NEXT[page]
    res = {"tools": tools}
    if nxt is not None:
        res["nextCursor"] = nxt
    elif MODE == "empty":
        res["nextCursor"] = ""
    return res


serve(Server(listing, lambda n, a, p, peer: text(f"called {n}"), name="pages"))
