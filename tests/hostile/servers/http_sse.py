"""A right server of the legacy HTTP+SSE transport (2024-11-05). `hang` never answers; `port=N` picks the port."""

import json
import queue
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from _raw import RpcError, Server, text, tool

ECHO = {"type": "object", "properties": {"text": {"type": "string"}}}
streams = {}
srv = Server([tool("echo", "Echo.", ECHO), tool("hang")], lambda n, a, p, peer: text(a["text"]), name="sse")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        ident = str(len(streams))
        streams[ident] = queue.Queue()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.event("endpoint", f"/messages?session={ident}")
        while True:
            self.event("message", json.dumps(streams[ident].get()))

    def event(self, kind, data):
        block = f"event: {kind}\r\ndata: {data}\r\n\r\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
        self.wfile.flush()

    def do_POST(self):
        msg = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        stream = streams.get(parse_qs(urlsplit(self.path).query).get("session", [""])[0])
        status = 202 if stream is not None else 404
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if stream is None or "id" not in msg or (msg.get("params") or {}).get("name") == "hang":
            return
        try:
            stream.put(
                {"jsonrpc": "2.0", "id": msg["id"], "result": srv.dispatch(msg["method"], msg.get("params"), None)}
            )
        except RpcError as error:
            stream.put({"jsonrpc": "2.0", "id": msg["id"], "error": error.error})


port = int(next((a[5:] for a in sys.argv if a.startswith("port=")), "0"))
httpd = ThreadingHTTPServer(("127.0.0.1", port), Handler)
httpd.daemon_threads = True
httpd.handle_error = lambda *args: None
print(f"PORT {httpd.server_address[1]}", flush=True)
httpd.serve_forever()
