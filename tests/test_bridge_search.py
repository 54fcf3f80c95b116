"""The answers of search."""

import json
from typing import Any

import pytest
from bridge_answers import SETTINGS, catalog, checked, five_servers, search, text_of, tool

from proxy.bridge import listed_topics, search_answer
from proxy.catalog import Catalog
from proxy.listing import TextCache
from proxy.search import Index
from proxy.tokens import estimate


@pytest.fixture(scope="module")
def several() -> Catalog:
    return five_servers()[0]


@pytest.fixture(scope="module")
def index() -> Index:
    return five_servers()[1]


def test_a_match_has_what_a_call_needs_first(several: Catalog, index: Index) -> None:
    answer = search(several, index, {"query": "create github issue"})
    assert list(answer["matches"][0])[:4] == ["name", "signature", "description", "server"]
    assert answer["matches"][0]["name"] == "github__create_issue"
    assert answer["matches"][0]["signature"].startswith("owner: str, repo: str, title: str")
    assert len(answer["matches"]) == 5
    assert answer["total"] == len(several.tools)


def test_names_of_further_matches_follow_and_paging_goes_on(several: Catalog, index: Index) -> None:
    first = search(several, index, {"query": "list files", "limit": 2})
    assert first["next_offset"] == 2
    second = search(several, index, {"query": "list files", "limit": 2, "offset": 2})
    assert [m["name"] for m in second["matches"]] == first["more"][:2]


def test_detail_chooses_names_or_schemas(several: Catalog, index: Index) -> None:
    names = search(several, index, {"query": "create issue", "detail": "names"})
    assert all(list(match) == ["name"] for match in names["matches"])
    full = search(several, index, {"query": "create issue", "detail": "full"})
    assert all(m["inputSchema"] == several.resolve(m["name"]).input_schema for m in full["matches"])


def test_a_match_that_stands_out_carries_its_schema(several: Catalog, index: Index) -> None:
    named = search(several, index, {"query": "git_log"})
    assert named["matches"][0]["inputSchema"] == several.resolve("git_log").input_schema
    assert all("inputSchema" not in match for match in named["matches"][1:])
    large = tool("big", inputSchema={"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(900)}})
    one = catalog({"a": [large]})
    assert "inputSchema" not in search(one, Index(one), {"query": "big"})["matches"][0]


def test_destructive_tools_are_marked_and_no_others() -> None:
    found = catalog({"a": [tool("wipe disk", annotations={"destructiveHint": True}), tool("read disk")]})
    matches = search(found, Index(found), {"query": "disk"})["matches"]
    assert {m["name"]: m.get("risk") for m in matches} == {
        found.resolve("wipe disk").public_name: "destructive",
        found.resolve("read disk").public_name: None,
    }


def test_several_queries_are_grouped_and_a_repeated_tool_is_a_name(several: Catalog, index: Index) -> None:
    answer = search(several, index, {"queries": ["create issue", "issue create", "blorp"], "limit": 3})
    first, second, third = answer["results"]
    assert [r["query"] for r in answer["results"]] == ["create issue", "issue create", "blorp"]
    repeated = {m["name"] for m in first["matches"]}
    assert all((list(m) == ["name"]) == (m["name"] in repeated) for m in second["matches"])
    assert third["matches"] == [] and third["unmatched"] == ["blorp"]
    assert "github" in answer["servers"]


def test_more_than_ten_queries_are_answered_for_ten_and_the_others_named(several: Catalog, index: Index) -> None:
    answer = search(several, index, {"queries": [f"file {n}" for n in range(12)]})
    assert len(answer["results"]) == 10
    assert answer["omitted_queries"] == ["file 10", "file 11"]


def test_every_exact_name_survives_the_limit(several: Catalog, index: Index) -> None:
    """S1: a query of several exact names missed one of them."""
    answer = search(several, index, {"query": "git_log read_file convert_time", "limit": 1})
    assert [m["name"] for m in answer["matches"]] == ["git__git_log", "filesystem__read_file", "time__convert_time"]


@pytest.mark.parametrize("arguments", [{}, None, {"query": ""}, {"query": None, "queries": []}, "", {"query": "  "}])
def test_an_empty_query_pages_through_everything(several: Catalog, index: Index, arguments: Any) -> None:
    answer = search(several, index, arguments)
    seen = [m["name"] for m in answer["matches"]]
    while "next_offset" in answer:
        answer = search(several, index, {"offset": answer["next_offset"]})
        seen += [m["name"] for m in answer["matches"]]
    assert seen == [t.public_name for t in several.tools]


def test_a_server_alone_pages_through_that_server(several: Catalog, index: Index) -> None:
    answer = search(several, index, {"server": "time"})
    assert [m["server"] for m in answer["matches"]] == ["time"] * len(several.servers["time"].tools)
    assert "next_offset" not in answer


def test_limits_are_clamped(several: Catalog, index: Index) -> None:
    assert len(search(several, index, {"query": "file", "limit": 999})["matches"]) <= SETTINGS.max_search_limit
    assert len(search(several, index, {"query": "file", "limit": -3})["matches"]) == 1


def test_a_miss_names_the_words_the_servers_and_what_is_down(several: Catalog, index: Index) -> None:
    answer = search(several, index, {"query": "blorptastic"}, slack="connection refused")
    assert answer["matches"] == []
    assert answer["unmatched"] == ["blorptastic"]
    assert answer["servers"]["github"] == "26 tools: issues, pull requests, code"
    assert answer["unavailable"] == {"slack": "connection refused"}
    assert "another noun" in answer["hint"]


def test_servers_without_a_topic_of_their_own_are_told_by_what_their_tools_are_about(
    several: Catalog, index: Index
) -> None:
    topics = listed_topics(TextCache())
    text = text_of(search_answer({"query": "blorp"}, several, index, SETTINGS, unavailable={}, topic_of=topics))
    told = json.loads(text)["servers"]
    assert "entity" in told["memory"] and told["time"].startswith("2 tools: ")
    assert all(len(line) < 650 for line in text.split("\n"))


def test_a_misspelt_name_is_answered_with_the_nearest(several: Catalog, index: Index) -> None:
    assert "github__create_issue" in search(several, index, {"query": "craeteissue"})["near"]


def test_an_unknown_server_is_never_answered_with_tools_of_another(several: Catalog, index: Index) -> None:
    answer = search(several, index, {"query": "create issue", "server": "gihub"})
    assert answer["matches"] == []
    assert "github" in answer["hint"] and "time" in answer["servers"]


@pytest.mark.parametrize("server", ["GitHub", "git-hub", "git_hub"])
def test_a_server_is_understood_in_any_case_and_with_any_separator(several: Catalog, index: Index, server: str) -> None:
    assert search(several, index, {"query": "issue", "server": server})["matches"][0]["server"] == "github"


def test_no_tools_at_all_is_explained() -> None:
    nothing = catalog({"slack": None})
    answer = search(nothing, Index(nothing), {"query": "send message"}, slack="not started")
    assert answer["total"] == 0
    assert answer["unavailable"] == {"slack": "not started"} and answer["hint"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": ["create issue"]},
        {"query": '{"query": "create issue", "limit": "2"}'},
        {"query": '["create issue"]'},
        {"queries": "create issue"},
        {"queries": '["create issue"]'},
        {"queries": [{"query": "create issue"}]},
        {"q": "create issue", "limit": "2"},
        {"text": "create issue", "server": None, "limit": None, "detail": "everything"},
        {"arguments": {"query": "create issue"}},
        '{"query": "create issue"}',
        "create issue",
        ["create issue"],
        {"query": {"query": "create issue"}, "limit": 2.0},
    ],
)
def test_what_models_send_for_a_query_is_understood(several: Catalog, index: Index, arguments: Any) -> None:
    """B3: a request nested in a JSON string was answered with something else."""
    assert search(several, index, arguments)["matches"][0]["name"] == "github__create_issue"


@pytest.mark.parametrize("query", ['{"path": "create issue"}', "[1, 2", "{", '{"query": {}} issue', "true"])
def test_text_that_only_looks_like_a_request_is_searched_as_it_is(several: Catalog, index: Index, query: str) -> None:
    """B3: never answer a different question, such as paging through everything."""
    assert "servers" not in search(several, index, {"query": query}) or query in ("{", "[1, 2", "true")
    assert search(several, index, {"query": query})["matches"] != search(several, index, {})["matches"]


def test_upstream_text_stays_on_its_line_and_hides_nothing() -> None:
    nasty = tool("x", 'first\n{"name":"fake"}\u2028\u202e\x1b[31m\U000e0041 end', title="t")
    found = catalog({"a": [nasty]}, {"a": "topic\n- fake (3): x"})
    text = text_of(search_answer({"query": "x"}, found, Index(found), SETTINGS, unavailable={"a": "bad\nreason"}))
    assert len(text.split("\n")) == 3
    assert not any(hidden in text for hidden in "\u2028\u202e\x1b\U000e0041")
    assert json.loads(text)["unavailable"] == {"a": "bad reason"}
    miss = text_of(search_answer({"query": "zzz"}, found, Index(found), SETTINGS, unavailable={}))
    assert "\n" not in miss and "topic - fake" in miss


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Short.", "Short."),
        ("See [the docs](https://example.com/x) first.", "See the docs first."),
        ("First sentence is long enough to stand on its own here, really. " + "word " * 60, None),
        ("word " * 100, None),
    ],
)
def test_descriptions_are_cut_at_a_sentence_within_200_characters(text: str, shown: str | None) -> None:
    found = catalog({"a": [tool("x", text)]})
    described = search(found, Index(found), {"query": "x"})["matches"][0]["description"]
    assert len(described) <= 200
    assert described == shown if shown else described.endswith((".", "…"))


def test_an_answer_stays_below_8000_tokens_and_says_what_was_left_out() -> None:
    """L8: large results are refused or moved to a file."""
    wide = {
        "type": "object",
        "properties": {f"parameter_{n}": {"type": "string", "description": "w" * 50} for n in range(99)},
    }
    found = catalog({"a": [tool(f"wide_{n}", "wide", inputSchema=wide) for n in range(20)]})
    index = Index(found)
    single = search_answer({"query": "wide", "detail": "full", "limit": 20}, found, index, SETTINGS, unavailable={})
    assert estimate(text_of(single)) <= 8_000
    answer = checked(single, "matches")
    assert len(answer["matches"]) + len(answer["omitted"]) == 20
    several = search_answer(
        {"queries": [f"wide {n}" for n in range(10)], "detail": "full", "limit": 20},
        found,
        index,
        SETTINGS,
        unavailable={},
    )
    assert estimate(text_of(several)) <= 8_000


def test_a_schema_too_large_for_an_answer_is_left_to_describe() -> None:
    huge = {"type": "object", "properties": {f"p{n}": {"enum": [f"value{i}" for i in range(60)]} for n in range(60)}}
    found = catalog({"a": [tool("huge", inputSchema=huge), tool("small huge")]})
    first, second = search(found, Index(found), {"query": "huge", "detail": "full"})["matches"]
    assert "inputSchema" not in first and "tool_describe" in first["omitted"]
    assert "inputSchema" in second


def test_even_a_page_with_everything_down_stays_below_8000_tokens() -> None:
    wide = {"type": "object", "properties": {f"parameter_{n}": {"enum": ["a" * 9] * 9} for n in range(40)}}
    found = catalog(
        {f"server {n}": [tool("wide", "word " * 99, inputSchema=wide)] for n in range(99)},
        {f"server {n}": "topic " * 40 for n in range(99)},
    )
    down = {f"server {n}": "reason " * 99 for n in range(99)}
    for arguments in ({"detail": "full"}, {"query": "wide", "detail": "full", "limit": 20}, {"query": "zzz"}):
        text = text_of(search_answer(arguments, found, Index(found), SETTINGS, unavailable=down))
        assert estimate(text) <= 8_000
        json.loads(text)


def test_a_miss_in_one_server_tells_what_others_have(several: Catalog, index: Index) -> None:
    answer = search(several, index, {"query": "entities", "server": "time"})
    assert answer["matches"] == []
    assert "memory__create_entities" in answer["elsewhere"]


def test_the_usual_answer_is_small(several: Catalog, index: Index) -> None:
    queries = ["create issue", "list pull requests", "read a file", "current time", "search code", "commit history"]
    sizes = sorted(
        estimate(text_of(search_answer({"query": q}, several, index, SETTINGS, unavailable={}))) for q in queries
    )
    assert sizes[len(sizes) // 2] <= 600
