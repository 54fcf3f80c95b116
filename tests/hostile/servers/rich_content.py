"""Upstream that returns every content block kind, with annotations and _meta, in a fixed order.

Seen in: smart-mcp-proxy/mcpproxy-go#368 (images became base64 inside JSON text: 36-61x the tokens),
NousResearch/hermes-agent#64061 (PDF in an embedded resource vanished), KenKaiii/gg-framework#31,
anthropics/claude-ai-mcp#969.
Right behaviour: `all` comes back block for block: same order, same bytes, annotations and _meta kept, not
re-encoded into text. `unknown` holds a block type this SDK does not know ("video"): pass it on raw, or replace
that block by a short text note and keep the others; never fail the call. `image_only` has no text at all.
"""

import base64

from _raw import Server, serve, tool

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000000000500010d0a2db40000000049454e44ae426082"
    )
).decode()
BLOCKS = [
    {"type": "text", "text": "first", "annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {"k": 1}},
    {"type": "image", "data": PNG, "mimeType": "image/png", "_meta": {"codex/imageDetail": "original"}},
    {"type": "audio", "data": base64.b64encode(b"RIFF....WAVE").decode(), "mimeType": "audio/wav"},
    {
        "type": "resource_link",
        "uri": "file:///tmp/report.pdf",
        "name": "report.pdf",
        "mimeType": "application/pdf",
        "size": 1234,
    },
    {"type": "resource", "resource": {"uri": "mem://note", "mimeType": "text/plain", "text": "embedded text"}},
    {
        "type": "resource",
        "resource": {
            "uri": "mem://blob",
            "mimeType": "application/pdf",
            "blob": base64.b64encode(b"%PDF-1.4").decode(),
        },
    },
    {"type": "text", "text": "last"},
]


def call(name, args, params, peer):
    if name == "image_only":
        return {"content": [BLOCKS[1]]}
    if name == "unknown":
        return {"content": [BLOCKS[0], {"type": "video", "data": "AAAA", "mimeType": "video/mp4"}, BLOCKS[-1]]}
    if name == "bad_block":
        return {"content": [{"type": "text"}, "bare string", {"type": "text", "text": 5}, BLOCKS[-1]]}
    return {"content": BLOCKS, "_meta": {"result": "meta"}}


serve(
    Server(
        [
            tool("all", "Every block kind."),
            tool("image_only", "Only an image."),
            tool("unknown", "Has a video block."),
            tool("bad_block", "Malformed blocks."),
        ],
        call,
        name="rich",
    )
)
