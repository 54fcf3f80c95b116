"""A right server that writes each call it runs into a ledger before it answers. argv: ledger, file of pids.

`work` takes `id`, appends `pid id` to the ledger, works for `ms` and answers. With `port=N` it speaks HTTP on that
port, else stdio. For scripts/chaos.py: whatever kills it, no call may be in the ledger twice.
"""

import os
import sys
import time
import uuid

from _raw import Server, serve, serve_http, text, tool

LEDGER, PIDS = sys.argv[1:3]
PORT = next((int(a[5:]) for a in sys.argv if a.startswith("port=")), None)
WORK = {"type": "object", "properties": {"id": {"type": "string"}, "ms": {"type": "integer"}}, "required": ["id"]}
with open(PIDS, "a", encoding="utf-8") as file:
    file.write(f"{os.getpid()}\n")
ledger = open(LEDGER, "ab", buffering=0)
sessions = set()


def call(name, args, params, peer):
    ledger.write(f"{os.getpid()} {args['id']}\n".encode())
    time.sleep(args.get("ms", 0) / 1000)
    return text(args["id"])


def post(h, msg):
    if msg.get("method") == "initialize":
        session = uuid.uuid4().hex
        sessions.add(session)
        return h.plain(srv, msg, Mcp_Session_Id=session)
    if msg.get("method") != "server/discover" and h.headers.get("Mcp-Session-Id") not in sessions:
        return h.error(msg, {"code": -32001, "message": "Session not found"}, status=404)
    return h.plain(srv, msg)


srv = Server([tool("work", "Does work once.", WORK)], call, name="ledger")
if PORT is None:
    serve(srv, threaded=True)
else:
    serve_http(post, PORT)
