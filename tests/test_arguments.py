"""What models send to `tool_call`, and what arrives (reports A1-A3, B1-B5)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.arguments import Request, Validators, choose, direct, unwrap
from proxy.config import ToolSearchConfig
from proxy.errors import Refused
from proxy.tool import Tool

NAMES = ToolSearchConfig()

TYPED = {
    "type": "object",
    "required": ["count"],
    "additionalProperties": False,
    "properties": {
        "count": {"type": "integer"},
        "opts": {"type": "object"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": ["string", "null"]},
        "payload": {"type": "string", "description": "a JSON document as text"},
    },
}
SHADOW = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}, "query": {"type": "string"}},
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "echo": {"type": "object"},
    "typed": TYPED,
    "noargs": {"type": "object", "properties": {}, "additionalProperties": False},
    "shadow": SHADOW,
    "run": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    "wrap": {"type": "object", "properties": {"input": {"type": "object"}}},
    "server": {"type": "object", "properties": {"server": {"type": "string"}}, "required": ["server"]},
}


def tool(name: str, schema: object = None) -> Tool:
    return Tool("s", name, {"name": name, "inputSchema": schema or SCHEMAS[name]}, f"s__{name}")


def settle(request: Request, mode: Any = "strict", schema: object = None) -> dict[str, Any]:
    name = request.name.removeprefix("s__").removeprefix("s.")
    return choose(request, tool(name, schema), Validators(), mode, NAMES)


def sent(parameters: Any, **how: Any) -> dict[str, Any]:
    return settle(unwrap(parameters, NAMES), **how)


def refusal(parameters: Any, **how: Any) -> str:
    with pytest.raises(Refused) as caught:
        sent(parameters, **how)
    return str(caught.value)


A = {"a": 1}
DEEP = {"count": 1, "opts": {"x": [1, {"y": "z"}]}}


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        # as it should be
        ({"name": "echo", "arguments": A}, A),
        ({"name": " echo ", "arguments": A}, A),
        ({"name": "noargs"}, {}),
        ({"name": "noargs", "arguments": None}, {}),
        ({"name": "noargs", "arguments": ""}, {}),
        ({"name": "noargs", "arguments": "  "}, {}),
        ({"name": "noargs", "arguments": "null"}, {}),
        ({"name": "noargs", "arguments": "{}"}, {}),
        # A1: a JSON string, also twice encoded
        ({"name": "echo", "arguments": '{"a":1}'}, A),
        ({"name": "echo", "arguments": json.dumps(json.dumps(A))}, A),
        ({"name": "echo", "arguments": '\n {"a": 1}\n'}, A),
        ('{"name":"echo","arguments":{"a":1}}', A),
        # A1: nested values as strings, only where the schema wants an object or a list
        ({"name": "typed", "arguments": {"count": 1, "opts": '{"x":[1,{"y":"z"}]}'}}, DEEP),
        ({"name": "typed", "arguments": {"count": 1, "tags": '["a"]'}}, {"count": 1, "tags": ["a"]}),
        ({"name": "typed", "arguments": {"count": 1, "payload": '{"x":1}'}}, {"count": 1, "payload": '{"x":1}'}),
        ({"name": "typed", "arguments": {"count": 1, "tags": ["[1]"]}}, {"count": 1, "tags": ["[1]"]}),
        # B3: the whole request inside arguments
        ({"arguments": '{"name":"echo","arguments":{"a":1}}'}, A),
        ({"arguments": {"name": "echo", "arguments": A}}, A),
        ({"args": '{"name":"echo","arguments":{"a":1}}'}, A),
        ({"name": "", "arguments": {"name": "echo", "arguments": A}}, A),
        # one nesting too many
        ({"name": "run", "arguments": {"arguments": {"command": "ls"}}}, {"command": "ls"}),
        ({"name": "run", "arguments": {"name": "run", "arguments": {"command": "ls"}}}, {"command": "ls"}),
        ({"name": "run", "arguments": {"args": '{"command": "ls"}'}}, {"command": "ls"}),
        # B4: flat beside the name
        ({"name": "run", "command": "ls"}, {"command": "ls"}),
        ({"name": "run", "arguments": {}, "command": "ls"}, {"command": "ls"}),
        ({"name": "run", "args": {}, "command": "ls"}, {"command": "ls"}),
        ({"name": "run", "arguments": {"x": 1}, "command": "ls"}, {"x": 1, "command": "ls"}),
        ({"name": "echo", "arguments": {}, "command": "ls"}, {"command": "ls"}),
        ({"name": "echo", "arguments": A, "nothing": None}, A),
        # other words for it
        ({"tool": "echo", "args": A}, A),
        ({"tool_name": "echo", "input": '{"a":1}'}, A),
        ({"name": "echo", "params": A}, A),
        ({"name": "echo", "parameters": A}, A),
        ({"name": "wrap", "input": A}, {"input": A}),
        ({"name": "run", "tool": "x", "command": "ls"}, {"tool": "x", "command": "ls"}),
        # calls with one entry, tool_call inside tool_call
        ({"calls": [{"name": "echo", "arguments": A}]}, A),
        ({"calls": '[{"name": "echo", "arguments": "{\\"a\\": 1}"}]'}, A),
        ({"calls": {"name": "echo", "arguments": A}}, A),
        ({"calls": [{"name": "run", "command": "ls"}]}, {"command": "ls"}),
        ({"name": "tool_call", "arguments": {"name": "echo", "arguments": A}}, A),
        ({"name": "tool_call", "arguments": '{"name":"run","command":"ls"}'}, {"command": "ls"}),
        ({"name": "mcp__px__tool_call", "arguments": {"name": "echo", "arguments": A}}, A),
        ({"name": "tool_call", "arguments": {"calls": [{"name": "echo", "arguments": A}]}}, A),
        # a tool whose own parameters are called like ours
        ({"name": "shadow", "arguments": {"name": "n"}}, {"name": "n"}),
        ({"name": "shadow", "arguments": {"arguments": {"q": 1}}}, {"arguments": {"q": 1}}),
        (
            {"name": "shadow", "arguments": {"name": "shadow", "arguments": {}, "query": "q"}},
            {"name": "shadow", "arguments": {}, "query": "q"},
        ),
        # the server's key beside the name, as search answers show it
        ({"name": "s__run", "server": "s", "arguments": {"command": "ls"}}, {"command": "ls"}),
        ({"name": "run", "server": "s", "arguments": {"command": "ls"}}, {"command": "ls"}),
        ({"name": "s__run", "server": "s", "command": "ls"}, {"command": "ls"}),
        ({"name": "s__server", "server": "s"}, {"server": "s"}),
        ({"name": "server", "server": "s"}, {"server": "s"}),
    ],
)
def test_what_models_really_send_is_understood(parameters, arguments):
    result = sent(parameters)
    assert result == arguments
    assert json.dumps(result) == json.dumps(arguments)


def test_a_server_beside_a_bare_name_qualifies_it():
    assert unwrap({"name": "run", "server": "s", "arguments": A}, NAMES).name == "s.run"


def test_values_arrive_exactly_as_they_were_sent():
    """A3: types changed on the way."""
    value = {
        "n": 2**53 + 1,
        "f": 1.0,
        "s": '{"a":1}',
        "t": True,
        "z": None,
        "a.b": 1,
        "ü": "\u200d😀",
        "e": "",
        "l": [],
    }
    assert sent({"name": "echo", "arguments": value}) is value
    decoded = sent({"name": "echo", "arguments": json.dumps(value)})
    assert json.dumps(decoded) == json.dumps(value)
    assert type(decoded["f"]) is float


def test_a_decoded_string_leaves_the_rest_and_the_request_itself_untouched():
    inner = {"deep": [1.0, 2**60]}
    arguments = {"count": 1, "note": '{"a":1}', "opts": json.dumps(inner)}
    before = json.dumps(arguments)
    assert sent({"name": "typed", "arguments": arguments}) == {"count": 1, "note": '{"a":1}', "opts": inner}
    assert json.dumps(arguments) == before


@pytest.mark.parametrize("schema", [{"anyOf": [{"type": "object"}, {"type": "null"}]}, {"$ref": "#/$defs/o"}])
def test_an_optional_or_referenced_object_is_decoded_too(schema):
    whole = {"type": "object", "properties": {"echo": schema}, "$defs": {"o": {"type": "object"}}}
    assert sent({"name": "echo", "arguments": {"echo": '{"a":1}'}}, schema=whole) == {"echo": A}


def test_a_string_is_not_decoded_where_a_string_is_allowed_too():
    whole = {"type": "object", "properties": {"v": {"type": ["object", "string"]}, "n": {"type": "integer"}}}
    assert sent({"name": "echo", "arguments": {"v": '{"a":1}'}}, schema=whole) == {"v": '{"a":1}'}


def test_numbers_and_booleans_in_strings_stay_strings():
    text = refusal({"name": "typed", "arguments": {"count": "1"}})
    assert "count: expected integer, got string" in text


@pytest.mark.parametrize("name", ["tool_search", "tool_describe"])
def test_the_other_bridge_tools_are_returned_by_name(name):
    request = unwrap({"name": name, "arguments": {"query": "x"}}, NAMES)
    assert (request.name, request.candidates[0]) == (name, {"query": "x"})
    request = unwrap({"name": name, "query": "x"}, NAMES)
    assert (request.name, request.candidates[0]) == (name, {"query": "x"})


def test_the_bridge_tools_can_be_renamed():
    names = ToolSearchConfig(call_name="run_tool", search_name="find_tool", describe_name="read_tool")
    assert unwrap({"name": "run_tool", "arguments": {"name": "echo"}}, names).name == "echo"
    assert unwrap({"name": "tool_call", "arguments": {"name": "echo"}}, names).name == "tool_call"
    with pytest.raises(Refused, match=r"run_tool was not called.*Send run_tool\(.*find_tool finds names, read_tool"):
        unwrap({}, names)


REFUSED = {
    "nothing": (None, ["`name` is missing", '({"name": "server__tool", "arguments": {"parameter": "value"}})']),
    "empty": ({}, ["`name` is missing", "tool_search finds names"]),
    "no name": ({"arguments": A}, ["`name` is missing"]),
    "B2 the tool's own arguments": (
        {"query": "latest news", "limit": 5},
        ["'query', 'limit' look like arguments of a tool", 'tool_search({"query": "latest news"})', '"limit": ...'],
    ),
    "one key": ({"path": "/"}, ["'path' looks like an argument of a tool", '"arguments": {"path": ...}']),
    "A2 cut off": (
        {"name": "echo", "arguments": '{"slider_id": '},
        ["echo was not called: arguments is not valid JSON (ends at position 14)", '{"name": "echo", "arguments"'],
    ),
    "cut off in a string": ({"name": "echo", "arguments": '{"a": "b'}, ["ends at position 8"]),
    "B1 bad JSON, no name": ({"arguments": "{bad"}, ["`name` is missing, and arguments is not", "position 2"]),
    "python": ({"name": "echo", "arguments": "{'a': 1}"}, ["position 2", "double quotes"]),
    "trailing": ({"name": "echo", "arguments": '{"a":1}}'}, ["extra data at position 8"]),
    "not a number": ({"name": "echo", "arguments": '{"a": NaN}'}, ["NaN is not a JSON number"]),
    "infinite": ({"name": "echo", "arguments": '{"a": 1e999}'}, ["too large"]),
    "too deep": ({"name": "echo", "arguments": '{"a":' * 100_000}, ["nested too deeply"]),
    "thrice": ({"name": "echo", "arguments": json.dumps(json.dumps(json.dumps(A)))}, ["not of type string"]),
    "a list": ({"name": "echo", "arguments": [A]}, ["must be a JSON object, not of type array"]),
    "a number": ({"name": "echo", "arguments": 7}, ["not of type integer"]),
    "a boolean": ({"name": "echo", "arguments": True}, ["not of type boolean"]),
    "a list in a string": ({"name": "echo", "arguments": "[1]"}, ["not of type array"]),
    "whole request a list": ([1], ["not of type array"]),
    "name is no string": ({"name": {"a": 1}}, ["`name` must be the name of one tool"]),
    "several calls": (
        {"calls": [{"name": "echo"}, {"name": "run"}]},
        ["`calls` has 2 entries", "separate calls, which run side by side"],
    ),
    "no calls": ({"calls": []}, ["`calls` has 0 entries"]),
    "B1 nested twice": (
        {"name": "tool_call", "arguments": {"name": "tool_call", "arguments": {"name": "echo"}}},
        ["nested in itself more than once"],
    ),
    "B1 tool_call alone": ({"name": "tool_call"}, ["tool_call cannot call itself"]),
    "different values": (
        {"name": "run", "arguments": {"command": "ls"}, "command": "rm"},
        ["'command' stands beside `arguments` and in it, with different values"],
    ),
    "strays that do not fit": (
        {"name": "noargs", "arguments": {}, "why": "because"},
        ["s__noargs was not called", "'why': stood beside `arguments`", 'unknown key "why"'],
    ),
    "strays beside arguments": (
        {"name": "typed", "arguments": {"count": 1}, "why": "x"},
        ["'why': stood beside `arguments`", 'unknown key "why"', '{"name": "s__typed", "arguments": {"count": 1}}'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_understood_is_refused_with_the_reason_and_a_right_example(case):
    parameters, expected = REFUSED[case]
    text = refusal(parameters)
    for part in expected:
        assert part in text


def test_every_cause_has_its_own_text():
    texts = [refusal(parameters) for parameters, _ in REFUSED.values()]
    assert len(set(texts)) >= len(texts) - 3  # nothing, empty and no name are one cause, and so are lists


def test_every_example_in_a_refusal_is_understood_when_it_is_sent():
    for parameters, _ in REFUSED.values():
        text = refusal(parameters)
        example = text.split('tool_call({"name"')[1].split("})")[0]
        if "..." not in example:
            request = unwrap(json.loads('{"name"' + example + "}"), NAMES)
            assert request.name


# a tool called by its own name


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (None, {}),
        ({}, {}),
        ("", {}),
        ('{"command":"ls"}', {"command": "ls"}),
        ({"command": "ls"}, {"command": "ls"}),
        ({"arguments": {"command": "ls"}}, {"command": "ls"}),
        ({"name": "run", "arguments": {"command": "ls"}}, {"command": "ls"}),
    ],
)
def test_a_direct_call_is_read_the_same_way(arguments, result):
    request = direct("run", arguments)
    assert settle(request, schema={"type": "object"} if not result else None) == result


def test_a_direct_call_that_cannot_be_read_is_refused():
    with pytest.raises(Refused, match=r"s__run was not called: arguments is not valid JSON \(ends at position 5\)"):
        direct("s__run", '{"a":')
    with pytest.raises(Refused, match="must be a JSON object, not of type array"):
        direct("s__run", [])


def test_a_direct_call_is_not_repaired_when_it_fits_as_it_is():
    arguments = {"name": "shadow", "arguments": {"q": 1}}
    assert settle(direct("shadow", arguments)) is arguments


# modes


def test_off_sends_the_likeliest_reading_unchecked():
    wrong = {"count": "one"}
    assert sent({"name": "typed", "arguments": wrong}, mode="off") is wrong
    assert sent({"name": "typed", "count": 1}, mode="off") == {"count": 1}
    assert sent({"name": "typed", "args": {"count": 1}}, mode="off") == {"count": 1}


def test_warn_sends_what_does_not_fit_and_says_so(caplog):
    wrong = {"count": "one"}
    assert sent({"name": "typed", "arguments": wrong}, mode="warn") is wrong
    assert "s__typed" in caplog.text
    assert "expected integer" in caplog.text
    assert sent({"name": "typed", "arguments": {"arguments": {"count": 1}}}, mode="warn") == {"count": 1}


def test_a_refusal_without_a_bridge_does_not_speak_of_it():
    with pytest.raises(Refused) as caught:
        choose(direct("s__typed", {}), tool("typed"), Validators(), "strict", None)
    assert str(caught.value) == (
        "s__typed was not called: its arguments do not fit its schema.\n"
        '- "count" is required and missing\n'
        'Call it again with arguments such as {"count": 1}.'
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)
KEYS = st.sampled_from(["name", "tool", "arguments", "args", "calls", "query", "server", "command", "input"])


@given(st.dictionaries(KEYS, JSON | st.sampled_from(["echo", "tool_call", "{}", '{"name":"echo"}']), max_size=4) | JSON)
def test_whatever_is_sent_is_understood_or_refused(parameters):
    try:
        request = unwrap(parameters, NAMES)
    except Refused as refused:
        assert str(refused)
        return
    assert request.name and request.candidates
    assert all(isinstance(c, dict) for c in request.candidates)


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4))
def test_an_object_is_always_passed_on_as_it_is(arguments):
    assert sent({"name": "echo", "arguments": arguments}) is arguments


WORDS = st.sampled_from(
    ["echo", " echo ", "", "  ", "tool_call", "tool_search", "mcp_", "mcp__p__tool_call", "mcp_p_tool_call", "a__b"]
)
INNER = st.dictionaries(st.sampled_from(["name", "tool", "args", "arguments", "input", "server", "x", "calls"]), WORDS)


@given(WORDS, INNER | st.dictionaries(st.sampled_from(["arguments", "params", "name", "x"]), INNER))
def test_the_form_that_is_asked_for_is_read_like_every_other(name: str, given_arguments: dict[str, Any]) -> None:
    """It is seen at once; with a key that says nothing beside it, it takes the way of all other forms."""

    def read(sent: dict[str, Any]) -> Request | None:
        try:
            return unwrap(sent, NAMES)
        except Refused:  # its text shows all keys
            return None

    plain: dict[str, Any] = {"name": name, "arguments": given_arguments}
    assert read(plain) == read({**plain, "unused": None})
