"""The daemon: shared upstreams (failure report X11), who may talk to it (X13, X14), and its health."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from harness import PATIENCE, Daemon, Place, python_server, text_of
from raw_client import CLIENT, ERAS, OLD, HttpClient, http

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


def test_arguments_larger_than_the_sdks_limit_are_taken(open_daemon: Daemon) -> None:
    with http(open_daemon.url) as client:
        large = "x" * (5 * 1024 * 1024)
        result = client.through("raw__arguments", {"content": large})["result"]
        assert json.loads(text_of(result))["params"]["arguments"]["content"] == large
