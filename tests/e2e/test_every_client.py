"""The same tests for every client: the SDKs of Python (1.x, and 2.x in both eras) and TypeScript (both lines), fastmcp.

Behind the proxy are a server of the 1.x SDK and a stateless one of the 2.x SDK, which offer the same. Each client is
one process: it is given all its steps (tests/e2e/clients/steps.py), and the tests read what it has answered.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from harness import BRIDGE, PATIENCE, ROOT, Daemon, Place, proxy, python_server, until
from raw_client import Message

CLIENTS = Path(__file__).parent / "clients"
TOKEN = "a-token"
UPSTREAMS = ("old", "new")
MODERN = ("mcp2-modern", "typescript-v2", "fastmcp")
"""The clients that speak the stateless era."""
PARTS = {
    "mcp1": "mcp1",
    "mcp2-legacy": None,
    "mcp2-modern": None,
    "typescript-v1": "node",
    "typescript-v2": "node",
    "fastmcp": "fastmcp",
}
"""Client -> the foreign environment it is run in; None for our own."""
ALWAYS = [*product(PARTS, ["http"]), *product(("typescript-v1", "typescript-v2", "mcp1"), ["stdio"]), ("mcp1", "sse")]
SLOW = [("mcp2-legacy", "stdio"), ("mcp2-modern", "stdio"), ("fastmcp", "stdio")]
"""The 2.x SDK and fastmcp over stdio are also in test_clients.py and test_foreign.py."""
WAYS = [
    *(pytest.param(way, id="-".join(way)) for way in ALWAYS),
    *(pytest.param(way, id="-".join(way), marks=pytest.mark.slow) for way in SLOW),
]


def command(client: str, foreign: Callable[[str], Path]) -> list[str]:
    """How a client script is started."""
    if client.startswith("typescript"):
        node = foreign("node")
        script = str(CLIENTS / "ts_client.mjs")
        return [str(node / "bin" / "node"), script, str(node / "node_modules"), client.removeprefix("typescript-")]
    name, _, era = client.partition("-")
    part = PARTS[client]
    python = str(foreign(part) / "bin" / "python") if part is not None else sys.executable
    return [python, str(CLIENTS / f"{name}_client.py"), *([era] if era else [])]


def steps() -> dict[str, dict[str, Any]]:
    """Name -> step; a client does them in this order."""

    def through(name: str, **arguments: Any) -> dict[str, Any]:
        return {"name": "tool_call", "arguments": {"name": name, "arguments": arguments}}

    found: dict[str, dict[str, Any]] = {
        "tools": {"do": "tools"},
        "search": {"do": "call", "name": "tool_search", "arguments": {"query": "count progress five"}},
        "describe": {"do": "call", "name": "tool_describe", "arguments": {"names": ["old__count", "new__count"]}},
        "resources": {"do": "resources"},
        "templates": {"do": "templates"},
        "prompts": {"do": "prompts"},
    }
    for key in UPSTREAMS:
        found |= {
            f"{key} echo": {"do": "call", **through(f"{key}__echo", word="é", big=2**53 - 1, none=None)},
            f"{key} wrong": {"do": "call", "name": "tool_call", "arguments": {"name": f"{key}__ecko"}},
            f"{key} count": {"do": "call", **through(f"{key}__count")},
            f"{key} cancel": {"do": "cancel", **through(f"{key}__wait")},
            f"{key} after cancel": {"do": "call", **through(f"{key}__echo")},
            f"{key} refuse": {"do": "call", "name": f"{key}__refuse", "arguments": {}},
            f"{key} refuse through": {"do": "call", **through(f"{key}__refuse")},
            f"{key} ask": {"do": "call", **through(f"{key}__ask")},
            f"{key} log": {"do": "call", "level": "error", **through(f"{key}__log")},
            f"{key} read": {"do": "read", "uri": f"{key}://note"},
            f"{key} read template": {"do": "read", "uri": f"{key}://item/7"},
            f"{key} read none": {"do": "read", "uri": f"{key}://nowhere"},
            f"{key} prompt": {"do": "prompt", "name": f"{key}__greet", "arguments": {"who": "Ada"}},
            f"{key} complete": {"do": "complete", "prompt": f"{key}__greet", "argument": "who", "value": "x"},
        }
    return found


@dataclass
class Record:
    """What one client has answered."""

    client: str
    transport: str
    answers: Mapping[str, Any]
    cancelled: dict[str, Callable[[], bool]] = field(default_factory=dict[str, Callable[[], bool]])

    @property
    def modern(self) -> bool:
        return self.client in MODERN

    def result(self, step: str) -> Message:
        """The result of a call, which must have one."""
        answer = self.answers[step]
        assert "error" not in answer, answer
        return answer["result"]


@pytest.fixture(scope="module")
def servers(foreign: Callable[[str], Path], shared_place: Place) -> dict[str, Any]:
    script = str(Path(__file__).parent / "servers" / "mcp1_server.py")
    ledger = {key: str(shared_place.folder / f"{key}-ledger") for key in UPSTREAMS}
    old = {"command": str(foreign("mcp1") / "bin" / "python"), "args": [script, ledger["old"]]}
    return {"old": old, "new": python_server("sdk_server", ledger["new"], mode="modern")}


@pytest.fixture(scope="module")
def config(shared_place: Place, servers: dict[str, Any]) -> Path:
    return shared_place.config(servers, first_list_wait=PATIENCE)


@pytest.fixture(scope="module")
def daemon(shared_place: Place, config: Path) -> Iterator[Daemon]:
    with Daemon(shared_place, "--config", str(config), NARROW_WAIST_TOKEN=TOKEN) as running:
        yield running


@pytest.fixture(scope="module", params=WAYS)
def record(
    request: pytest.FixtureRequest,
    foreign: Callable[[str], Path],
    shared_place: Place,
    config: Path,
    daemon: Daemon,
) -> Record:
    """All answers of one client over one transport."""
    client, transport = request.param
    target = {"stdio": proxy("--config", str(config)), "http": [daemon.url], "sse": [f"{daemon.base}/sse"]}[transport]
    before = {key: cancellations(shared_place, key) for key in UPSTREAMS}
    environ = {**shared_place.environ(), "TOKEN": TOKEN}
    environ["PYTHONPATH"] = str(ROOT) if PARTS[client] is None else ""  # ours would be found before theirs
    if transport == "stdio":
        target = ["env", f"PYTHONPATH={ROOT}", *target]
    plan = steps()
    done = subprocess.run(
        [*command(client, foreign), transport, *target], input=json.dumps(list(plan.values())),
        capture_output=True, text=True, timeout=55, check=False, cwd=shared_place.folder, env=environ,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == len(plan), f"{lines[-1:]}\n{done.stderr}"
    record = Record(client, transport, dict(zip(plan, map(json.loads, lines), strict=True)))
    for key in UPSTREAMS:
        record.cancelled[key] = lambda key=key: cancellations(shared_place, key) > before[key]
    return record


def cancellations(place: Place, key: str) -> int:
    """How often a call of `wait` was cancelled at a server so far."""
    ledger = place.folder / f"{key}-ledger"
    return ledger.read_text(encoding="utf-8").split().count("cancelled") if ledger.exists() else 0


@pytest.fixture(params=UPSTREAMS)
def key(request: pytest.FixtureRequest) -> str:
    return request.param


def text(result: Message) -> str:
    [block] = result["content"]
    return block["text"]


def test_three_tools_are_listed(record: Record) -> None:
    assert record.answers["tools"] == BRIDGE


def test_a_search_finds_and_a_description_shows_the_tools_of_both_servers(record: Record) -> None:
    found = {match["name"] for match in json.loads(text(record.result("search")))["matches"]}
    assert {"old__count", "new__count"} <= found
    described = json.loads(text(record.result("describe")))["tools"]
    assert [(tool["name"], tool["inputSchema"]) for tool in described] == [
        ("old__count", {"type": "object"}),
        ("new__count", {"type": "object"}),
    ]


def test_a_result_arrives_with_its_text_and_structured_content(record: Record, key: str) -> None:
    result = record.result(f"{key} echo")
    assert not result.get("isError") and text(result) == "echo"
    # A null is left out by the Python SDKs themselves where they print a result.
    assert {k: v for k, v in result["structuredContent"].items() if v is not None} == {"word": "é", "big": 2**53 - 1}


def test_a_wrong_name_is_refused_with_the_right_one(record: Record, key: str) -> None:
    result = record.result(f"{key} wrong")
    assert result["isError"] is True and f"{key}__echo" in text(result)


def test_all_progress_of_a_call_arrives(record: Record, key: str) -> None:
    progress = record.answers[f"{key} count"]["progress"]
    if record.client.startswith("typescript") and record.transport == "stdio":
        # It forgets the progress that it reads together with the result; test_pairings.py shows that all was sent.
        assert progress == [1, 2, 3, 4, 5][: len(progress)]
    else:
        assert progress == [1, 2, 3, 4, 5]


def test_a_cancel_reaches_the_server_and_the_connection_lives_on(record: Record, key: str) -> None:
    assert record.answers[f"{key} cancel"] is True
    until(record.cancelled[key], "the cancellation reaches the server")
    assert text(record.result(f"{key} after cancel")) == "echo"


def test_an_error_keeps_code_message_and_data(record: Record, key: str) -> None:
    error = record.answers[f"{key} refuse"]["error"]
    assert error["code"] == -32011 and "the quota is used up" in error["message"]
    # 2**53 + 1 is no number that JavaScript has: its JSON rounds it.
    assert error["data"] == {"retry": 2**53 if record.client.startswith("typescript") else 2**53 + 1}
    through = record.result(f"{key} refuse through")
    assert through["isError"] is True
    assert all(part in text(through) for part in ("-32011", "the quota is used up", str(2**53 + 1)))


def test_a_question_reaches_the_person_or_is_refused_at_once(record: Record, key: str) -> None:
    answer = record.answers[f"{key} ask"]
    if record.modern and key == "old":
        # 2026-07-28, Multi Round-Trip Requests: nothing may be asked in the middle of a call.
        assert "elicitation" in json.dumps(answer) and not answer.get("asked")
        assert "error" in answer or answer["result"]["isError"] is True
        return
    assert [asked["message"] for asked in answer["asked"]] == ["What is your name?"]
    assert text(record.result(f"{key} ask")) == "accept: Ada é"


def test_log_messages_arrive_from_the_level_that_was_asked_for(record: Record, key: str) -> None:
    logs = record.answers[f"{key} log"]["logs"]
    assert [(log["level"], log["logger"], log["data"]) for log in logs] == [("error", key, {"level": "error"})]


def test_resources_are_listed_and_read_by_their_own_uris(record: Record, key: str) -> None:
    assert {"old://note", "new://note"} <= set(record.answers["resources"])
    assert {"old://item/{id}", "new://item/{id}"} <= set(record.answers["templates"])
    for step, uri in (("read", f"{key}://note"), ("read template", f"{key}://item/7")):
        [content] = record.answers[f"{key} {step}"]
        assert (content["uri"], content["text"]) == (uri, f"content of {uri}")
    error = record.answers[f"{key} read none"]["error"]
    assert error["code"] in (-32002, -32602) and error["data"] == {"uri": f"{key}://nowhere"}


def test_prompts_are_listed_got_and_completed(record: Record, key: str) -> None:
    assert {"old__greet", "new__greet"} <= set(record.answers["prompts"])
    [message] = record.answers[f"{key} prompt"]
    assert message["role"] == "user" and message["content"]["text"] == "Greet Ada"
    assert record.answers[f"{key} complete"] == ["xa", "xb"]
