"""Upstream that declares outputSchema and then does not honour it.

wrong_shape   structuredContent violates the schema      no_struct    text only although a schema is declared
bad_schema    the outputSchema itself is invalid         dangling     outputSchema has a dangling $ref
error_ok      isError result without structuredContent   typeless     outputSchema without "type"
right         conforms                                   null_schema  outputSchema: null
Seen in: NousResearch/hermes-agent#101330, IBM/mcp-context-forge#1406/#4042, google-labs-code/stitch-sdk#367,
ThinkInAIXYZ/deepchat#2075, opentokenz/mcpx#28.
Traps (measured, mcp 2.3.0): `typeless` alone makes list_tools() raise ValidationError for the whole page; call_tool()
re-lists tools it has not seen, so EVERY successful call of this server then raises as well; and with a valid list
call_tool() raises RuntimeError for wrong_shape/no_struct/bad_schema/dangling (the usable text is lost). Send
tools/list and tools/call without that validation instead. tool_call itself must not declare an outputSchema, or
clients will reject every result.
Right behaviour: text and structuredContent of all eight tools reach the client; a mismatch is at most a log line.
"""

from _raw import Server, serve, text, tool

OUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    tool("wrong_shape", outputSchema=OUT),
    tool("no_struct", outputSchema=OUT),
    tool("bad_schema", outputSchema={"type": "object", "properties": {"n": {"type": "integr"}}}),
    tool("dangling", outputSchema={"type": "object", "properties": {"s": {"$ref": "#/$defs/ScreenInstance"}}}),
    tool("error_ok", outputSchema=OUT),
    tool("typeless", outputSchema={"$id": "x.v1", "description": "no type"}),
    tool("right", outputSchema=OUT),
    tool("null_schema", outputSchema=None),
]


def call(name, args, params, peer):
    if name == "wrong_shape":
        return {"content": [{"type": "text", "text": "usable text"}], "structuredContent": {"wrong": "shape"}}
    if name == "error_ok":
        return text("upstream says no", isError=True)
    if name in ("right", "bad_schema", "typeless"):
        return {"content": [{"type": "text", "text": '{"n": 1}'}], "structuredContent": {"n": 1}}
    if name == "dangling":
        return {"content": [{"type": "text", "text": "screen"}], "structuredContent": {"s": {"id": "1"}}}
    return text("usable text")


serve(Server(TOOLS, call, name="outschema"))
