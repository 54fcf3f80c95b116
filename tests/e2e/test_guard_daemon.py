"""The daemon with tokens and profiles: who comes in, what they see, and that the rest are refused or bounded."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from harness import PATIENCE, Daemon, Place, python_server, text_of
from raw_client import CLIENT, ERAS, OLD, http

ACCEPT = {"accept": "application/json, text/event-stream"}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": OLD, "capabilities": {}, "clientInfo": CLIENT},
}


def answer(folder: Path, *names: str) -> None:
    (folder / "answers").mkdir(parents=True)
    for name in names:
        (folder / "answers" / f"{name}.json").write_text(
            f'"result": {{"content": [{{"type": "text", "text": "{name}"}}]}}'
        )


@pytest.fixture(scope="module")
def config(shared_place: Place) -> Path:
    servers: dict[str, Any] = {}
    for name in ("home", "work"):
        answer(shared_place.folder / name, f"only_{name}")
        servers[name] = python_server("raw_server", str(shared_place.folder / name))
    return shared_place.config(
        servers,
        toolsets={name: {"servers": [name]} for name in servers},
        profiles={"home": {"enabled": ["home"]}, "work": {"enabled": ["work"]}, "both": {}},
        guard={"max_sessions": 20, "max_body": 100_000, "body_timeout": 1, "audit": {"file": "audit.jsonl"}},
        first_list_wait=PATIENCE,
    )


@pytest.fixture(scope="module")
def tokens(shared_place: Place, config: Path) -> dict[str, str]:
    made: dict[str, str] = {}
    for name, profiles in (("all", ()), ("worker", ("work",)), ("two", ("home", "work")), ("gone", ("work",))):
        words = [word for profile in profiles for word in ("--for", profile)]
        done = shared_place.cli("token", "create", name, *words, "--config", str(config))
        assert done.returncode == 0, done.stderr
        made[name] = done.stdout.strip()
    return made


@pytest.fixture(scope="module")
def daemon(shared_place: Place, config: Path, tokens: dict[str, str]) -> Iterator[Daemon]:
    with Daemon(shared_place, "--config", str(config)) as running:
        yield running


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def post(url: str, token: str, **headers: str) -> int:
    return httpx2.post(
        url, json=INITIALIZE, headers={**ACCEPT, **bearer(token), **headers}, timeout=PATIENCE
    ).status_code


def seen(url: str, token: str, era: str = OLD) -> set[str]:
    """The servers that a caller finds, and whether the hidden ones can be called."""
    found: set[str] = set()
    with http(url, era, bearer(token)) as client:
        listed = json.dumps([client.tools(), client.call("tool_search", {})])
        for name in ("home", "work"):
            result = client.through(f"{name}__only_{name}")["result"]
            direct = client.call(f"{name}__only_{name}")["result"]
            runs = not result.get("isError")
            assert runs == (not direct.get("isError")) == (f"only_{name}" in listed)
            if runs:
                found.add(name)
    return found


@pytest.mark.parametrize("era", ERAS)
def test_url_and_token_both_narrow(era: str, daemon: Daemon, tokens: dict[str, str]) -> None:
    url = daemon.url
    assert seen(url, tokens["all"], era) == {"home", "work"}
    assert seen(f"{url}/home", tokens["all"], era) == {"home"}
    assert seen(f"{url}/both", tokens["all"], era) == {"home", "work"}
    assert seen(url, tokens["worker"], era) == {"work"}
    assert seen(f"{url}/work", tokens["two"], era) == {"work"}
    assert seen(url, tokens["two"], era) == set(), "without a profile in the URL, all of a token's apply at once"


def test_a_profile_that_the_token_does_not_open_does_not_exist(daemon: Daemon, tokens: dict[str, str]) -> None:
    bodies: set[tuple[int, str]] = set()
    for path in ("/mcp/home", "/mcp/both", "/mcp/no-such", "/sse/home", "/mcp/work/x", "/sse/home/messages/"):
        method = "GET" if path == "/sse/home" else "POST"
        done = httpx2.request(
            method, daemon.base + path, headers={**ACCEPT, **bearer(tokens["worker"])}, timeout=PATIENCE
        )
        bodies.add((done.status_code, done.text))
    assert bodies == {(404, "Not Found")}
    assert post(f"{daemon.url}/home", "wrong") == 401, "whoever has no token learns nothing of profiles"
    assert httpx2.post(daemon.url, json=INITIALIZE, headers=ACCEPT, timeout=PATIENCE).status_code == 401


def test_a_session_belongs_to_its_token_and_profile(daemon: Daemon, tokens: dict[str, str]) -> None:
    with http(f"{daemon.url}/work", OLD, bearer(tokens["all"])) as client:
        session = {"mcp-session-id": client.session["mcp-session-id"]}
        call = {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "tools/call",
            "params": {"name": "work__only_work", "arguments": {}},
        }
        for url, token in ((daemon.url, "all"), (f"{daemon.url}/home", "all"), (f"{daemon.url}/work", "worker")):
            done = httpx2.post(url, json=call, headers={**ACCEPT, **bearer(tokens[token]), **session}, timeout=PATIENCE)
            assert done.status_code == 404, (url, token)
        assert text_of(client.through("work__only_work")["result"]) == "only_work"


def test_health_tells_each_token_of_its_own_servers(daemon: Daemon, tokens: dict[str, str]) -> None:
    def health(token: str) -> str:
        return httpx2.get(f"{daemon.base}/health", headers=bearer(token), timeout=PATIENCE).text

    assert health("wrong") == "ok"
    assert set(json.loads(health(tokens["worker"]))["servers"]) == {"work"}
    assert set(json.loads(health(tokens["all"]))["servers"]) == {"home", "work"}


def test_tokens_are_kept_as_hashes_and_never_in_a_log(
    daemon: Daemon, shared_place: Place, tokens: dict[str, str]
) -> None:
    [file] = shared_place.folder.rglob("tokens.json")
    assert file.stat().st_mode & 0o077 == 0
    for token in tokens.values():
        assert token not in file.read_text(encoding="utf-8")
        assert token not in daemon.stderr.text
        assert not any(token in command for command in shared_place.processes().values())


def test_a_revoked_token_is_refused_at_once(daemon: Daemon, shared_place: Place, tokens: dict[str, str]) -> None:
    with http(daemon.url, OLD, bearer(tokens["gone"])) as client:
        client.tools()
        assert shared_place.cli("token", "revoke", "gone").returncode == 0
        assert post(daemon.url, tokens["gone"]) == 401
    assert "gone" not in shared_place.cli("token", "list").stdout
    assert seen(daemon.url, tokens["worker"]) == {"work"}


def test_the_audit_names_token_profile_and_real_tool(
    daemon: Daemon, shared_place: Place, tokens: dict[str, str], config: Path
) -> None:
    with http(f"{daemon.url}/work", OLD, bearer(tokens["worker"])) as client:
        client.through("work__only_work", {"word": "not-to-be-kept"})
    entry = json.loads((shared_place.folder / "audit.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert [entry[key] for key in ("caller", "profile", "server", "tool", "outcome")] == [
        "worker", "work", "work", "only_work", "ok",
    ]  # fmt: skip
    assert "not-to-be-kept" not in json.dumps(entry)
    printed = shared_place.cli("audit", "--last", "1", "--config", str(config)).stdout
    assert "work/only_work" in printed and "worker" in printed


def test_an_oversize_body_is_refused(daemon: Daemon, tokens: dict[str, str]) -> None:
    large = json.dumps({**INITIALIZE, "padding": "x" * 200_000})
    headers = {**ACCEPT, **bearer(tokens["all"]), "content-type": "application/json"}
    assert httpx2.post(daemon.url, content=large, headers=headers, timeout=PATIENCE).status_code == 413

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(large), 10_000):
            yield large[start : start + 10_000].encode()

    assert httpx2.post(daemon.url, content=chunks(), headers=headers, timeout=PATIENCE).status_code == 413


def test_a_slow_body_is_given_up_while_others_are_served(daemon: Daemon, tokens: dict[str, str]) -> None:
    host, port = daemon.base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as slow:
        lines = ["POST /mcp HTTP/1.1", f"host: {host}", f"authorization: Bearer {tokens['all']}", "content-length: 100"]
        slow.sendall("\r\n".join([*lines, "content-type: application/json", "", '{"j']).encode())
        assert seen(daemon.url, tokens["worker"]) == {"work"}
        assert b" 408 " in slow.recv(1000).split(b"\r\n")[0]


def test_sessions_that_nobody_ends_never_shut_a_client_out(daemon: Daemon, tokens: dict[str, str]) -> None:
    """Failure report X10. The limit is 20 here; a client that goes on using its session keeps it."""
    with http(daemon.url, OLD, bearer(tokens["worker"])) as good:
        for number in range(60):
            assert post(daemon.url, tokens["all"]) == 200
            if number % 10 == 0:
                assert text_of(good.through("work__only_work")["result"]) == "only_work"
        assert text_of(good.through("work__only_work")["result"]) == "only_work"
    assert seen(daemon.url, tokens["worker"]) == {"work"}
