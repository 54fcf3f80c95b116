"""Streamable HTTP upstream with healthy initialize/list and a tool per kind of bad HTTP answer.

html502, html200 (200 with a login page), empty200, not_json, sse_raw (text/event-stream but a bare JSON body),
sse_multi (data split over lines, comments, CRLF, BOM), sse_cut (stream ends before the reply), no_ctype, redirect
(307 to
/mcp2), s429 (Retry-After), s503, slow_body (5 s), wrong_id, accepted (202 and nothing else), sse_big (a 2 MiB event).
Seen in: envoyproxy/ai-gateway#2218, mcpproxy-go#105, python-sdk#1577, toolhive#2052.
Trap (measured, mcp 2.3.0): every non-2xx without a JSON-RPC body becomes the same "Server returned an error response"
(status lost; 404 with a session -> "Session terminated"), so read the status in an httpx2 hook; and
streamable_http_client(max_sse_event_size=) defaults to 1 MiB, so sse_big fails unless it is raised.
Right behaviour: sse_multi, sse_big, redirect and slow_body succeed; sse_raw succeeds or fails clearly; every other
tool ends
in ONE isError result within the call time-out that names server, HTTP status and a short, tag-free excerpt (no
HTML page into the model); none hangs for ever (202/cut stream); the session stays usable for `fine`.
"""

import json
import time

from _raw import Server, serve_http, text, tool

NAMES = [
    "fine",
    "html502",
    "html200",
    "empty200",
    "not_json",
    "sse_raw",
    "sse_multi",
    "sse_cut",
    "no_ctype",
    "redirect",
    "s429",
    "s503",
    "slow_body",
    "wrong_id",
    "accepted",
    "sse_big",
]
srv = Server([tool(n, f"HTTP case {n}") for n in NAMES], lambda n, a, p, q: text(f"{n} ok"), name="badhttp")
HTML = (
    b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>"
    + b"<p>nginx</p>" * 300
    + b"</body></html>"
)


def post(h, msg):
    if msg.get("method") != "tools/call" or h.path.endswith("/mcp2"):
        return h.plain(srv, msg)
    name, ok = msg["params"]["name"], {"jsonrpc": "2.0", "id": msg["id"], "result": text(msg["params"]["name"] + " ok")}
    if name == "html502":
        return h.reply(502, HTML, "text/html")
    if name == "html200":
        return h.reply(200, HTML, "text/html")
    if name == "empty200":
        return h.reply(200, b"", "application/json")
    if name == "not_json":
        return h.reply(200, b"upstream connect error or disconnect/reset before headers", "application/json")
    if name == "sse_raw":
        return h.reply(200, json.dumps(ok).encode(), "text/event-stream")
    if name == "sse_multi":
        parts = json.dumps(ok, indent=1).replace("\n", "\r\ndata: ")
        return h.reply(
            200,
            b"\xef\xbb\xbf" + f": hello\r\n\r\nevent: message\r\nid: 7\r\ndata: {parts}\r\n\r\n".encode(),
            "text/event-stream",
        )
    if name == "sse_big":
        ok["result"] = text("x" * 2_097_152)
        return h.reply(200, b"event: message\ndata: " + json.dumps(ok).encode() + b"\n\n", "text/event-stream")
    if name == "sse_cut":
        return h.reply(200, b": keepalive\n\n", "text/event-stream")
    if name == "no_ctype":
        h.send_response(200)
        b = json.dumps(ok).encode()
        h.send_header("Content-Length", str(len(b)))
        h.end_headers()
        return h.wfile.write(b)
    if name == "redirect":
        return h.reply(307, b"", Location="/mcp2")
    if name == "s429":
        return h.reply(429, {"error": "rate limited"}, Retry_After="7")
    if name == "s503":
        return h.reply(503, b"Service Unavailable", "text/plain")
    if name == "slow_body":
        time.sleep(5)
    if name == "wrong_id":
        return h.reply(200, {**ok, "id": "not-yours"})
    if name == "accepted":
        return h.reply(202)
    h.plain(srv, msg)


serve_http(post)
