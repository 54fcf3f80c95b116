"""The three tools as shown, the instructions, and that nothing can break an answer."""

import json
import subprocess
from typing import Any

import pytest
from bridge_answers import RENAMED, SETTINGS, Raw, catalog, checked, five_servers, search, text_of, tool
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.bridge import bridge_tools, describe_answer, guidance_lengths, instructions, search_answer
from proxy.catalog import Catalog
from proxy.search import Index
from proxy.tokens import child_argv, decode_answer, encode_request


@pytest.fixture(scope="module")
def several() -> Catalog:
    return five_servers()[0]


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
