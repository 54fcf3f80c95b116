"""Upstream that reports exactly what arguments it was given: {"has_key": bool, "value": ..., "meta": ...} as text.

`echo` takes anything; `typed` wants {count:int, opts:object, tags:array, note:string|null}; `noargs` takes nothing;
`shadow` has properties called `name`, `arguments` and `query` (they collide with the bridge's own parameters).
Seen in: Lexus2016/hermes-agent-evolution#1786 (16 % "arguments is not valid JSON", 7 % no name),
nicobailon/pi-mcp-adapter#363
(whole request nested in args), openclaw/openclaw#143180 (flat args dropped), #82872, justrach/codegraff2#141
(double-encoded),
anomalyco/opencode#32812, pocketpaw/pocketpaw#1636, ai-ecoverse/slicc#3217.
Right behaviour of tool_call(name, arguments): object -> passed unchanged (2**53+1, 1.0, "", null, unicode, key order
kept; JSON-looking STRINGS inside stay strings); a JSON string that decodes to an object -> decoded once; "" / null /
absent -> {}; any other string, a list or a number -> a tool error that shows the expected shape; arguments flat beside
`name` (no `arguments` key) -> recovered or refused with a hint, never silently dropped; `shadow` gets its own
name/arguments/query untouched.
"""

import json

from _raw import Server, serve, text, tool

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


def call(name, args, params, peer):
    return text(
        json.dumps(
            {"tool": name, "has_key": "arguments" in params, "value": args, "meta": params.get("_meta")},
            ensure_ascii=False,
        )
    )


serve(
    Server(
        [
            tool("echo", "Echo any arguments.", {"type": "object"}),
            tool("typed", "Typed arguments.", TYPED),
            tool("noargs", "No arguments."),
            tool("shadow", "Shadows bridge parameter names.", SHADOW),
        ],
        call,
        name="args",
    )
)
