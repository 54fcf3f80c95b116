"""Streamable HTTP upstream that forgets its session after K tool calls (argv[1], default 2) and then says 404.

argv[2] picks the dialect of "session lost": 404 (spec), 400 ("Missing session ID"), 200err (200 with an error body),
500. `stats` -> {"initializes": n, "executed": n}. Seen in: sparfenyuk/mcp-proxy#149/#158/#241, metamcp#166,
samanhappy/mcphub#742/#574 (message match missed), agentgateway#3622, neotoma#2312 (503 only), typescript-sdk#1476,
keryx#503.
Trap (measured): mcp 2.3.0 raises MCPError with the body's message and keeps the dead session id; every later call
fails too.
Right behaviour: on 404 with a session id the proxy opens a new session (once, single-flight for concurrent calls),
re-lists, and retries that request once - it was refused, so it did not run; the caller sees a normal result.
Other dialects: reconnect before the NEXT call at the latest. No endless loop when the server always says 404.
"""

import json
import sys
import uuid

from _raw import Server, serve_http, text, tool

K = int(sys.argv[1]) if len(sys.argv) > 1 else 2
DIALECT = sys.argv[2] if len(sys.argv) > 2 else "404"
sessions, stats = {}, {"initializes": 0, "executed": 0}


def call(name, args, params, peer):
    if name == "stats":
        return text(json.dumps(stats))
    stats["executed"] += 1
    return text(f"executed {stats['executed']}")


srv = Server([tool("work", "Does work."), tool("stats", "Counters.")], call, name="forgetful")


def post(h, msg):
    sid = h.headers.get("Mcp-Session-Id")
    if msg.get("method") == "initialize":
        stats["initializes"] += 1
        sid = uuid.uuid4().hex
        sessions[sid] = 0
        return h.plain(srv, msg, Mcp_Session_Id=sid)
    if msg.get("method") == "server/discover":
        return h.error(msg, {"code": -32601, "message": "Method not found"})
    if sid not in sessions:
        err = {"code": -32001, "message": "Session not found"}
        if DIALECT == "200err":
            return h.reply(200, b'event: message\ndata: {"error":"Session not found"}\n\n', "text/event-stream")
        return h.error(msg, err, status=int(DIALECT))
    if msg.get("method") == "tools/call" and msg["params"]["name"] == "work":
        sessions[sid] += 1
        if sessions[sid] > K:
            del sessions[sid]
            return h.error(
                msg,
                {"code": -32001, "message": "Session not found"},
                status=404 if DIALECT == "200err" else int(DIALECT),
            )
    h.plain(srv, msg)


serve_http(post)
