"""Queries made from a catalog by rule, to see how well its own tools are found; used by `narrow-waist eval`.

They are easier than what models ask, for they are made from the tools' own words; so the figure is no promise. What it
shows are tools that hide behind others, and tools without any text that a search could find.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from proxy.catalog import Catalog
from proxy.text import first_sentence, one_line
from proxy.tool import Tool

Kind = Literal["name", "paraphrase", "parameters", "labelled"]

_OTHER_VERBS = {
    "add": "create", "append": "add", "cancel": "stop", "check": "verify", "create": "add", "delete": "remove",
    "describe": "show", "edit": "change", "execute": "run", "fetch": "get", "find": "search", "get": "show",
    "insert": "add", "list": "show", "make": "create", "modify": "change", "post": "send", "put": "update",
    "query": "search", "read": "get", "remove": "delete", "retrieve": "get", "run": "execute", "search": "find",
    "send": "post", "set": "change", "show": "get", "start": "run", "stop": "end", "update": "change",
    "upload": "add", "view": "show", "write": "save",
}  # fmt: skip
"""A verb and what somebody else would say."""
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W_A-Za-z]+")
_WORDS = 12
_PARAMETERS = 3


@dataclass(frozen=True, slots=True)
class Probe:
    """One query and what it should find."""

    query: str
    gold: tuple[Tool, ...]
    kind: Kind
    every: bool = False
    """Whether all of `gold` are wanted; else one is enough."""


def probes(catalog: Catalog, tools: Iterable[Tool]) -> list[Probe]:
    """Up to three queries for each of `tools`: its name as words, a paraphrase, what it does by its parameters.

    One query for several tools of `catalog` (two servers with the same tool) is one probe, and any of them will do.
    """
    found: dict[tuple[str, Kind], dict[Tool, None]] = {}
    wanted = set(tools)
    for tool in catalog.tools:
        for kind, query in _queries(tool):
            found.setdefault((query, kind), {})[tool] = None
    return [
        Probe(query, tuple(gold), kind) for (query, kind), gold in found.items() if query and wanted.intersection(gold)
    ]


def _queries(tool: Tool) -> Iterable[tuple[Kind, str]]:
    words = [word.lower() for word in _PART.findall(tool.name)]
    yield "name", " ".join(words)
    text = first_sentence(tool.description, 200).split()
    first = text[0].lower().strip(".,:;") if text else ""
    verb = _OTHER_VERBS.get(first) or _OTHER_VERBS.get(first.removesuffix("s"))
    if verb is not None and len(text) > 1:
        yield "paraphrase", one_line(" ".join([verb, *text[1:_WORDS]]))
    elif words and words[0] in _OTHER_VERBS and len(words) > 1:
        yield "paraphrase", " ".join([_OTHER_VERBS[words[0]], *words[1:], "in", one_line(tool.server)])
    names = _parameters(tool.input_schema)
    nouns = words[1:] if len(words) > 1 and words[0] in _OTHER_VERBS else words
    if names and nouns:
        led = [" ".join(part.lower() for part in _PART.findall(name)) for name in names[:_PARAMETERS]]
        yield "parameters", f"{' '.join(nouns)} by {' and '.join(filter(None, led))}"


def _parameters(schema: Mapping[str, Any]) -> list[str]:
    """Names of the parameters, required ones first."""
    properties, required = schema.get("properties"), schema.get("required")
    known = [str(name) for name in cast(Mapping[Any, Any], properties)] if isinstance(properties, Mapping) else []
    first = [n for n in cast(Sequence[object], required) if n in known] if isinstance(required, list) else []
    return [*map(str, first), *(name for name in known if name not in first)]
