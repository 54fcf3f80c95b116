"""Clients that speak bare JSON-RPC, so that a test sees exactly what is on the wire.

`era`: a handshake revision ("2024-11-05"), or MODERN, which sends the envelope of 2026-07-28 with every request.
"""

import json
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from harness import PATIENCE, Daemon, Lines, Place, proxy

OLD, MODERN = "2024-11-05", "2026-07-28"
ERAS = (OLD, MODERN)
CLIENT = {"name": "raw-client", "version": "1"}
Message = dict[str, Any]


def enveloped(era: str, params: Mapping[str, Any]) -> Message:
    if era != MODERN:
        return dict(params)
    prefix = "io.modelcontextprotocol/"
    envelope = {f"{prefix}protocolVersion": era, f"{prefix}clientCapabilities": {}, f"{prefix}clientInfo": CLIENT}
    return {**params, "_meta": {**params.get("_meta", {}), **envelope}}


def events(response: httpx2.Response) -> Iterator[str]:
    """The data of each event of a stream. (httpx's own `iter_lines` also cuts at U+2028, which JSON may hold.)"""
    rest = b""
    for chunk in response.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (data := line.removeprefix(b"data:").strip()):
                yield data.decode()


class RawClient:
    """What both transports share."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.ids = count(1)
        self.seen: list[Message] = []
        """Every message that was received, in its order."""

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """Send a request and return its whole answer."""
        raise NotImplementedError

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        raise NotImplementedError

    def handshake(self) -> Message:
        if self.era == MODERN:
            return self.request("server/discover")["result"]
        params = {"protocolVersion": self.era, "capabilities": {}, "clientInfo": CLIENT}
        result: Message = self.request("initialize", params)["result"]
        assert result["protocolVersion"] == self.era
        self.notify("notifications/initialized")
        return result

    def tools(self) -> list[Message]:
        return self.request("tools/list")["result"]["tools"]

    def call(self, name: str, arguments: Any = None, **params: Any) -> Message:
        """The whole answer to a direct `tools/call`."""
        return self.request("tools/call", {"name": name, "arguments": arguments or {}, **params})

    def through(self, name: str, arguments: Any = None, **params: Any) -> Message:
        """The whole answer to a call through `tool_call`."""
        return self.call("tool_call", {"name": name, "arguments": arguments or {}}, **params)


class StdioClient(RawClient):
    """Starts a server process and speaks to it over its pipes."""

    def __init__(self, place: Place, words: Sequence[str], era: str = OLD, **environ: str) -> None:
        super().__init__(era)
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=place.folder, env=place.environ(**environ),
        )  # fmt: skip
        assert self.process.stdout is not None and self.process.stderr is not None
        self.stdout, self.stderr = Lines(self.process.stdout), Lines(self.process.stderr)
        self.lines = count()

    def send(self, message: Message) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Message:
        """The next message, whatever it is."""
        line = self.stdout.take(next(self.lines))
        assert line is not None, f"the proxy closed its output; stderr:\n{self.stderr.text}"
        self.seen.append(json.loads(line))
        return self.seen[-1]

    def start(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request without waiting; its id."""
        ident = next(self.ids)
        self.send({"jsonrpc": "2.0", "id": ident, "method": method, "params": enveloped(self.era, params or {})})
        return ident

    def answer(self, ident: int) -> Message:
        while (message := self.receive()).get("id") != ident or "method" in message:
            pass
        return message

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        return self.answer(self.start(method, params))

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def close(self) -> int:
        """End the server's input and return its exit code."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self.stdout.close()
        self.stderr.close()
        return code

    def __enter__(self) -> "StdioClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def stdio(place: Place, words: Sequence[str], era: str = OLD, **environ: str) -> Iterator[StdioClient]:
    """A client of a server process that has shaken hands."""
    with StdioClient(place, words, era, **environ) as client:
        client.handshake()
        yield client


class HttpClient(RawClient):
    """Streamable HTTP with nothing but an HTTP library."""

    def __init__(self, url: str, era: str = OLD, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(era)
        self.url = url
        self.session: dict[str, str] = dict(headers or {})
        self.http = httpx2.Client(timeout=httpx2.Timeout(PATIENCE))

    @contextmanager
    def stream(
        self, method: str, params: Mapping[str, Any] | None = None, ident: int | None = None
    ) -> Iterator[httpx2.Response]:
        """POST one message and hand out the response before it is read."""
        headers, body = self.message(method, params, ident)
        with self.http.stream("POST", self.url, content=body, headers=headers) as response:
            yield response

    @contextmanager
    def pending(self, method: str, params: Mapping[str, Any], ident: int) -> Iterator[None]:
        """POST a request and wait for nothing, not even the head of the response; then hang up."""
        headers, body = self.message(method, params, ident)
        parts = urlsplit(self.url)
        lines = [f"POST {parts.path} HTTP/1.1", f"host: {parts.netloc}", f"content-length: {len(body)}"]
        head = "\r\n".join([*lines, *(f"{k}: {v}" for k, v in headers.items()), "", ""])
        with socket.create_connection((str(parts.hostname), parts.port or 80)) as sock:
            sock.sendall(head.encode() + body)
            yield

    def message(self, method: str, params: Mapping[str, Any] | None, ident: int | None) -> tuple[dict[str, str], bytes]:
        """Headers and body of one POST."""
        message: Message = {"jsonrpc": "2.0", "method": method, "params": enveloped(self.era, params or {})}
        if ident is not None:
            message["id"] = ident
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json", **self.session}
        if self.era == MODERN:
            headers |= {"mcp-protocol-version": self.era, "mcp-method": method}
            if "name" in message["params"]:
                headers["mcp-name"] = message["params"]["name"]
        return headers, json.dumps(message, ensure_ascii=False).encode()

    def messages(self, response: httpx2.Response) -> Iterator[Message]:
        """The messages of a response, as they come."""
        if response.headers["content-type"].startswith("text/event-stream"):
            texts = events(response)
        else:
            texts = iter([response.read().decode()])
        for text in texts:
            self.seen.append(json.loads(text))
            yield self.seen[-1]

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        ident = next(self.ids)
        with self.stream(method, params, ident) as response:
            if session := response.headers.get("mcp-session-id"):
                self.session["mcp-session-id"] = session
            for message in self.messages(response):
                if message.get("id") == ident and "method" not in message:
                    return message
        raise AssertionError(f"no answer to {method}: HTTP {response.status_code}")

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        with self.stream(method, params) as response:
            assert response.status_code == 202, response.read()


@contextmanager
def http(url: str, era: str = OLD, headers: Mapping[str, str] | None = None) -> Iterator[HttpClient]:
    """A client of an HTTP endpoint that has shaken hands."""
    client = HttpClient(url, era, headers)
    with client.http:
        client.handshake()
        yield client


def connected(way: tuple[str, str], place: Place, config: Path, daemon: Daemon) -> AbstractContextManager[RawClient]:
    """A client over one (transport, era): of a proxy of its own over stdio, of the daemon over HTTP."""
    transport, era = way
    if transport == "stdio":
        return stdio(place, proxy("--config", str(config)), era)
    return http(daemon.url, era)
