"""Upstream with one good tool and many whose schemas are broken or unusual. argv: names to keep (default all).

Seen in: anthropics/claude-code#88049, #44364 (required:null hides the whole server), #95504, #76881,
mastra-ai/mastra#21859,
lightweight-component/aj-mcp#4 (inputSchema null), makenotion/notion-mcp-server#340, evoila/meho#905, browser-use#4211,
modelcontextprotocol/servers#3051, opentokenz/mcpx#28, wso2/api-manager#5189, davideast/stitch-mcp#184.
Trap (measured): mcp 2.3.0's list_tools() validates the whole page; any one of null/missing/bool/string/array/empty/
only_dialect/type_string/type_list/pure_anyof schema or a non-string description raises and loses EVERY tool.
Right behaviour: `good` and every callable tool stay listed, findable and callable; bad ones are kept with a
repaired view ({"type":"object"} when null/missing/not an object) and a per-tool warning in status;
tool_describe returns legal JSON for every tool (no recursion error, no expansion of cycles, no fetching of
remote $ref, bounded size: a 5,000-value enum is cut with a note); the proxy's own three schemas never contain
anything from an upstream, so a client's API never sees a top-level anyOf.
"""

import sys

from _raw import Server, serve, text

D = 60
deep = {"type": "string"}
for _ in range(D):
    deep = {"type": "object", "properties": {"n": deep}}
S = {
    "good": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    "null_schema": None,
    "bool_schema": True,
    "string_schema": "object",
    "array_schema": [],
    "empty_schema": {},
    "only_dialect": {"$schema": "http://json-schema.org/draft-07/schema#"},
    "type_string": {"type": "string", "description": "the document title"},
    "type_list": {"type": ["object", "null"], "properties": {"a": {"type": "string"}}},
    "required_null": {"type": "object", "properties": {}, "required": None},
    "properties_null": {"type": "object", "properties": None},
    "array_no_items": {"type": "object", "properties": {"ids": {"type": "array"}}},
    "top_anyof": {
        "type": "object",
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    },
    "pure_anyof": {"anyOf": [{"type": "object", "properties": {"content": {"type": "string"}}}, {"type": "object"}]},
    "top_if": {
        "type": "object",
        "properties": {"k": {"type": "string"}},
        "allOf": [{"if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["y"]}}],
    },
    "local_ref": {
        "type": "object",
        "properties": {"s": {"$ref": "#/$defs/Status"}},
        "$defs": {"Status": {"enum": ["on", "off"]}},
    },
    "definitions_ref": {
        "type": "object",
        "properties": {"s": {"$ref": "#/definitions/Status"}},
        "definitions": {"Status": {"type": "string", "enum": ["on", "off"]}},
    },
    "dangling_ref": {"type": "object", "properties": {"s": {"$ref": "#/$defs/Missing"}}},
    "remote_ref": {"type": "object", "properties": {"s": {"$ref": "http://127.0.0.1:9/never-fetch-me.json"}}},
    "recursive": {
        "$ref": "#/$defs/Node",
        "type": "object",
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "parent": {"$ref": "#/$defs/Node"},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                },
            }
        },
    },
    "bool_property": {"type": "object", "properties": {"any": True, "none": False}, "additionalProperties": False},
    "draft4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}},
    },
    "tuple_items": {
        "type": "object",
        "properties": {"p": {"type": "array", "items": [{"type": "number"}, {"type": "number"}]}},
    },
    "bad_pattern": {"type": "object", "properties": {"p": {"type": "string", "pattern": "(?<=(unclosed"}}},
    "huge_enum": {
        "type": "object",
        "properties": {"zone": {"type": "string", "enum": [f"zone-{i:05d}" for i in range(5000)]}},
    },
    "long_property": {
        "type": "object",
        "properties": {"p" * 70: {"type": "string"}, "dotted.name": {}, "$special": {}},
    },
    "deep": deep,
    "extra_keys": {"type": "object", "properties": {}, "x-vendor": {"a": 1}, "$id": "urn:x", "default": {}},
}
KEEP = sys.argv[1:] or [
    *S,
    "missing_schema",
    "null_description",
    "missing_description",
    "null_annotations",
    "int_description",
]
TOOLS = []
for k in KEEP:
    t = {"name": k, "description": f"Schema case {k}", "inputSchema": S.get(k, {"type": "object"})}
    if k == "missing_schema":
        del t["inputSchema"]
    if k == "null_description":
        t["description"] = None
    if k == "missing_description":
        del t["description"]
    if k == "null_annotations":
        t.update(annotations=None, title=None, _meta=None, outputSchema=None, icons=None)
    if k == "int_description":
        t["description"] = 7
    TOOLS.append(t)
serve(Server(TOOLS, lambda n, a, p, q: text(f"{n} called with {a}"), name="schemas"))
