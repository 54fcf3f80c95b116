"""A right Streamable HTTP server with sessions; a restart forgets them. `port=N` picks the port."""

import sys
import uuid

from _raw import Server, serve_http, text, tool

ECHO = {"type": "object", "properties": {"text": {"type": "string"}}}
srv = Server([tool("echo", "Echo.", ECHO)], lambda n, a, p, peer: text(a["text"]), name="sessions")
sessions = set()


def post(h, msg):
    if msg.get("method") == "initialize":
        session = uuid.uuid4().hex
        sessions.add(session)
        return h.plain(srv, msg, Mcp_Session_Id=session)
    if msg.get("method") != "server/discover" and h.headers.get("Mcp-Session-Id") not in sessions:
        return h.error(msg, {"code": -32001, "message": "Session not found"}, status=404)
    return h.plain(srv, msg)


serve_http(post, int(next((a[5:] for a in sys.argv if a.startswith("port=")), "0")))
