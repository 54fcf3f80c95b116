"""Upstream with tool names that break APIs, prefixes and parsers; each tool answers with its exact raw name.

Seen in: github/copilot-cli#1879 (dot, slash), mcp-router/mcp-router#176 (one bad name hides ALL tools), openai/codex
and google-gemini/gemini-cli#20987/#28971 (>64 chars, create/delete pair truncated to the same name),
BerriAI/litellm#15725 (separator inside the name), jehuang/jcode#895, sparfenyuk/mcp-proxy#45.
Right behaviour: every tool is listed, findable, describable and callable through tool_call under ONE stable,
unique public name; the upstream receives its own raw name back byte for byte; the two 90-character names that
differ only in the middle stay distinct; names differing only by case stay distinct; nothing is merged by
normalisation. The three bridge tools' own names stay plain ASCII and short.
"""

from _raw import Server, serve, text, tool

LONG = "connector_operation_{}_page_with_attachments_and_permissions_and_restrictions_in_space_v2_extended"
NAMES = [
    "admin.tools.list",
    "user-profile/update",
    "database::query",
    "my tool",
    "123-start",
    "a@b",
    "get__user",
    "server__get__user",
    "-dash-",
    "ünïcode",
    "создать_задачу",
    "查询天气",
    "日本語検索",
    "🚀launch",
    "CaseTool",
    "casetool",
    "name\twith\ttabs",
    "new\nline",
    "quote\"and'back\\slash",
    "{curly}",
    "%s%d",
    "..",
    "x" * 130,
    LONG.format("create"),
    LONG.format("delete"),
    "e\u0301galite",
    "\u00e9galite",
    "zero\u200bwidth",
    " ",
]
serve(
    Server(
        [tool(n, f"Odd name number {i}") for i, n in enumerate(NAMES)],
        lambda n, a, p, q: text(n),
        name="odd.names/server",
    )
)
