"""Tiny raw JSON-RPC 2.0 toolkit for nasty MCP upstreams (stdlib only).

`serve(...)` speaks newline-delimited JSON-RPC over stdin/stdout and behaves like a
plain 2025-era server: it answers initialize / ping / tools/list / tools/call, and
-32601 to everything else (including `server/discover`, so a 2026-07-28 client must
fall back to initialize). `serve_http(...)` does the same over Streamable HTTP.
Every sibling script changes exactly one thing. Nothing here validates the client.
"""

import json
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KNOWN = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
OBJ = {"type": "object", "properties": {}}


class RpcError(Exception):
    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


class NoReply(Exception):
    """Raise from a handler to leave the request unanswered."""


def tool(name, description="", schema=None, **extra):
    return {"name": name, "description": description, "inputSchema": OBJ if schema is None else schema, **extra}


def text(s, **extra):
    return {"content": [{"type": "text", "text": s}], **extra}


class Peer:
    """Write side of a connection: notifications, server->client requests, raw bytes."""

    def __init__(self, write):
        self.write_bytes = write
        self.lock = threading.Lock()
        self.pending = {}
        self.next_id = 1000
        self.notifications = []  # (method, params) received from the client

    def send(self, obj):
        with self.lock:
            self.write_bytes((json.dumps(obj, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"))

    def raw(self, data):
        with self.lock:
            self.write_bytes(data)

    def notify(self, method, params=None):
        self.send({"jsonrpc": "2.0", "method": method, **({"params": params} if params is not None else {})})

    def request(self, method, params=None, timeout=10):
        with self.lock:
            self.next_id += 1
            rid = self.next_id
            box = self.pending[rid] = queue.Queue()
        self.send({"jsonrpc": "2.0", "id": rid, "method": method, **({"params": params} if params is not None else {})})
        try:
            return box.get(timeout=timeout)
        except queue.Empty:
            return {"timeout": True}


class Server:
    def __init__(self, tools, call=None, *, name="nasty", instructions=None, capabilities=None, handlers=None):
        self.tools = tools  # list, or callable(params) -> full result
        self.call = call or (lambda n, a, p, peer: text(f"{n} ok"))
        self.name = name
        self.instructions = instructions
        self.capabilities = {"tools": {"listChanged": True}} if capabilities is None else capabilities
        self.handlers = handlers or {}

    def initialize(self, params):
        want = (params or {}).get("protocolVersion")
        res = {
            "protocolVersion": want if want in KNOWN else KNOWN[-1],
            "capabilities": self.capabilities,
            "serverInfo": {"name": self.name, "version": "0"},
        }
        if self.instructions is not None:
            res["instructions"] = self.instructions
        return res

    def dispatch(self, method, params, peer):
        if method in self.handlers:
            return self.handlers[method](params, peer)
        if method == "initialize":
            return self.initialize(params)
        if method == "ping":
            return {}
        if method == "tools/list":
            return self.tools(params) if callable(self.tools) else {"tools": list(self.tools)}
        if method == "tools/call":
            return self.call(params.get("name"), params.get("arguments"), params, peer)
        raise RpcError(-32601, "Method not found", {"method": method})

    def answer(self, msg, peer):
        rid = msg["id"]
        try:
            peer.send({"jsonrpc": "2.0", "id": rid, "result": self.dispatch(msg["method"], msg.get("params"), peer)})
        except NoReply:
            pass
        except RpcError as e:
            peer.send({"jsonrpc": "2.0", "id": rid, "error": e.error})


def stdout_writer():
    out = sys.stdout.buffer

    def write(data):
        out.write(data)
        out.flush()

    return write


def serve(server, *, threaded=False, peer=None, on_line=None):
    """Run `server` on stdin/stdout until EOF. threaded=True answers tools/call concurrently."""
    peer = peer or Peer(stdout_writer())
    for line in iter(sys.stdin.buffer.readline, b""):
        if on_line:
            on_line(line)
        try:
            msg = json.loads(line)
        except ValueError:
            peer.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}})
            continue
        if "method" not in msg:  # a response to one of our requests
            box = peer.pending.pop(msg.get("id"), None)
            if box:
                box.put(msg)
        elif "id" not in msg:
            peer.notifications.append((msg["method"], msg.get("params")))
        elif threaded and msg["method"] == "tools/call":
            threading.Thread(target=server.answer, args=(msg, peer), daemon=True).start()
        else:
            server.answer(msg, peer)


def serve_http(post, port=0):
    """post(handler, msg) -> None writes the whole HTTP reply. Prints `PORT <n>` on stdout."""

    class H(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *a):
            pass

        def reply(self, status, body=b"", ctype="application/json", **headers):
            if isinstance(body, (dict, list)):
                body = json.dumps(body).encode()
            self.send_response(status)
            if body or status not in (202, 204):
                self.send_header("Content-Type", ctype)
            self.send_header("Content-Length", str(len(body)))
            for k, v in headers.items():
                self.send_header(k.replace("_", "-"), v)
            self.end_headers()
            self.wfile.write(body)

        def result(self, msg, result, **headers):
            self.reply(200, {"jsonrpc": "2.0", "id": msg["id"], "result": result}, **headers)

        def error(self, msg, err, status=200, **headers):
            self.reply(status, {"jsonrpc": "2.0", "id": msg.get("id"), "error": err}, **headers)

        def plain(self, server, msg, **headers):
            """The well-behaved answer."""
            if "id" not in msg:
                return self.reply(202)
            try:
                self.result(msg, server.dispatch(msg["method"], msg.get("params"), None), **headers)
            except RpcError as e:
                self.error(msg, e.error, **headers)

        def do_POST(self):
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                msg = json.loads(raw)
            except ValueError:
                return self.reply(400, {"error": "bad json"})
            try:
                post(self, msg)
            except (BrokenPipeError, ConnectionResetError):
                pass

        def do_GET(self):
            self.reply(405, Allow="POST")

        def do_DELETE(self):
            self.reply(200, {})

    httpd = ThreadingHTTPServer(("127.0.0.1", port), H)
    httpd.daemon_threads = True
    httpd.handle_error = lambda *a: None
    print(f"PORT {httpd.server_address[1]}", flush=True)
    httpd.serve_forever()
