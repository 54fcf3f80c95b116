"""Programs that others wrote: fastmcp's command, the Inspector; the servers time, git, everything, filesystem."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BRIDGE, PATIENCE, Daemon, Place, proxy, python_server, text_of
from raw_client import ERAS, HttpClient, http


@pytest.fixture(scope="module")
def notes(shared_place: Place) -> Path:
    """A configuration with one small server."""
    servers = {"raw": python_server("raw_server", str(shared_place.folder / "raw"))}
    return shared_place.config(servers, first_list_wait=PATIENCE)


@pytest.fixture(scope="module")
def daemon(shared_place: Place, notes: Path) -> Iterator[Daemon]:
    with Daemon(shared_place, "--config", str(notes), NARROW_WAIST_TOKEN="a-token") as running:
        yield running


def done(place: Place, *words: str, **environ: str) -> str:
    """The stdout of a command that must succeed."""
    finished = place.run(*words, within=55, **environ)
    assert finished.returncode == 0, f"{finished.stdout}\n{finished.stderr}"
    return finished.stdout


def test_fastmcps_command_over_stdio(foreign_fastmcp: Path, shared_place: Place, notes: Path) -> None:
    command = shlex.join(proxy("--config", str(notes)))
    listed = json.loads(done(shared_place, str(foreign_fastmcp), "list", "--command", command, "--json"))
    assert BRIDGE == [tool["name"] for tool in listed["tools"]]
    call = json.dumps({"name": "raw__pid", "arguments": {}})
    words = ["call", "--command", command, "--input-json", call, "--json", "--target", "tool_call"]
    result = json.loads(done(shared_place, str(foreign_fastmcp), *words))
    assert re.fullmatch(r"\d+", result["content"][0]["text"])


def inspector(place: Place, node: Path, *words: str) -> Any:
    script = node / "node_modules" / ".bin" / "mcp-inspector"
    # Without a catalog of its own it would write into the person's home.
    catalog = str(place.folder / "inspector.json")
    return json.loads(done(place, str(node / "bin" / "node"), str(script), "--cli", *words, MCP_CATALOG_PATH=catalog))


@pytest.mark.parametrize(
    ("transport", "era"),
    [("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern"), ("sse", "legacy")],
)
def test_the_inspector_lists_three_tools_and_calls_one_through_tool_call(
    transport: str, era: str, foreign_node: Path, shared_place: Place, notes: Path, daemon: Daemon
) -> None:
    options = ["--protocol-era", era]
    target: list[str] = []
    if transport == "stdio":
        options += ["--connect-timeout", "30000"]
        target = proxy()  # the Inspector takes --config for its own; ./upstreams.yaml is found without it
    else:
        url = daemon.url if transport == "http" else f"{daemon.base}/sse"
        options += ["--transport", transport, "--server-url", url, "--header", "Authorization: Bearer a-token"]
    listed = inspector(shared_place, foreign_node, "--method", "tools/list", *options, *target)
    assert [tool["name"] for tool in listed["tools"]] == BRIDGE
    arguments = ["--tool-arg", "name=raw__arguments", "--tool-arg", 'arguments={"title": "é", "n": 5}']
    call = ["--method", "tools/call", "--tool-name", "tool_call", *arguments]
    result = inspector(shared_place, foreign_node, *call, *options, *target)
    message = json.loads(result["content"][0]["text"])
    assert message["params"]["arguments"] == {"title": "é", "n": 5}


def test_the_inspector_finds_no_fault_in_our_schemas(foreign_node: Path, shared_place: Place, daemon: Daemon) -> None:
    options = ["--transport", "http", "--server-url", daemon.url, "--header", "Authorization: Bearer a-token"]
    listed = inspector(shared_place, foreign_node, *options, "--method", "tools/list", "--strict")
    assert len(listed["tools"]) == 3


# Servers of others as upstreams.


@pytest.fixture(scope="module")
def repository(shared_place: Place) -> Path:
    folder = shared_place.folder / "repository"
    folder.mkdir()
    author = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
    for words in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "The first commit of all"]):
        subprocess.run(["git", *words], cwd=folder, check=True, env={**os.environ, "HOME": str(shared_place.folder)})
    return folder


def shown(place: Place, servers: dict[str, Any]) -> Daemon:
    return Daemon(place, "--config", str(place.config(servers, "foreign.yaml", first_list_wait=PATIENCE)))


@pytest.fixture(scope="module")
def pypi(shared_place: Place, foreign_py: Path, repository: Path) -> Iterator[Daemon]:
    servers = {
        "time": {"command": str(foreign_py / "mcp-server-time"), "args": ["--local-timezone", "Europe/Berlin"]},
        "git": {"command": str(foreign_py / "mcp-server-git"), "args": ["--repository", str(repository)]},
        "git_legacy": {
            "command": str(foreign_py / "mcp-server-git"),
            "args": ["--repository", str(repository)],
            "mode": "legacy",
        },
        "fetch": {"command": str(foreign_py / "mcp-server-fetch")},
    }
    with shown(shared_place, servers) as running:
        yield running


@pytest.fixture(scope="module")
def npm(shared_place: Place, foreign_node: Path) -> Iterator[Daemon]:
    (shared_place.folder / "files").mkdir()
    (shared_place.folder / "files" / "hello.txt").write_text("hello é\n", encoding="utf-8")
    node, bin_folder = str(foreign_node / "bin" / "node"), foreign_node / "node_modules" / ".bin"
    servers = {
        "everything": {"command": node, "args": [str(bin_folder / "mcp-server-everything")]},
        "filesystem": {
            "command": node,
            "args": [str(bin_folder / "mcp-server-filesystem"), str(shared_place.folder / "files")],
        },
    }
    with shown(shared_place, servers) as running:
        yield running


def search(client: HttpClient, query: str) -> list[str]:
    answer = client.call("tool_search", {"query": query})["result"]
    return [match["name"] for match in json.loads(text_of(answer))["matches"]]


@pytest.mark.parametrize("era", ERAS)
def test_the_reference_servers_from_pypi(era: str, pypi: Daemon, repository: Path) -> None:
    with http(pypi.url, era) as client:
        assert [tool["name"] for tool in client.tools()] == BRIDGE
        assert "time__convert_time" in search(client, "convert time between time zones")
        assert "git__git_log" in search(client, "git commit log")
        assert "fetch__fetch" in search(client, "fetch url")
        now = client.through("time__get_current_time", {"timezone": "Asia/Tokyo"})["result"]
        assert "+09:00" in json.dumps(now)
        for server in ("git", "git_legacy"):
            log = client.through(f"{server}__git_log", {"repo_path": str(repository), "max_count": 1})["result"]
            assert not log.get("isError") and "The first commit of all" in json.dumps(log)
        refused = client.through("time__get_current_time", {"timezone": 5})["result"]
        assert refused["isError"] is True and "timezone" in text_of(refused)


@pytest.mark.parametrize("era", ERAS)
def test_the_reference_servers_from_npm(era: str, npm: Daemon, shared_place: Place) -> None:
    folder = shared_place.folder / "files"
    with http(npm.url, era) as client:
        assert [tool["name"] for tool in client.tools()] == BRIDGE
        assert "filesystem__read_text_file" in search(client, "read text file")
        read = client.through("filesystem__read_text_file", {"path": str(folder / "hello.txt")})["result"]
        assert read["content"][0]["text"] == "hello é\n"
        outside = client.through("filesystem__read_text_file", {"path": "/etc/hostname"})["result"]
        assert outside["isError"] is True
        assert client.through("everything__echo", {"message": "é"})["result"]["content"][0]["text"] == "Echo: é"
        image = client.through("everything__get-tiny-image")["result"]
        assert "image" in [block["type"] for block in image["content"]]
        before = len(client.seen)
        long = client.through(
            "everything__trigger-long-running-operation", {"duration": 1, "steps": 5}, _meta={"progressToken": "mine"}
        )
        assert not long["result"].get("isError")
        steps = [m["params"] for m in client.seen[before:] if m.get("method") == "notifications/progress"]
        assert [(s["progressToken"], s["progress"]) for s in steps] == [("mine", n) for n in range(1, 6)]
