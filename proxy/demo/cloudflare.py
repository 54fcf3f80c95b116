"""The demo's large server: 2,728 endpoints of the Cloudflare API as tools. A call answers with the request it would be.

    python -m proxy.demo.cloudflare               stdio
    python -m proxy.demo.cloudflare --http PORT   Streamable HTTP on 127.0.0.1

Over HTTP, port 0 stands for any free one, and the first line of stdout is "PORT n". The path does not matter.

Nothing is ever sent to Cloudflare. Written without the SDK, so that it starts in the time it takes to read its catalog
(about 0.2 s), and to be a server of the older kind: it speaks the `initialize` handshake of 2024-11-05 to 2025-11-25,
knows no `server/discover`, and lists its tools in pages. Tests and benchmarks use it as the large upstream.
"""

import argparse
import gzip
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, cast
from urllib.parse import quote

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PAGE = 500
"""Tools in one answer of `tools/list`: large servers page, and a client that reads one page only shows here."""

METHOD_NOT_FOUND, INVALID_PARAMS, PARSE_ERROR = -32601, -32602, -32700
Message = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """One tool and the request that a call of it would send."""

    tool: Message
    verb: str
    path: str
    """A template: `/zones/{zone_id}/dns_records`."""
    query: tuple[str, ...]
    alias: Mapping[str, str]
    """Parameters whose name on the wire differs."""

    def request(self, arguments: Mapping[str, Any]) -> Message:
        """The request for `arguments`, as data; raises KeyError naming a part of the path that is missing."""
        values = {**arguments, **_account_or_zone(arguments)} if "{account_or_zone}" in self.path else arguments
        in_path = re.findall(r"{(\w+)}", self.path)
        path = re.sub(r"{(\w+)}", lambda part: quote(str(values[part[1]]), safe=""), self.path)
        if "account_or_zone" in in_path:
            in_path += ["account_id", "zone_id"]
        rest = {name: value for name, value in arguments.items() if name not in in_path}
        bodyless = self.verb == "GET"
        return {
            "method": self.verb,
            "path": path,
            "query": {self.alias.get(n, n): v for n, v in rest.items() if n in self.query or bodyless},
            "body": {self.alias.get(n, n): v for n, v in rest.items() if not (n in self.query or bodyless)},
        }


def _account_or_zone(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Endpoints that exist for accounts and for zones take either id; the path says which it was."""
    kind = "account" if arguments.get("account_id") else "zone"
    return {"account_or_zone": f"{kind}s", "account_or_zone_id": arguments[f"{kind}_id"]}


def load() -> dict[str, Endpoint]:
    """The catalog that comes with the package, by tool name."""
    packed = files("proxy").joinpath("data/cloudflare.jsonl.gz").read_bytes()
    endpoints: dict[str, Endpoint] = {}
    for line in gzip.decompress(packed).splitlines():
        entry = json.loads(line)
        http = entry["http"]
        query, alias = tuple(http.get("query", ())), http.get("alias", {})
        endpoints[entry["tool"]["name"]] = Endpoint(entry["tool"], http["verb"], http["path"], query, alias)
    return endpoints


class Server:
    """Answers JSON-RPC messages; knows nothing of the transport they came over."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self._tools = [endpoint.tool for endpoint in endpoints.values()]

    def answer(self, message: Any) -> Message | None:
        """The answer to one parsed message; None for notifications and answers."""
        if not isinstance(message, dict) or "method" not in message or "id" not in message:
            return None
        request = cast(Message, message)
        params: Message = request.get("params") or {}
        match request["method"]:
            case "initialize":
                result: Message | None = _initialize(params)
            case "ping":
                result = {}
            case "tools/list":
                result = self._list(str(params.get("cursor") or "0"))
            case "tools/call":
                result = self._call(str(params.get("name")), params.get("arguments") or {})
            case method:
                return _error(request["id"], METHOD_NOT_FOUND, f"Method not found: {method}")
        if result is None:
            return _error(request["id"], INVALID_PARAMS, f"Unknown cursor or tool in {request['method']}")
        return {"jsonrpc": "2.0", "id": request["id"], "result": result}

    def _list(self, cursor: str) -> Message | None:
        start = int(cursor) if cursor.isdecimal() else -1
        if not 0 <= start < len(self._tools):
            return None
        result: Message = {"tools": self._tools[start : start + PAGE]}
        if start + PAGE < len(self._tools):
            result["nextCursor"] = str(start + PAGE)
        return result

    def _call(self, name: str, arguments: Message) -> Message | None:
        if name not in self._endpoints:
            return None
        try:
            request = self._endpoints[name].request(arguments)
        except KeyError as error:
            text = (
                f"{name} needs the argument {error.args[0]!r}, which is part of the path {self._endpoints[name].path}"
            )
            return {"content": [{"type": "text", "text": text}], "isError": True}
        text = json.dumps(request, ensure_ascii=False)
        return {"content": [{"type": "text", "text": text}], "structuredContent": request, "isError": False}


def _initialize(params: Message) -> Message:
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "cloudflare-demo", "title": "Cloudflare API (demo)", "version": "5.9.0"},
        "instructions": "A demo: a call answers with the request that it would send to the Cloudflare API.",
    }


def _error(identifier: Any, code: int, text: str) -> Message:
    return {"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": text}}


def _answer_bytes(server: Server, data: bytes) -> bytes | None:
    try:
        answer = server.answer(json.loads(data))
    except ValueError:
        answer = _error(None, PARSE_ERROR, "Not a JSON message")
    return None if answer is None else json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()


def serve_stdio(server: Server) -> None:
    """Answer one message per line until stdin ends."""
    for line in sys.stdin.buffer:
        if line.strip() and (answer := _answer_bytes(server, line)):
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()


def serve_http(server: Server, port: int) -> None:
    """Answer POSTs on 127.0.0.1 until interrupted. Without sessions and streams, which the protocol leaves optional."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            answer = _answer_bytes(server, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            self._respond(202 if answer is None else 200, answer or b"")

        def do_GET(self) -> None:
            self._respond(405, b"")

        def do_DELETE(self) -> None:
            self._respond(405, b"")

        def _respond(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"PORT {listener.server_address[1]}", flush=True)
    listener.serve_forever()


def main() -> None:
    """Serve as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m proxy.demo.cloudflare")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve Streamable HTTP on 127.0.0.1 instead of stdio")
    port: int | None = parser.parse_args().http
    server = Server(load())
    try:
        serve_stdio(server) if port is None else serve_http(server, port)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
