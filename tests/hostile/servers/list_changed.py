"""Upstream whose tool set changes at run time.

grow     adds tool extra_N and sends tools/list_changed      shrink   removes the newest extra tool
quiet    adds a tool WITHOUT a notification                  storm    sends 300 list_changed in one burst, no change
Seen in: metamcp, PrefectHQ/fastmcp#4161, smart-mcp-proxy/mcpproxy-go#209, stacklok/toolhive#5749,
Kuadrant/mcp-gateway#555
(a notification every minute without change), apify/apify-mcp-server#1233, kaeawc/auto-mobile#3223.
Right behaviour: after grow, tool_search finds extra_1 within ~1 s and tool_call works; after shrink, calling it gives
"no such tool (it was removed)" with near names; storm -> at most a few tools/list calls (coalesced, say 250 ms) and
NO list_changed downstream, because the proxy's own three tools did not change; a real change sends at most one
downstream list_changed, and only if a description text changed (each one breaks the client's prompt cache).
`stats` tells how many tools/list requests this server has received. With quiet, a miss on tool_call may re-list once.
"""

from _raw import Server, serve, text, tool

extra, stats = [], {"lists": 0}


def listing(params):
    stats["lists"] += 1
    return {"tools": [*BASE, *extra]}


def call(name, args, params, peer):
    if name in ("grow", "quiet"):
        extra.append(tool(f"extra_{len(extra) + 1}", f"Extra tool number {len(extra) + 1}"))
        if name == "grow":
            peer.notify("notifications/tools/list_changed")
    elif name == "shrink" and extra:
        extra.pop()
        peer.notify("notifications/tools/list_changed")
    elif name == "storm":
        for _ in range(300):
            peer.notify("notifications/tools/list_changed")
    elif name == "stats":
        return text(str(stats["lists"]))
    return text(f"{name}: {len(extra)} extra")


BASE = [tool(n, f"{n} the list") for n in ("grow", "shrink", "quiet", "storm", "stats")]
serve(Server(listing, call, name="changing"))
