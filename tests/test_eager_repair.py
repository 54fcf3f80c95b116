"""Eager tools as strict hosts take them: mended where that keeps the meaning, else behind the bridge."""

import json
from copy import deepcopy
from typing import Any

import pytest
from listing_reader import real_servers

from proxy.catalog import Catalog, make_server
from proxy.config import ServerConfig
from proxy.eager import COMBINATORS, shown
from proxy.listing import render
from proxy.tool import Tool


def tool(schema: Any, **more: Any) -> Tool:
    return Tool("s", "t", {"name": "t", "description": "Does it.", "inputSchema": schema, **more}, "s__t")


def mended(schema: Any) -> Any:
    before = deepcopy(schema)
    found = shown(tool(schema))
    assert schema == before, "what the upstream sent is never changed"
    assert found.tool is not None and found.notes
    return found.tool["inputSchema"]


def test_a_tool_that_needs_no_mending_is_shown_as_it_is_under_its_public_name() -> None:
    """Unknown fields stay, and the schema is the same object."""
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}, "x-own": 1}
    found = shown(tool(schema, httpMethod="GET"))
    assert found.notes == ()
    assert found.tool is not None and found.tool["inputSchema"] is schema
    assert (found.tool["name"], found.tool["httpMethod"]) == ("s__t", "GET")


@pytest.mark.parametrize("schema", [None, "x", [], True])
def test_a_schema_that_is_no_object_becomes_one_without_parameters(schema: Any) -> None:
    """Failure report D2: one such tool made clients drop every tool of its server."""
    assert mended(schema) == {"type": "object"}


@pytest.mark.parametrize("combinator", COMBINATORS)
def test_no_combinator_stays_at_the_root(combinator: str) -> None:
    """Failure report D1: one such schema had whole requests refused."""
    variant = {"properties": {"b": {"type": "string"}}, "required": ["b"]}
    value: Any = [variant] if combinator in ("anyOf", "oneOf", "allOf") else variant
    value = "#/$defs/v" if combinator == "$ref" else value
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, combinator: value, "$defs": {"v": variant}}
    found = mended(schema)
    assert not set(COMBINATORS) & set(found)
    assert "a" in found["properties"]
    if combinator in ("anyOf", "oneOf", "allOf", "$ref"):
        assert "b" in found["properties"]


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": ["array", "null"]}, {"type": ["array", "null"], "items": {}}),
        ({"type": "string", "enum": []}, {"type": "string"}),
        ({"type": "object", "required": None}, {"type": "object"}),
        ({"$ref": "#/$defs/nowhere", "title": "x"}, {"title": "x"}),
        (True, {}),
        (
            {"anyOf": [{"type": "array"}, {"type": "null"}]},
            {"anyOf": [{"type": "array", "items": {}}, {"type": "null"}]},
        ),
        ({"type": "object", "properties": {"deep": True}}, {"type": "object", "properties": {"deep": {}}}),
    ],
)
def test_what_strict_hosts_refuse_inside_a_schema_is_mended_at_any_depth(inner: Any, expected: Any) -> None:
    schema = {"type": "object", "properties": {"a": inner, "b": {"type": "string"}}}
    assert mended(schema)["properties"] == {"a": expected, "b": {"type": "string"}}
    nested = {"type": "object", "properties": {"c": {"type": "array", "items": {"properties": {"a": inner}}}}}
    assert mended(nested)["properties"]["c"]["items"]["properties"]["a"] == expected


def test_references_that_lead_somewhere_stay_also_in_a_circle() -> None:
    """Failure reports D3 and D4."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    schema = {"type": "object", "properties": {"list": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    found = shown(tool(schema))
    assert found.notes == () and found.tool is not None and found.tool["inputSchema"] is schema


def test_a_schema_of_any_depth_is_looked_at_only_so_far() -> None:
    schema: dict[str, Any] = {"type": "array"}
    for _ in range(500):
        schema = {"type": "object", "properties": {"a": schema}}
    assert shown(tool(schema)).tool is not None


@pytest.mark.parametrize("name", ["with space", "ünïcode", "x" * 65, ""])
def test_a_parameter_whose_name_is_refused_keeps_its_tool_behind_the_bridge(name: str) -> None:
    found = shown(tool({"type": "object", "properties": {name: {}}}))
    assert found.tool is None and "refuse" in found.notes[0]


def test_a_schema_of_another_type_keeps_its_tool_behind_the_bridge() -> None:
    assert shown(tool({"type": "array", "items": {}})).tool is None


def test_an_eager_tool_that_no_host_can_be_shown_is_listed_and_checked_as_any_behind_the_bridge() -> None:
    bad = {"type": "object", "properties": {"to whom?": {"type": "string"}}}
    raw = [{"name": "fine", "inputSchema": {"type": "object"}}, {"name": "odd", "inputSchema": bad}]
    for config in (ServerConfig("s", "stdio", lazy=False), ServerConfig("s", "stdio", pinned=("*",))):
        catalog = Catalog([make_server(config, raw)])
        assert [tool.name for tool in catalog.eager] == ["fine"]
        listing = render(catalog, budget=1_000, slots=[None], mode="auto", count=len)
        assert "s__* (1):\nodd" in listing.slots[0] and "fine" not in listing.slots[0]
        assert "'to whom?'" in catalog.resolve("s__odd").unshowable
    assert not make_server(ServerConfig("s", "stdio"), raw).by_name["odd"].unshowable


@pytest.mark.parametrize("description", [None, "", "  ", 3])
def test_a_tool_without_a_description_gets_its_title_or_name(description: Any) -> None:
    """Bedrock refuses an empty description."""
    found = shown(tool({"type": "object"}, description=description, title="Do it"))
    assert found.tool is not None and found.tool["description"] == "Do it"


def test_an_output_schema_that_is_not_an_object_is_left_out() -> None:
    """Failure report D5: it made clients drop the whole list."""
    found = shown(tool({"type": "object"}, outputSchema={"anyOf": []}))
    assert found.tool is not None and "outputSchema" not in found.tool


def test_almost_every_tool_of_real_servers_can_be_shown_and_few_need_mending() -> None:
    tools = [each for server in real_servers() for each in server.tools]
    found = [shown(each) for each in tools]
    assert sum(each.tool is None for each in found) <= 0.01 * len(tools)
    assert sum(bool(each.notes) for each in found) <= 0.1 * len(tools)
    for each in found:
        if each.tool is not None:
            assert each.tool["inputSchema"]["type"] == "object"
            assert json.dumps(each.tool)
