"""The answers of describe."""

from typing import Any

import pytest
from bridge_answers import SETTINGS, catalog, describe, five_servers, text_of, tool

from proxy.bridge import describe_answer
from proxy.catalog import Catalog


@pytest.fixture(scope="module")
def several() -> Catalog:
    return five_servers()[0]


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


def test_what_json_has_no_numbers_for_is_null_as_everywhere() -> None:
    schema = {"type": "object", "properties": {"a": {"default": float("nan"), "maximum": float("inf")}}}
    text = text_of(
        describe_answer({"name": "x"}, catalog({"a": [tool("x", inputSchema=schema)]}), SETTINGS, unavailable={})
    )
    assert '"default":null,"maximum":null' in text


@pytest.mark.parametrize("name", ["my.server__x", "my_server__x_0badcafe", "my.server/x", "mcp__my_server__x"])
def test_a_tool_of_a_server_whose_list_was_never_seen_is_answered_with_why(name: str) -> None:
    down = catalog({"my.server": None, "my": [tool("server")]})
    answer = describe(down, {"name": name}, **{"my.server": "command not found: 'x'", "my": "crashed"})
    assert answer["not_found"] == [
        {"name": name, "why": "The tools of server 'my.server' are not known yet; try again later."}
    ]
    assert answer["unavailable"] == {"my.server": "command not found: 'x'"}


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


def test_a_tool_too_large_for_an_answer_takes_no_place_from_those_that_fit() -> None:
    """A schema of 60,000 tokens, named first of several, was sent whole, and the small ones were left out for it."""
    wide = {"type": "object", "properties": {f"p{n}": {"enum": [f"value{i}" for i in range(60)]} for n in range(60)}}
    found = catalog({"a": [tool("wide", inputSchema=wide), tool("small"), tool("other")]})
    answer = describe(found, {"names": ["wide", "small", "other"]})
    assert [t["tool"] for t in answer["tools"]] == ["small", "other"]
    assert [o["name"] for o in answer["omitted"]] == ["a__wide"]
