"""The command line, as a person uses it: what it prints, where, with which exit code, and without any secret."""

import json
import sys
from typing import Any

import pytest
from harness import BRIDGE, PATIENCE, Daemon, Place, proxy, python_server, text_of
from raw_client import http, stdio

SECRETS = {
    "TOKEN_VARIABLE": "the-value-of-a-variable",
    "env": "a-literal-environment-value",
    "header": "a-literal-header-value",
    "args": "an-argument-from-a-variable",
}
LEAKY = """
import os, sys
print("starting with", os.environ["FROM_VARIABLE"], os.environ["LITERAL"], *sys.argv[1:], file=sys.stderr)
sys.exit("bad credentials " + os.environ["LITERAL"] + " " + os.environ["FROM_VARIABLE"])
"""


@pytest.fixture(scope="module")
def good(shared_place: Place) -> str:
    """Two servers that work."""
    servers = {
        "raw": python_server("raw_server", str(shared_place.folder / "raw"), description="things to test with"),
        "off": {**python_server("raw_server", "unused"), "enabled": False},
    }
    return str(shared_place.config(servers, "good.yaml"))


@pytest.fixture(scope="module")
def failing(shared_place: Place) -> str:
    """One server that works and three that cannot; all of them know secrets."""
    leaky = {
        "command": sys.executable,
        "args": ["-c", LEAKY, "${ARGUMENT}"],
        "env": {"FROM_VARIABLE": "${TOKEN_VARIABLE}", "LITERAL": SECRETS["env"]},
    }
    servers = {
        "raw": python_server("raw_server", str(shared_place.folder / "raw")),
        "leaky": leaky,
        "missing": {"command": "no-such-command-anywhere"},
        "unset": {"command": sys.executable, "env": {"X": "${NOT_SET_ANYWHERE}"}},
        "web": {
            "url": "http://127.0.0.1:9/mcp?key=${TOKEN_VARIABLE}",
            "headers": {"Authorization": f"Bearer {SECRETS['header']}", "X-Key": "${TOKEN_VARIABLE}"},
        },
    }
    return str(shared_place.config(servers, "failing.yaml"))


def test_list_shows_servers_and_with_a_name_its_tools(shared_place: Place, good: str) -> None:
    every = shared_place.cli("list", "--config", good)
    assert (every.returncode, every.stderr) == (0, "")
    assert every.stdout.splitlines() == ["raw (5 tools)"]
    one = shared_place.cli("list", "raw", "--config", good)
    assert one.returncode == 0
    assert "  raw__pid  Test pid" in one.stdout.splitlines()
    none = shared_place.cli("list", "nothing", "--config", good)
    assert none.returncode == 1
    [line] = none.stderr.splitlines()
    assert "'nothing'" in line and "raw" in line


def test_search_and_describe_answer_as_a_model_is_answered(shared_place: Place, good: str) -> None:
    found = shared_place.cli("search", "test", "pid", "--config", good)
    assert found.returncode == 0
    names = [match["name"] for match in json.loads(found.stdout)["matches"]]
    assert names[0] == "raw__pid"
    described = shared_place.cli("describe", "raw__pid", "raw.count", "--config", good)
    assert [tool["tool"] for tool in json.loads(described.stdout)["tools"]] == ["pid", "count"]
    with stdio(shared_place, proxy("--config", good)) as client:
        client.tools()
        answer = text_of(client.call("tool_search", {"query": "test pid"})["result"])
    assert found.stdout == answer + "\n"


def test_call_prints_the_result_and_its_exit_code_tells(shared_place: Place, good: str) -> None:
    called = shared_place.cli("call", "raw__arguments", '{"é": 9007199254740993}', "--config", good)
    assert called.returncode == 0
    assert json.loads(called.stdout)["params"]["arguments"] == {"é": 9007199254740993}
    unknown = shared_place.cli("call", "raw__pidd", "--config", good)
    assert unknown.returncode == 1
    assert "raw__pid" in unknown.stdout + unknown.stderr, "it does not say what was meant"
    broken = shared_place.cli("call", "raw__pid", "{not json", "--config", good)
    assert broken.returncode == 1
    assert "Traceback" not in broken.stderr


@pytest.mark.parametrize("words", [["call"], ["describe"]], ids=" ".join)
def test_a_tool_s_public_name_waits_for_no_other_server(shared_place: Place, words: list[str]) -> None:
    """A server that never comes up cost every call the whole of its `connect_timeout`."""
    mute = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "connect_timeout": 10 * PATIENCE}
    servers = {"mute": mute, "raw": python_server("raw_server", str(shared_place.folder / "raw"))}
    config = str(shared_place.config(servers, "mute.yaml"))
    done = shared_place.cli(*words, "raw__pid", "--config", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_check_of_good_servers(shared_place: Place, good: str) -> None:
    checked = shared_place.cli("check", "--config", good)
    assert checked.returncode == 0, checked.stdout
    rows = {line.split()[0]: line.split() for line in checked.stdout.splitlines() if line}
    assert rows["raw"][1:3] == ["ready", "5"]
    assert "off: disabled" in checked.stdout
    report = json.loads(shared_place.cli("check", "--json", "--config", good).stdout)
    assert [row["state"] for row in report["servers"]] == ["ready"]


def test_check_of_bad_servers_says_why_for_each(shared_place: Place, failing: str) -> None:
    checked = shared_place.cli("check", "--config", failing, TOKEN_VARIABLE="x" * 10, ARGUMENT="y" * 10)
    assert checked.returncode == 1
    lines = checked.stdout.splitlines()
    states = {line.split()[0]: line.split()[1] for line in lines[1:6]}
    assert states == {"leaky": "failed", "missing": "failed", "raw": "ready", "unset": "failed", "web": "failed"}
    notes = {key: [line for line in lines if line.startswith(f"{key}: ")] for key in states}
    assert "bad credentials" in " ".join(notes["leaky"])
    assert "no-such-command-anywhere" in " ".join(notes["missing"])
    assert "NOT_SET_ANYWHERE" in " ".join(notes["unset"])
    assert notes["web"]
    assert not notes["raw"]


def values() -> dict[str, str]:
    return {"TOKEN_VARIABLE": SECRETS["TOKEN_VARIABLE"], "ARGUMENT": SECRETS["args"]}


@pytest.mark.parametrize("words", [["check"], ["check", "--json"], ["list"], ["call", "leaky__x"]], ids=" ".join)
def test_no_command_prints_a_secret(words: list[str], shared_place: Place, failing: str) -> None:
    finished = shared_place.cli(*words, "-v", "--config", failing, **values())
    output = finished.stdout + finished.stderr
    assert "leaky" in output
    for secret in SECRETS.values():
        assert secret not in output


def test_no_serving_proxy_logs_or_answers_a_secret(shared_place: Place, failing: str) -> None:
    with (
        Daemon(shared_place, "-v", "--config", failing, NARROW_WAIST_TOKEN="our-own-token", **values()) as daemon,
        http(daemon.url, headers={"authorization": "Bearer our-own-token"}) as client,
    ):
        daemon.stderr.wait("server 'leaky' is unavailable")
        answers: list[Any] = [client.through(f"{key}__x") for key in ("leaky", "missing", "unset", "web")]
        answers += [client.call("tool_search", {"query": "zzz"}), client.tools()]
        answers.append(client.http.get(f"{daemon.base}/health", headers=client.session).json())
        seen = json.dumps(answers) + daemon.stderr.text
        assert "bad credentials" in seen
        for secret in [*SECRETS.values(), "our-own-token"]:
            assert secret not in seen
    for file in shared_place.cache.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [secret for secret in SECRETS.values() if secret.encode() in content], file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("servers:\n  a:\n    comand: x\n", ["bad.yaml:3:", "comand", "command"]),
        ("servers:\n  a: {command: x}\n  a: {command: y}\n", ["bad.yaml:3:", "servers.a"]),
        ("servers: [1]\n", ["bad.yaml:1:", "servers"]),
        ("servers:\n  a: {command: x\n", ["bad.yaml:3:"]),
        ("servers:\n  a: {command: x}\ntool_serch: {}\n", ["bad.yaml:3:", "tool_search"]),
    ],
    ids=["unknown key", "twice", "not a map", "not YAML", "unknown root key"],
)
def test_a_bad_configuration_is_one_line_and_exit_code_2(text: str, says: list[str], shared_place: Place) -> None:
    path = shared_place.folder / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    refused = shared_place.cli("list", "--config", str(path))
    assert (refused.returncode, refused.stdout) == (2, "")
    [line] = refused.stderr.splitlines()
    for part in says:
        assert part in line


def test_a_missing_configuration_says_where_it_was_looked_for(place: Place) -> None:
    for words in (["list"], []):
        refused = place.cli(*words)
        assert refused.returncode == 2
        assert str(place.folder / "upstreams.yaml") in refused.stderr
    refused = place.cli("list", "--config", "nowhere.yaml")
    assert refused.returncode == 2
    [line] = refused.stderr.splitlines()
    assert "nowhere.yaml" in line


def test_a_clients_own_json_file_is_served_as_it_stands(place: Place) -> None:
    entry = python_server("raw_server", str(place.folder / "raw"))
    path = place.folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"raw": {**entry, "type": "stdio"}}}, indent="\t"), encoding="utf-8")
    with stdio(place, proxy("--config", str(path))) as client:
        assert [tool["name"] for tool in client.tools()] == BRIDGE
        assert text_of(client.through("raw__pid")["result"]).isdecimal()


def test_help_and_version_need_no_heavy_module(place: Place) -> None:
    heavy = ("mcp", "pydantic", "numpy", "tiktoken", "anyio", "yaml")
    for flag in ("--help", "--version"):
        finished = place.run(sys.executable, "-X", "importtime", "-P", "-m", "proxy", flag)
        assert finished.returncode == 0 and finished.stdout
        imported = {line.split("|")[-1].strip().split(".")[0] for line in finished.stderr.splitlines()}
        assert not imported & set(heavy)


def test_the_demo_shows_three_tools_of_more_than_2600(place: Place) -> None:
    with stdio(place, proxy("--demo")) as client:
        assert [tool["name"] for tool in client.tools()] == BRIDGE
        found = json.loads(text_of(client.call("tool_search", {"query": "create dns record"})["result"]))
        assert found["total"] > 2600
        assert found["matches"][0]["name"] == "cloudflare__dns_records_create"


def test_logs_name_the_tool_that_was_called(shared_place: Place, good: str) -> None:
    with stdio(shared_place, proxy("--config", good)) as client:
        client.through("raw__pid")
        line = client.stderr.wait("raw/pid")  # type: ignore[attr-defined]
        assert "raw-client" in line.string


def test_output_into_a_pipe_that_is_closed_is_no_error(shared_place: Place, good: str) -> None:
    for command in ("list", "check"):
        script = f"{' '.join(proxy(command, '--config', good))} | true"
        finished = shared_place.run("/bin/sh", "-c", script)
        assert (finished.stdout, finished.stderr) == ("", "")
