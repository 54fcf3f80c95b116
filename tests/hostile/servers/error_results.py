"""Upstream that fails in every way a server can.

is_error   result with isError: true            invalid  JSON-RPC error -32602 with data
internal   -32603                               custom   -32000 with data
not_found  -32601 on tools/call                 url      -32042 URL elicitation required
string_code error.code is a string             no_msg   error without message        both  result AND error
null_result  result: null                       list_result  result is a list
Seen in: openclaw/openclaw#82704 (error printed as "no results"), BerriAI/litellm#29588.
Right behaviour: is_error keeps isError: true and its text. A JSON-RPC error becomes ONE tool result with
isError: true whose text holds server, tool, code, message and data (so the model can correct itself), not a
crash, not a silent success, not a wrapped JSON-in-JSON. Malformed replies fail that call only, at once (no
waiting for the time-out; mcp 2.3.0 drops string_code/no_msg/null_result/list_result unread, so there the call
time-out is the only end). -32042 keeps its data so the user can still open the URL.
"""

import json

from _raw import NoReply, RpcError, Server, serve, text, tool

CUR = {}


def call(name, args, params, peer):
    if name == "is_error":
        return text("upstream tool failed: disk full", isError=True)
    if name == "invalid":
        raise RpcError(-32602, "Invalid params: 'path' is required", {"field": "path"})
    if name == "internal":
        raise RpcError(-32603, "Internal error")
    if name == "custom":
        raise RpcError(-32000, "Rate limited", {"retryAfter": 5})
    if name == "not_found":
        raise RpcError(-32601, "Method not found")
    if name == "url":
        raise RpcError(
            -32042,
            "URL elicitation required",
            {
                "elicitations": [
                    {"mode": "url", "elicitationId": "e1", "url": "http://127.0.0.1/auth", "message": "Sign in"}
                ]
            },
        )
    i = CUR["id"]
    peer.send(
        {
            "string_code": {"jsonrpc": "2.0", "id": i, "error": {"code": "E_FAIL", "message": "string code"}},
            "no_msg": {"jsonrpc": "2.0", "id": i, "error": {"code": -1}},
            "both": {"jsonrpc": "2.0", "id": i, "result": text("r"), "error": {"code": -1, "message": "e"}},
            "null_result": {"jsonrpc": "2.0", "id": i, "result": None},
            "list_result": {"jsonrpc": "2.0", "id": i, "result": []},
        }[name]
    )
    raise NoReply


def on_line(line):
    m = json.loads(line)
    if "id" in m:
        CUR["id"] = m["id"]


NAMES = [
    "is_error",
    "invalid",
    "internal",
    "custom",
    "not_found",
    "url",
    "string_code",
    "no_msg",
    "both",
    "null_result",
    "list_result",
]
serve(Server([tool(n, f"Fails as {n}") for n in NAMES], call, name="errors"), on_line=on_line)
