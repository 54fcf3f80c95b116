"""The three tools as shown, and the answers of search and describe."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.bridge import bridge_tools, describe_answer, guidance_lengths, instructions, listed_topics, search_answer
from proxy.catalog import Catalog, make_server
from proxy.config import ServerConfig, ToolSearchConfig
from proxy.listing import TextCache
from proxy.search import Index
from proxy.tokens import child_argv, decode_answer, encode_request, estimate

CATALOGS = Path(__file__).parent / "catalogs"
SETTINGS = ToolSearchConfig()
RENAMED = ToolSearchConfig(search_name="find_it", describe_name="show_it", call_name="do_it")

Raw = dict[str, Any]


def tool(name: str, description: str = "", **more: Any) -> Raw:
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}, **more}


def catalog(servers: dict[str, list[Raw] | None], topics: dict[str, str] | None = None) -> Catalog:
    topics = topics or {}
    return Catalog(
        make_server(ServerConfig(key, "stdio", description=topics.get(key)), tools) for key, tools in servers.items()
    )


@pytest.fixture(scope="module")
def several() -> Catalog:
    keys = ("github", "filesystem", "memory", "time", "git")
    servers = {k: json.loads((CATALOGS / f"{k}.json").read_text(encoding="utf-8"))["tools"] for k in keys}
    return catalog(servers, {"github": "issues, pull requests, code"})


@pytest.fixture(scope="module")
def index(several: Catalog) -> Index:
    return Index(several)


def text_of(result: dict[str, Any]) -> str:
    assert "structuredContent" not in result
    (block,) = result["content"]
    assert block["type"] == "text"
    return block["text"]


def checked(result: dict[str, Any], key: str) -> dict[str, Any]:
    """The answer as JSON, after a look at its lines: each item under `key` stands alone on one."""
    text = text_of(result)
    answer = json.loads(text)
    lines = [json.loads(line.rstrip(",")) for line in text.split("\n") if line.startswith('{"name"')]
    expected = [m for group in answer.get("results", [answer]) for m in group.get(key, [])]
    if key == "tools":
        expected += answer["not_found"]
    assert lines == expected
    return answer


def search(catalog: Catalog, index: Index, arguments: Any, settings: ToolSearchConfig = SETTINGS, **down: str) -> Any:
    return checked(search_answer(arguments, catalog, index, settings, unavailable=down), "matches")


def describe(catalog: Catalog, arguments: Any, settings: ToolSearchConfig = SETTINGS) -> Any:
    return checked(describe_answer(arguments, catalog, settings, unavailable={}), "tools")


# -- the three tools


def test_guidance_and_schemas_together_stay_below_four_hundred_tokens() -> None:
    shown = [
        json.dumps({key: tool[key] for key in ("name", "description", "inputSchema")}, separators=(",", ":"))
        for tool in bridge_tools(SETTINGS)
    ]
    child = subprocess.run(child_argv(), input=encode_request(shown), capture_output=True, check=True, timeout=60)
    assert sum(decode_answer(child.stdout, shown)) <= 400


def test_schemas_are_plain_and_every_parameter_is_explained() -> None:
    for each in bridge_tools(SETTINGS):
        assert "outputSchema" not in each
        assert set(each["inputSchema"]) <= {"type", "properties", "required"}
        for parameter in each["inputSchema"]["properties"].values():
            assert parameter["description"]
            assert not {"anyOf", "oneOf", "allOf", "not", "$ref"} & set(parameter)


def test_parameters_are_those_of_the_contract_and_the_name_comes_first_in_a_call() -> None:
    search_tool, describe_tool, call_tool = bridge_tools(SETTINGS)
    assert list(search_tool["inputSchema"]["properties"]) == ["query", "queries", "server", "limit", "offset", "detail"]
    assert list(describe_tool["inputSchema"]["properties"]) == ["name", "names"]
    assert list(call_tool["inputSchema"]["properties"]) == ["name", "arguments"]


def test_searching_needs_no_approval_and_calling_does() -> None:
    """B7: without annotations a pure search asks for approval."""
    search_tool, describe_tool, call_tool = bridge_tools(SETTINGS)
    for quiet in (search_tool, describe_tool):
        hints = quiet["annotations"]
        assert hints["readOnlyHint"] and hints["idempotentHint"]
        assert hints["destructiveHint"] is False and hints["openWorldHint"] is False
    hints = call_tool["annotations"]
    assert hints["readOnlyHint"] is False and hints["destructiveHint"] and hints["openWorldHint"]


def test_hosts_that_hide_tools_are_asked_to_show_these() -> None:
    """L4: Claude Code defers all tools of a server by default."""
    for each in bridge_tools(SETTINGS):
        assert each["_meta"]["anthropic/alwaysLoad"] is True
        assert each["_meta"]["anthropic/searchHint"]
    assert bridge_tools(SETTINGS)[2]["_meta"]["anthropic/maxResultSizeChars"] == 500_000


def test_every_text_uses_the_names_of_the_settings(several: Catalog) -> None:
    """L5: the bare name tool_search is taken in some hosts."""
    index = Index(several)
    texts = [
        json.dumps(bridge_tools(RENAMED)),
        instructions(RENAMED, several),
        text_of(search_answer({"query": "blorp"}, several, index, RENAMED, unavailable={})),
        text_of(search_answer({"query": "issue", "limit": 20}, several, index, RENAMED, unavailable={})),
        text_of(describe_answer({}, several, RENAMED, unavailable={})),
        text_of(describe_answer({"name": "zzz"}, several, RENAMED, unavailable={})),
    ]
    assert not any(old in text for text in texts for old in ("tool_search", "tool_describe", "tool_call"))


def test_the_listing_follows_the_guidance_in_each_slot() -> None:
    listing = {"search": "one", "describe": "two", "call": "three", "parameter": "four"}
    plain, full = bridge_tools(SETTINGS), bridge_tools(SETTINGS, listing)
    for before, after, text in zip(plain, full, ("one", "two", "three"), strict=True):
        assert after["description"].startswith(before["description"])
        assert after["description"].endswith(f"\n{text}")
    assert full[0]["inputSchema"]["properties"]["query"]["description"].endswith("\nfour")
    assert plain == bridge_tools(SETTINGS, {"search": ""})


def test_what_our_words_take_of_each_slot_is_told_exactly() -> None:
    lengths = guidance_lengths(RENAMED)
    listing = dict.fromkeys(("search", "describe", "call", "parameter"), "😀 listing")
    tools = bridge_tools(RENAMED, listing)
    texts = {key: t["description"] for key, t in zip(("search", "describe", "call"), tools, strict=True)}
    texts["parameter"] = tools[0]["inputSchema"]["properties"]["query"]["description"]
    for slot, text in texts.items():
        assert lengths[slot] + len("😀 listing".encode("utf-16-le")) // 2 == len(text.encode("utf-16-le")) // 2
    assert max(lengths.values()) < 500


# -- instructions


def test_the_first_line_of_the_instructions_stands_alone_in_250_characters() -> None:
    """L3: Codex shows no more, and nothing at all where it is empty."""
    many = catalog({f"server-number-{n:03}": [tool("x")] for n in range(300)}, {"server-number-000": "t" * 500})
    for view in (catalog({}), catalog({"a": None}), many):
        text = instructions(SETTINGS, view)
        first = text.split("\n")[0]
        assert 0 < len(first) <= 250
        assert "tool_search" in first
        assert len(text) <= 2_000
    assert "more servers" in instructions(SETTINGS, many)


def test_instructions_name_servers_and_topics_and_do_not_change_with_what_is_known() -> None:
    topics = {"github": "issues, code"}
    before = instructions(SETTINGS, catalog({"github": None, "slack": None}, topics))
    after = instructions(SETTINGS, catalog({"github": [tool("x"), tool("y")], "slack": [tool("z")]}, topics))
    assert before == after
    assert "github: issues, code" in before and "slack" in before


# -- search


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


def test_the_usual_answer_is_small(several: Catalog, index: Index) -> None:
    queries = ["create issue", "list pull requests", "read a file", "current time", "search code", "commit history"]
    sizes = sorted(
        estimate(text_of(search_answer({"query": q}, several, index, SETTINGS, unavailable={}))) for q in queries
    )
    assert sizes[len(sizes) // 2] <= 600


# -- describe


def test_describe_shows_everything_verbatim(several: Catalog) -> None:
    (shown,) = describe(several, {"name": "git_log"})["tools"]
    raw = several.resolve("git_log").raw
    assert shown["name"] == "git__git_log" and shown["server"] == "git" and shown["tool"] == "git_log"
    assert shown["description"] == raw["description"]
    assert shown["inputSchema"] == raw["inputSchema"]
    assert shown["annotations"] == raw["annotations"]


def test_schemas_with_references_and_combinators_stay_as_they_are() -> None:
    """D1, D3: what clients make of such schemas lost whole servers."""
    schema = {"type": "object", "anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"required": ["x"]}}}
    found = catalog({"a": [tool("x", inputSchema=schema, outputSchema={"type": "broken"})]})
    (shown,) = describe(found, {"name": "x"})["tools"]
    assert shown["inputSchema"] == schema
    assert shown["outputSchema"] == {"type": "broken"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "git_log"},
        {"names": ["git__git_log"]},
        {"names": "git.git_log"},
        {"name": ["mcp__git__git_log"]},
        {"names": '["git_log"]'},
        {"name": '{"name": "git_log"}'},
        {"tool": "git/git_log"},
        {"names": [{"name": "git_log"}, "git_log"]},
        "git_log",
        {"arguments": {"name": "git_log"}},
    ],
)
def test_describe_understands_every_spelling(several: Catalog, arguments: Any) -> None:
    answer = describe(several, arguments)
    assert [t["name"] for t in answer["tools"]] == ["git__git_log"]
    assert answer["not_found"] == []


def test_names_in_one_string_are_told_apart(several: Catalog) -> None:
    answer = describe(several, {"names": "git_log, read_file convert_time"})
    assert [t["tool"] for t in answer["tools"]] == ["git_log", "read_file", "convert_time"]


def test_unknown_names_are_answered_with_near_ones(several: Catalog) -> None:
    answer = describe(several, {"names": ["git_log", "creat_issue", "tool_search"]})
    assert len(answer["tools"]) == 1
    near, own = answer["not_found"]
    assert near["name"] == "creat_issue" and near["near"][0] == "github__create_issue"
    assert "directly" in own["why"]


def test_an_ambiguous_name_is_answered_with_its_candidates() -> None:
    both = catalog({"a": [tool("search")], "b": [tool("search")]})
    (missing,) = describe(both, {"name": "search"})["not_found"]
    assert "a__search" in missing["why"] and "b__search" in missing["why"]


def test_no_name_is_answered_with_how_to_give_one(several: Catalog) -> None:
    result = describe_answer({}, several, SETTINGS, unavailable={})
    assert result["isError"] is True
    assert 'tool_describe({"name":' in text_of(result)


def test_one_large_tool_is_shown_whole_and_of_several_the_rest_is_named_with_its_size() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"enum": [f"value{i}" for i in range(60)]} for n in range(60)}}
    found = catalog({"a": [tool(f"wide_{n}", inputSchema=wide) for n in range(3)]})
    (shown,) = describe(found, {"name": "wide_0"})["tools"]
    assert shown["inputSchema"] == wide
    answer = describe(found, {"names": ["wide_0", "wide_1", "wide_2"]})
    assert [t["tool"] for t in answer["tools"]] == ["wide_0"]
    assert [o["name"] for o in answer["omitted"]] == ["a__wide_1", "a__wide_2"]
    assert all(o["tokens"] > 3_000 for o in answer["omitted"])


# -- anything at all

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["query", "queries", "q", "server", "limit", "offset", "detail", "name", "names", "arguments", "input",
             "type", "properties", "description", "title"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=10,
)  # fmt: skip
raw_tools = st.fixed_dictionaries(
    {"name": st.text(min_size=1, max_size=15)},
    optional={"description": json_values, "inputSchema": json_values, "annotations": json_values, "title": json_values},
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=8), st.lists(raw_tools, max_size=4), max_size=3), json_values)
def test_no_catalog_and_no_arguments_raise_and_every_answer_is_well_formed(
    servers: dict[str, list[Raw] | None], arguments: Any
) -> None:
    found = catalog(servers)
    search(found, Index(found), arguments)
    result = describe_answer(arguments, found, SETTINGS, unavailable={})
    if not result.get("isError"):
        checked(result, "tools")
    assert instructions(SETTINGS, found).encode()


def test_answers_can_be_sent_whatever_an_upstream_names_its_tools() -> None:
    found = catalog({"a": [tool("\ud800", "\udfff lone", title="\ud800")]})
    text_of(search_answer({}, found, Index(found), SETTINGS, unavailable={})).encode()
    text_of(describe_answer({"name": found.tools[0].public_name}, found, SETTINGS, unavailable={})).encode()
