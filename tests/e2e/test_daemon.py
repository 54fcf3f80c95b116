"""The daemon: shared upstreams (failure report X11), who may talk to it (X13, X14), and its health."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from harness import PATIENCE, Daemon, Lines, Place, python_server, text_of, until
from raw_client import CLIENT, ERAS, MODERN, OLD, HttpClient, http

TOKEN = "a-token-of-some-length"
PATHS = [("POST", "/mcp"), ("GET", "/mcp"), ("GET", "/sse"), ("POST", "/messages/?session_id=0"), ("GET", "/health")]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": OLD, "capabilities": {}, "clientInfo": CLIENT},
}


@pytest.fixture(scope="module")
def config(shared_place: Place) -> Path:
    servers = {"raw": python_server("raw_server", str(shared_place.folder / "raw"), description="secret-topic")}
    return shared_place.config(servers, allowed_hosts=["proxy.example.com"], first_list_wait=PATIENCE)


@pytest.fixture(scope="module")
def open_daemon(shared_place: Place, config: Path) -> Iterator[Daemon]:
    """Without a token."""
    with Daemon(shared_place, "--config", str(config)) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(shared_place: Place, config: Path) -> Iterator[Daemon]:
    """With a token from a file, on every address of this machine."""
    file = shared_place.folder / "token"
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    file.chmod(0o600)
    with Daemon(shared_place, "--config", str(config), "--token-file", str(file)) as running:
        yield running


def ask(base: str, method: str, path: str, **headers: str) -> tuple[int, str]:
    """Status and, unless it is a stream, text of one request."""
    accept = {"accept": "application/json, text/event-stream"}
    body = {"json": INITIALIZE} if method == "POST" else {}
    with (
        httpx2.Client(timeout=PATIENCE) as client,
        client.stream(method, base + path, headers=accept | headers, **body) as response,
    ):
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            return response.status_code, ""
        return response.status_code, response.read().decode()


class Standing:
    """A stream that stays open, read by a thread."""

    def __init__(self, method: str, url: str, headers: dict[str, str], body: dict[str, Any] | None = None) -> None:
        parts = urlsplit(url)
        self._connection = HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE)
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"} | headers
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        self._connection.request(method, target, json.dumps(body) if body else None, headers)
        self.response = self._connection.getresponse()
        self.lines = Lines(self.response)  # type: ignore[arg-type]

    def close(self) -> None:
        with suppress(OSError, AttributeError):  # it has ended by itself
            # http.client has no other way to hang up while a thread is reading.
            (self._connection.sock or self.response.fp.raw._sock).shutdown(socket.SHUT_RDWR)
        self.lines.close()
        self._connection.close()


@pytest.fixture(scope="module")
def standing(open_daemon: Daemon) -> Iterator[dict[str, Standing]]:
    """One stream of each kind, open from the beginning of this module to its end."""
    session = HttpClient(open_daemon.url)
    session.handshake()
    listen = {"notifications": {"toolsListChanged": True}}
    modern = HttpClient(open_daemon.url, MODERN)
    headers, body = modern.message("subscriptions/listen", listen, 1)
    streams = {
        "sse": Standing("GET", f"{open_daemon.base}/sse", {}),
        "get": Standing("GET", open_daemon.url, session.session),
        "listen": Standing("POST", open_daemon.url, headers, json.loads(body)),
    }
    yield streams
    for stream in streams.values():
        stream.close()
    session.http.close()
    modern.http.close()


def test_streams_of_every_kind_can_be_opened(standing: dict[str, Standing]) -> None:
    for stream in standing.values():
        assert stream.response.status == 200
        assert stream.response.headers["content-type"].startswith("text/event-stream")


def test_clients_share_one_process_of_each_server(open_daemon: Daemon, shared_place: Place) -> None:
    """Failure report X11: a child for each client, never reaped."""
    pids: set[str] = set()
    for _ in range(3):
        with http(open_daemon.url, OLD) as one, http(open_daemon.url, ERAS[1]) as two:
            pids |= {text_of(client.through("raw__pid")["result"]) for client in (one, two)}
    assert len(pids) == 1
    assert pids <= {str(pid) for pid in shared_place.upstreams()}


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_a_foreign_host_or_origin_is_refused_on_every_path(method: str, path: str, open_daemon: Daemon) -> None:
    """Failure report X14: a web page calls the tools of a daemon on loopback."""
    for host in ("evil.com", "evil.com:80", "127.0.0.1.evil.com", "localhost.evil.com:1", "proxy.example.com.evil.com"):
        status, text = ask(open_daemon.base, method, path, host=host)
        assert (status, "allowed_hosts" in text) == (421, True), host
    for origin in ("http://evil.com", "https://127.0.0.1.evil.com", "null", "http://evil.com/127.0.0.1"):
        status, text = ask(open_daemon.base, method, path, origin=origin)
        assert (status, "allowed_hosts" in text) == (403, True), origin


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:5", "proxy.example.com"])
def test_loopback_and_configured_hosts_are_accepted(host: str, open_daemon: Daemon) -> None:
    """Failure report X13."""
    assert ask(open_daemon.base, "POST", "/mcp", host=host)[0] == 200
    assert ask(open_daemon.base, "POST", "/mcp", origin=f"http://{host}")[0] == 200


@pytest.mark.parametrize(("method", "path"), [p for p in PATHS if p[1] != "/health"] + [("GET", "/nothing")])
def test_every_path_wants_the_token(method: str, path: str, guarded: Daemon) -> None:
    wrong = ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN[:-1]}"]
    for value in wrong:
        status, text = ask(guarded.base, method, path, authorization=value)
        assert status == 401, value
        assert "raw" not in text
    assert ask(guarded.base, method, path)[0] == 401
    assert ask(guarded.base, method, path, authorization=f"Bearer {TOKEN}")[0] != 401


@pytest.mark.parametrize("era", ERAS)
def test_a_client_with_the_token_is_served(era: str, guarded: Daemon) -> None:
    with http(guarded.url, era, {"authorization": f"Bearer {TOKEN}"}) as client:
        assert len(client.tools()) == 3


def test_the_token_may_come_from_the_environment(shared_place: Place, config: Path) -> None:
    with Daemon(shared_place, "--config", str(config), NARROW_WAIST_TOKEN=TOKEN) as daemon:
        assert ask(daemon.base, "POST", "/mcp")[0] == 401
        with http(daemon.url, OLD, {"authorization": f"Bearer {TOKEN}"}) as client:
            environment = Path(f"/proc/{text_of(client.through('raw__pid')['result'])}/environ")
            if environment.exists():
                assert TOKEN.encode() not in environment.read_bytes(), "an upstream was given our token"


def test_health_says_only_ok_without_the_token(guarded: Daemon, open_daemon: Daemon) -> None:
    assert ask(guarded.base, "GET", "/health") == (200, "ok")
    assert ask(guarded.base, "GET", "/health", authorization="Bearer wrong") == (200, "ok")
    assert ask(open_daemon.base, "GET", "/health") == (200, "ok"), "where there is no token, nobody has shown it"


def test_health_with_the_token_tells_the_state_of_every_server(guarded: Daemon) -> None:
    with http(guarded.url, OLD, {"authorization": f"Bearer {TOKEN}"}) as client:
        client.through("raw__pid")
    status, text = ask(guarded.base, "GET", "/health", authorization=f"Bearer {TOKEN}")
    health: dict[str, Any] = json.loads(text)
    assert status == 200
    assert health["servers"]["raw"]["state"] == "ready"
    assert health["servers"]["raw"]["tools"] == health["tools"] > 0
    assert TOKEN not in text and "raw_server" not in text


def test_an_address_beyond_this_machine_needs_a_token_and_allowed_hosts(shared_place: Place) -> None:
    servers = {"raw": python_server("raw_server", "never-started")}
    bare = str(shared_place.config(servers, "bare.yaml"))
    named = str(shared_place.config(servers, "named.yaml", allowed_hosts=["proxy.example.com"]))
    for address, config, token in (("0.0.0.0:0", bare, TOKEN), ("[::]:0", named, "")):
        refused = shared_place.cli("--http", address, "--config", config, NARROW_WAIST_TOKEN=token)
        assert refused.returncode == 2
        [line] = refused.stderr.splitlines()
        assert "token" in line and "allowed_hosts" in line


def test_with_both_it_is_served_there(shared_place: Place, config: Path) -> None:
    # The later --http is the one that counts.
    words = ("--http", "0.0.0.0:0", "--config", str(config))
    with Daemon(shared_place, *words, NARROW_WAIST_TOKEN=TOKEN) as daemon:
        base = daemon.base.replace("0.0.0.0", "127.0.0.1")
        assert ask(base, "POST", "/mcp", authorization=f"Bearer {TOKEN}")[0] == 200
        assert ask(base, "POST", "/mcp", authorization=f"Bearer {TOKEN}", host="evil.com")[0] == 421


@pytest.mark.parametrize("address", ["127.0.0.1:x", "127.0.0.1:70000", "nowhere:", "127.0.0.1:1:2"])
def test_an_address_that_is_none_is_an_error_of_one_line(address: str, shared_place: Place, config: Path) -> None:
    refused = shared_place.cli("--http", address, "--config", str(config))
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1 and "Traceback" not in refused.stderr


def test_a_port_that_is_taken_is_an_error_of_one_line(shared_place: Place, config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = shared_place.cli("--http", f"127.0.0.1:{port}", "--config", str(config))
    assert refused.returncode == 2
    [line] = refused.stderr.splitlines()
    assert str(port) in line


def test_an_unknown_session_is_told_so(open_daemon: Daemon) -> None:
    with HttpClient(open_daemon.url).http as client:
        headers = {"accept": "application/json, text/event-stream", "mcp-session-id": "0" * 32}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert client.post(open_daemon.url, json=ping, headers=headers).status_code == 404


@pytest.mark.parametrize("around", ["", "  \t", "   "])
def test_white_space_around_a_header_is_none_of_it(around: str, open_daemon: Daemon) -> None:
    """2026-07-28, Streamable HTTP: a server compares `Mcp-Name` with the body, and RFC 9110 says what its value is."""
    with http(open_daemon.url, MODERN) as client:
        params = {"name": "tool_search", "arguments": {}}
        headers, body = client.message("tools/call", params, 1)
        parts = urlsplit(client.url)
        padded = {**headers, "mcp-name": f"{around}tool_search{around}"}
        with closing(HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE)) as connection:
            connection.request("POST", parts.path, body, padded)
            response = connection.getresponse()
            assert response.status == 200 and "result" in json.loads(response.read())


@pytest.mark.parametrize("name", ["Upgrade", "upgrade"])
def test_a_client_that_would_rather_speak_http_2_is_served_in_http_1(name: str, open_daemon: Daemon) -> None:
    """Java's HTTP client and `curl --http2` ask for it in their first request; its body was taken for HTTP/2."""
    with http(open_daemon.url, MODERN) as client:
        headers, body = client.message("tools/call", {"name": "tool_search", "arguments": {"query": "Upgrade: h2c"}}, 1)
        parts = urlsplit(client.url)
        wish = {
            **headers,
            "Connection": "Upgrade, HTTP2-Settings",
            name: "h2c",
            "HTTP2-Settings": "AAMAAABkAARAAAAAAAIAAAAA",
        }
        with closing(HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE)) as connection:
            for each in (wish, headers):  # the connection stays, and so does HTTP/1.1
                connection.request("POST", parts.path, body, each)
                response = connection.getresponse()
                assert response.status == 200 and "result" in json.loads(response.read())


def test_arguments_larger_than_the_sdks_limit_are_taken(open_daemon: Daemon) -> None:
    with http(open_daemon.url) as client:
        large = "x" * (5 * 1024 * 1024)
        result = client.through("raw__arguments", {"content": large})["result"]
        assert json.loads(text_of(result))["params"]["arguments"]["content"] == large


def test_a_second_standing_stream_replaces_the_first(open_daemon: Daemon) -> None:
    """Failure report X9: the first was cut somewhere on the way, and the client's new one is refused."""
    with http(open_daemon.url) as client:
        streams = [Standing("GET", open_daemon.url, client.session) for _ in range(3)]
        assert [stream.response.status for stream in streams] == [200] * 3
        for stream in streams[:2]:
            until(lambda stream=stream: stream.lines.ended, "the older stream ends")
        assert client.request("ping")["result"] == {}
        assert not streams[2].lines.ended
        for stream in streams:
            stream.close()


def test_an_idle_stream_is_kept_alive_by_comments(standing: dict[str, Standing]) -> None:
    """Failure report X9: idle streams are cut after 60 s by proxies, after 300 s by clients.

    They have been open since the first test of this module, so little of the 15 s is left to wait.
    """
    for stream in standing.values():
        stream.lines.wait("^:")
