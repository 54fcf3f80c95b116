"""Upstream whose results put the payload in unusual places.

structured_only  content: [] and structuredContent {...}      no_content     structuredContent, no `content` key
empty            content: [] only                             null_struct    structuredContent: null
array_struct     structuredContent is a list                  scalar_struct  structuredContent is 42
text_and_struct  text summary plus full structuredContent     error_struct   isError true, detail only in
structuredContent
extra_fields     unknown top-level keys and _meta             empty_text     one empty text block
Seen in: NousResearch/hermes-agent#101330 (compiler output lost), IBM/mcp-context-forge#4042, mastra-ai/mastra#22556,
portainer/portainer-mcp#112.
Right behaviour: structuredContent, isError, _meta and unknown keys pass through unchanged; when a result has
structuredContent but no text, clients that only read text still get it (a JSON text block is added only then);
`empty` succeeds with an empty/explicit "(no content)" result rather than an error; nothing is double-encoded.
"""

from _raw import Server, serve, text, tool

PAY = {"ok": False, "trace": "compile_error", "rows": [1, 2, 3], "nested": {"ü": "✓"}}
R = {
    "structured_only": {"content": [], "structuredContent": PAY},
    "no_content": {"structuredContent": PAY},
    "empty": {"content": []},
    "null_struct": {"content": [{"type": "text", "text": "t"}], "structuredContent": None},
    "array_struct": {"content": [], "structuredContent": [1, 2, 3]},
    "scalar_struct": {"content": [], "structuredContent": 42},
    "text_and_struct": {"content": [{"type": "text", "text": "summary"}], "structuredContent": PAY},
    "error_struct": {
        "content": [{"type": "text", "text": "failed; see structuredContent"}],
        "structuredContent": PAY,
        "isError": True,
    },
    "extra_fields": {
        "content": [{"type": "text", "text": "x"}],
        "_meta": {"vendor/trace": "abc", "n": 1},
        "vendorTop": {"a": 1},
    },
    "empty_text": {"content": [{"type": "text", "text": ""}]},
}
serve(Server([tool(n, f"Result shape {n}") for n in R], lambda n, a, p, q: R.get(n) or text("?"), name="shapes"))
