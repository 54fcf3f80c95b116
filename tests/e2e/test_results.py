"""What an upstream answers arrives as it was sent, in both eras and over both transports (failure reports R1 to R6)."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon, Place, python_server, text_of
from raw_client import ERAS, MODERN, RawClient, connected

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
RICH: dict[str, Any] = {
    "content": [
        {
            "type": "text",
            "text": "first é 漢 \u2028",
            "annotations": {"audience": ["user"], "priority": 1.5},
            "x": None,
        },
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png", "_meta": {"codex/imageDetail": "original"}},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///tmp/report.pdf", "name": "report.pdf", "size": 1234},
        {"type": "resource", "resource": {"uri": "mem://note", "mimeType": "text/plain", "text": "embedded"}},
        {"type": "resource", "resource": {"uri": "mem://blob", "mimeType": "application/pdf", "blob": "JVBERi0xLjQ="}},
        {"type": "video", "data": "AAAA", "mimeType": "video/mp4"},
        {"type": "text", "text": "last"},
    ],
    "structuredContent": {"big": 2**53 + 1, "float": 1.0, "null": None, "z": [1, {"a": "ü"}], "b": True, "a": False},
    "_meta": {"own": {"deep": None}, "progressToken": 7},
    "isError": True,
    "unknown": {"field": [1.0, None]},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "rich": {"result": RICH},
    "plain_error": {"result": {"content": [{"type": "text", "text": "no such row"}], "isError": True}},
    "structured_only": {"result": {"structuredContent": {"rows": [1, 2]}, "content": []}},
    "structured_list": {"result": {"structuredContent": [1, 2], "content": []}},
    "no_content": {"result": {}},
    "bad_block": {"result": {"content": [{"type": "text"}, "bare", {"type": "text", "text": "last"}]}},
    "rpc_error": {"error": {"code": -32011, "message": "quota é used up", "data": {"retry": 2**53 + 1, "n": None}}},
    "login": {"error": {"code": -32042, "message": "open this page", "data": {"elicitations": [{"url": "https://x"}]}}},
    "result_type": {"result": {"resultType": "complete", "content": [{"type": "text", "text": "ok"}]}},
}
WAYS = list(product(("stdio", "http"), ERAS))


@pytest.fixture(scope="module")
def config(shared_place: Place) -> Path:
    folder = shared_place.folder / "raw"
    (folder / "answers").mkdir(parents=True)
    for name, answer in ANSWERS.items():
        rest = json.dumps(answer, ensure_ascii=False)[1:-1]
        (folder / "answers" / f"{name}.json").write_text(rest, encoding="utf-8")
    return shared_place.config({"raw": python_server("raw_server", str(folder))})


@pytest.fixture(params=WAYS, ids=["-".join(way) for way in WAYS], scope="module")
def client(request: pytest.FixtureRequest, shared_place: Place, config: Path, daemon: Daemon) -> Iterator[RawClient]:
    """A raw client of each era over each transport."""
    with connected(request.param, shared_place, config, daemon) as client:
        yield client


def expected(result: dict[str, Any], era: str) -> dict[str, Any]:
    """The same result in the envelope of the era."""
    return {**result, "resultType": "complete"} if era == MODERN else result


def received(client: RawClient, name: str, *, bridge: bool) -> dict[str, Any]:
    """A result, without the stamp that the modern era adds to `_meta`."""
    answer = client.through(f"raw__{name}") if bridge else client.call(f"raw__{name}")
    result: dict[str, Any] = answer["result"]
    if client.era == MODERN:
        assert result["_meta"].pop(SERVER_INFO)["name"] == "narrow-waist"
        if not result["_meta"]:
            del result["_meta"]
    else:
        assert SERVER_INFO not in result.get("_meta", {})
    return result


@pytest.mark.parametrize("bridge", [True, False], ids=["tool_call", "direct"])
def test_a_rich_result_arrives_block_for_block_with_everything_unknown(client: RawClient, bridge: bool) -> None:
    result = received(client, "rich", bridge=bridge)
    assert result == expected(RICH, client.era)
    # Equality knows neither the order of keys nor 1 from 1.0; the JSON text does.
    for key in RICH:
        assert json.dumps(result[key]) == json.dumps(RICH[key])


def test_an_error_of_the_tool_stays_an_error_result(client: RawClient) -> None:
    assert received(client, "plain_error", bridge=True) == expected(ANSWERS["plain_error"]["result"], client.era)


def test_structured_content_alone_is_also_given_as_text(client: RawClient) -> None:
    result = received(client, "structured_only", bridge=True)
    assert result["structuredContent"] == {"rows": [1, 2]}
    assert json.loads(text_of(result)) == {"rows": [1, 2]}


def test_structured_content_that_is_no_object_reaches_only_modern_clients_but_its_text_all(client: RawClient) -> None:
    result = received(client, "structured_list", bridge=True)
    assert result.get("structuredContent") == ([1, 2] if client.era == MODERN else None)
    assert json.loads(text_of(result)) == [1, 2]


def test_a_result_without_content_gets_an_empty_one(client: RawClient) -> None:
    assert received(client, "no_content", bridge=True) == expected({"content": []}, client.era)


def test_a_block_that_nobody_can_read_does_not_cost_the_others(client: RawClient) -> None:
    """Failure report R6."""
    content = received(client, "bad_block", bridge=True)["content"]
    assert content[2] == {"type": "text", "text": "last"}
    assert all(isinstance(block, dict) and isinstance(block["text"], str) for block in content)


def test_a_result_type_is_kept_for_modern_clients_only(client: RawClient) -> None:
    result = received(client, "result_type", bridge=True)
    assert result.get("resultType") == ("complete" if client.era == MODERN else None)


def test_a_protocol_error_stays_one_for_a_direct_call(client: RawClient) -> None:
    """Failure report R5."""
    for name in ("rpc_error", "login"):
        assert client.call(f"raw__{name}")["error"] == ANSWERS[name]["error"]


def test_a_protocol_error_through_tool_call_is_a_result_that_tells_all_of_it(client: RawClient) -> None:
    result = received(client, "rpc_error", bridge=True)
    assert result["isError"] is True
    text = text_of(result)
    for part in ("raw", "rpc_error", "-32011", "quota é used up", str(2**53 + 1)):
        assert part in text


def test_an_error_that_asks_something_of_the_client_passes_through_tool_call_unchanged(client: RawClient) -> None:
    assert client.through("raw__login")["error"] == ANSWERS["login"]["error"]


@pytest.mark.parametrize("bridge", [True, False], ids=["tool_call", "direct"])
def test_arguments_arrive_as_they_were_sent(client: RawClient, bridge: bool) -> None:
    arguments = {
        "z": 2**53 + 1,
        "a": 1.0,
        "null": None,
        "é漢": "\u2028😀",
        "m": {"b": [1, {"y": 1e-7, "x": False}]},
        "": "",
    }
    meta = {"traceparent": "00-abc", "own": {"n": None}}
    send = client.through if bridge else client.call
    line = json.loads(text_of(send("raw__arguments", arguments, _meta=meta)["result"]))
    assert json.dumps(line["params"]["arguments"]) == json.dumps(arguments)
    assert line["params"]["name"] == "arguments"
    assert line["params"]["_meta"] == meta, "of `_meta`, all that is not of one hop alone travels on"


def test_a_call_without_arguments_arrives_without_surprises(client: RawClient) -> None:
    answer = client.request("tools/call", {"name": "raw__arguments"})
    line = json.loads(text_of(answer["result"]))
    assert line["params"].get("arguments") in (None, {})


def test_a_dead_upstream_is_an_error_result_that_says_the_call_may_have_run(client: RawClient) -> None:
    result = received(client, "die", bridge=True)
    assert result["isError"] is True
    assert "may have run" in text_of(result)
    assert not received(client, "pid", bridge=True).get("isError"), "it did not come back"


@pytest.mark.parametrize("bridge", [True, False], ids=["tool_call", "direct"])
def test_what_we_refuse_is_one_error_result_either_way(client: RawClient, bridge: bool) -> None:
    result = received(client, "no_such_tool", bridge=bridge)
    assert result["isError"] is True
    assert "no_such_tool" in text_of(result)
