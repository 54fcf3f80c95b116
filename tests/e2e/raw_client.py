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


PREFIX = "io.modelcontextprotocol/"


def enveloped(era: str, params: Mapping[str, Any], capabilities: Mapping[str, Any] | None = None) -> Message:
    if era != MODERN:
        return dict(params)
    envelope = {
        f"{PREFIX}protocolVersion": era,
        f"{PREFIX}clientCapabilities": dict(capabilities or {}),
        f"{PREFIX}clientInfo": CLIENT,
    }
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
        self.capabilities: Message = {}
        self.replies: dict[str, Message] = {}
        """Method -> what the client answers when it is asked that; what is not here is not answered."""

    def reply(self, message: Message) -> None:
        """Answer a request of the server, if there is an answer."""
        if "id" in message and message.get("method") in self.replies:
            self.post({"jsonrpc": "2.0", "id": message["id"], "result": self.replies[message["method"]]})

    def post(self, message: Message) -> None:
        """Send a message that is no request."""
        raise NotImplementedError

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """Send a request and return its whole answer."""
        raise NotImplementedError

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        self.post({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def handshake(self) -> Message:
        if self.era == MODERN:
            return self.request("server/discover")["result"]
        params = {"protocolVersion": self.era, "capabilities": self.capabilities, "clientInfo": CLIENT}
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
        params = enveloped(self.era, params or {}, self.capabilities)
        self.send({"jsonrpc": "2.0", "id": ident, "method": method, "params": params})
        return ident

    def answer(self, ident: int) -> Message:
        while (message := self.receive()).get("id") != ident or "method" in message:
            self.reply(message)
        return message

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        return self.answer(self.start(method, params))

    def post(self, message: Message) -> None:
        self.send(message)

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
def stdio(
    place: Place, words: Sequence[str], era: str = OLD, replies: Mapping[str, Message] | None = None, **environ: str
) -> Iterator[StdioClient]:
    """A client of a server process that has shaken hands; it declares, and answers, what `replies` holds."""
    with StdioClient(place, words, era, **environ) as client:
        client.replies = dict(replies or {})
        client.capabilities = {method.partition("/")[0]: {} for method in client.replies}
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
        params = enveloped(self.era, params or {}, self.capabilities)
        message: Message = {"jsonrpc": "2.0", "method": method, "params": params}
        if ident is not None:
            message["id"] = ident
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json", **self.session}
        if self.era == MODERN:
            headers |= {"mcp-protocol-version": self.era, "mcp-method": method}
            if (name := params.get("name", params.get("uri"))) is not None:
                headers["mcp-name"] = name
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
                self.reply(message)
        raise AssertionError(f"no answer to {method}: HTTP {response.status_code}")

    def post(self, message: Message) -> None:
        headers, _ = self.message(str(message.get("method")), None, None)
        response = self.http.post(self.url, content=json.dumps(message, ensure_ascii=False).encode(), headers=headers)
        assert response.status_code == 202, response.read()


@contextmanager
def http(
    url: str, era: str = OLD, headers: Mapping[str, str] | None = None, replies: Mapping[str, Message] | None = None
) -> Iterator[HttpClient]:
    """A client of an HTTP endpoint that has shaken hands; it declares, and answers, what `replies` holds."""
    client = HttpClient(url, era, headers)
    client.replies = dict(replies or {})
    client.capabilities = {method.partition("/")[0]: {} for method in client.replies}
    with client.http:
        client.handshake()
        yield client


def connected(
    way: tuple[str, str], place: Place, config: Path, daemon: Daemon, replies: Mapping[str, Message] | None = None
) -> AbstractContextManager[RawClient]:
    """A client over one (transport, era): of a proxy of its own over stdio, of the daemon over HTTP."""
    transport, era = way
    if transport == "stdio":
        return stdio(place, proxy("--config", str(config)), era, replies)
    return http(daemon.url, era, replies=replies)


def begin(client: RawClient, name: str, **arguments: Any) -> AbstractContextManager[Any]:
    """Send a call that never ends; leaving the block cancels it the way of the client's transport and era."""
    params = {"name": "tool_call", "arguments": {"name": name, "arguments": arguments}}
    if isinstance(client, StdioClient):
        return _cancelled_by_notification(client, client.start("tools/call", params))
    assert isinstance(client, HttpClient)
    if client.era == MODERN:  # closing the connection is the cancel
        return client.pending("tools/call", params, next(client.ids))
    return _cancelled_by_post(client, params)


@contextmanager
def _cancelled_by_notification(client: RawClient, ident: int) -> Iterator[None]:
    yield
    client.notify("notifications/cancelled", {"requestId": ident, "reason": "changed my mind"})


@contextmanager
def _cancelled_by_post(client: HttpClient, params: dict[str, Any]) -> Iterator[None]:
    ident = next(client.ids)
    with client.pending("tools/call", params, ident), _cancelled_by_notification(client, ident):
        yield
