"""What of a tool is searched: its words by field, counted once per tool.

Counting is what a build costs, so `ToolWords` is kept per tool (tools are immutable) and only the tools of a server
whose list changed are counted again. What is said of the server (`server_words`) is counted anew for each index,
because it may change alone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from proxy.catalog import Server
from proxy.text import Tokenizer, first_sentence
from proxy.tool import Tool

FIELDS = (
    "name", "first sentence", "description", "parameter names", "parameter descriptions", "server", "instructions",
)  # fmt: skip
NAME, FIRST, DESCRIPTION, PARAMETERS, PARAMETER_TEXTS, SERVER, INSTRUCTIONS = range(len(FIELDS))

_DESCRIPTION_LIMIT = 6_000
_PARAMETER_TEXT_LIMIT = 300
_NODE_LIMIT = 400
_DEPTH_LIMIT = 6
"""A hostile or generated schema must not cost more than a large honest one."""
_ENUM_LIMIT = 24
_KEY_COUNT = 3
"""Words of a server's key and aliases count as if they stood so often: people name the product (R@1 +1)."""
_TOPIC_LIMIT = 500
_INSTRUCTIONS_LIMIT = 600
"""Of a server's instructions only so many characters: each word costs an entry for each of its tools."""


@dataclass(frozen=True, slots=True)
class ToolWords:
    """The words of one tool, as written (case-folded)."""

    words: tuple[str, ...]
    """Each word once."""
    counts: bytes
    """How often each word stands in each field: a row of `len(FIELDS)` bytes per word; 255 stands for more."""
    name_words: int
    """The first so many of `words` are those of the name."""


def tool_words(tool: Tool, tokenizer: Tokenizer) -> ToolWords:
    """Count the words of `tool` by field."""
    description = tool.description[:_DESCRIPTION_LIMIT]
    names: list[str] = []
    texts: list[str] = []
    for name, text in _parameters(tool.input_schema):
        if name:
            names.append(name)
        if text:
            texts.append(text)
    first = first_sentence(description, 300)
    parts = {
        NAME: tool.name,
        FIRST: f"{tool.title or ''} {first}",
        DESCRIPTION: description,
        PARAMETERS: " ".join(names),
        PARAMETER_TEXTS: " ".join(texts),
    }
    table: dict[str, bytearray] = {}
    name_words = 0
    for number, text in parts.items():
        for word, count in Counter(tokenizer.words(text)).items():
            row = table.get(word)
            if row is None:
                row = table[word] = bytearray(len(FIELDS))
            row[number] = min(count, 255)
        if number == NAME:
            name_words = len(table)
    return ToolWords(tuple(table), b"".join(table.values()), name_words)


def server_words(server: Server, tokenizer: Tokenizer) -> ToolWords:
    """The words of what is said of a server: key and aliases, topic and keywords, and how its instructions begin.

    They count for each of its tools, but little: that a server is about invoices does not make every tool of it fit.
    """
    table: dict[str, bytearray] = {}
    for field, count, text in (
        (SERVER, _KEY_COUNT, " ".join((server.key, *server.aliases))),
        (SERVER, 1, f"{(server.topic or '')[:_TOPIC_LIMIT]} {' '.join(server.keywords)}"),
        (INSTRUCTIONS, 1, (server.instructions or "")[:_INSTRUCTIONS_LIMIT]),
    ):
        for word in tokenizer.words(text):
            row = table.setdefault(word, bytearray(len(FIELDS)))
            row[field] = max(row[field], count)
    return ToolWords(tuple(table), b"".join(table.values()), 0)


def _parameters(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and texts of the parameters, nested ones too, breadth first and bounded; texts include enum values."""
    level: list[tuple[str, object]] = [("", schema)]
    nodes = 0
    for depth in range(_DEPTH_LIMIT):
        below: list[tuple[str, object]] = []
        for name, node in level:
            if not isinstance(node, Mapping):
                continue
            nodes += 1
            if nodes > _NODE_LIMIT:
                return
            values = cast(Mapping[str, Any], node)
            if depth:
                yield name, _text(values)
            properties = values.get("properties")
            if isinstance(properties, Mapping):
                below += [(str(key), value) for key, value in cast(Mapping[Any, Any], properties).items()]
            items = values.get("items")
            if isinstance(items, Mapping):
                below.append(("", cast(object, items)))
            for key in ("anyOf", "oneOf", "allOf"):
                members = values.get(key)
                if isinstance(members, list):
                    below += [("", member) for member in cast(list[object], members)]
        level = below


def _text(node: Mapping[str, Any]) -> str:
    description = node.get("description")
    text = description[:_PARAMETER_TEXT_LIMIT] if isinstance(description, str) else ""
    values = node.get("enum")
    if isinstance(values, list):
        text += " " + " ".join(v[:40] for v in cast(list[object], values)[:_ENUM_LIMIT] if isinstance(v, str))
    return text
