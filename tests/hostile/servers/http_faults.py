"""Streamable HTTP upstream that answers with one fault (argv[1]) where and as often as argv[2:] say.

argv: FAULT [WHERE [TIMES]]. WHERE is a method (default tools/call; `any` for all); TIMES how often (default: always).
Faults: a status (401, 403, 404, 405, 410, 429, 500, 502, 503), html, empty, cut (chunked, ends early), reset (TCP reset
in the body), loop (redirects to itself), elsewhere (redirect to another origin), text (JSON as text/plain), endless
(an event stream that never answers), wrong_id, not_object, null_result, no_answer (connection closed without a byte),
slow (a byte every 20 ms), gzip_lie (says gzip, is not).
A tool whose name says `fine` never meets the fault. `counts` returns how often each method was asked.
Right behaviour: the one request fails at once with the HTTP status and a short excerpt, says whether it may have run,
and the next call works; at initialize the server is told as unavailable with the reason, 401 and 403 as what a person
must mend.
"""

import json
import socket
import struct
import sys
import time
from collections import Counter

from _raw import Server, serve_http, text, tool

FAULT, WHERE = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "tools/call"
counts = Counter()
left = int(sys.argv[3]) if len(sys.argv) > 3 else 10**9


def call(name, args, params, peer):
    return text(json.dumps(counts) if name == "counts" else f"{name} ok")


srv = Server([tool("fine"), tool("hit"), tool("counts")], call, name="faults")


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def fault(h, msg):
    ok = json.dumps({"jsonrpc": "2.0", "id": msg["id"], "result": text("late ok")}).encode()
    if FAULT.isdecimal():
        return h.reply(int(FAULT), b"<html><body><h1>Nope</h1>" + b"<p>long</p>" * 500 + b"</body></html>", "text/html")
    if FAULT == "html":
        return h.reply(200, b"<!doctype html><title>Sign in</title><script>x()</script><p>Please log in", "text/html")
    if FAULT == "empty":
        return h.reply(200, b"", "application/json")
    if FAULT in ("cut", "reset", "slow", "endless"):
        h.send_response(200)
        h.send_header("Content-Type", "text/event-stream" if FAULT == "endless" else "application/json")
        h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()
        if FAULT == "endless":
            while True:
                h.wfile.write(chunk(b": still here\n\n"))
                time.sleep(0.05)
        if FAULT == "slow":
            for byte in ok:
                h.wfile.write(chunk(bytes([byte])))
                time.sleep(0.005)
            h.wfile.write(b"0\r\n\r\n")
            return None
        h.wfile.write(chunk(ok[:20]))
        h.wfile.flush()
        if FAULT == "reset":
            h.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            h.connection.close()
        h.close_connection = True
        return None
    if FAULT == "loop":
        return h.reply(307, b"", Location=h.path)
    if FAULT == "elsewhere":
        return h.reply(307, b"", Location="http://127.0.0.1:9/other")
    if FAULT == "text":
        return h.reply(200, ok, "text/plain")
    if FAULT == "wrong_id":
        return h.reply(200, {"jsonrpc": "2.0", "id": 999_999, "result": {}})
    if FAULT == "not_object":
        return h.reply(200, [1, 2])
    if FAULT == "null_result":
        return h.reply(200, {"jsonrpc": "2.0", "id": msg["id"], "result": None})
    if FAULT == "no_answer":
        h.close_connection = True
        h.connection.shutdown(socket.SHUT_RDWR)
        return None
    if FAULT == "gzip_lie":
        return h.reply(200, b"not gzip at all", "application/json", Content_Encoding="gzip")
    raise SystemExit(f"unknown fault {FAULT}")


def post(h, msg):
    global left
    method = msg.get("method", "answer")
    counts[method] += 1
    named = (msg.get("params") or {}).get("name", "")
    if "id" in msg and method == WHERE and named not in ("fine", "counts") and left > 0:
        left -= 1
        return fault(h, msg)
    return h.plain(srv, msg)


serve_http(post)
