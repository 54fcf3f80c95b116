"""Descriptions without what a person cannot see: control, zero-width, direction and tag characters (report E6).

Such characters can carry instructions to a model that nobody reviewing a tool would notice. Line breaks and tabs stay,
and so do ZWJ and ZWNJ, which emoji and many scripts need. Only texts for a reader are changed (descriptions and
titles); what a server has to understand (names, enums, defaults) stays as it is, and is only reported.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from proxy.tool import Tool

HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_TEXTS = frozenset({"description", "title", "$comment"})
_DEPTH = 60
_CUT = "nested"


def cleaned(tool: Tool) -> tuple[Tool, str]:
    """`tool` with clean texts, and what was found ("" for nothing). A tool without such characters is the same object.

    The Variation Selectors Supplement is in the range of the tags' plane: it too hides bytes in plain sight.
    """
    raw, said = cleaned_raw(tool.raw)
    return (replace(tool, raw=raw) if raw is not tool.raw else tool), said


def cleaned_raw(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The same for the raw dict of anything that a server lists."""
    text = json.dumps(raw, ensure_ascii=False)
    if HIDDEN.search(text) is None and "\\u00" not in text and "\\b" not in text and "\\f" not in text:
        return raw, ""
    found: Counter[str] = Counter()
    clean = cast(Mapping[str, Any], _clean(raw, found, depth=0, named=False))
    left = sum(len(HIDDEN.findall(part)) for part in _strings(clean))
    cut = found.pop(_CUT, 0)
    parts = [f"took out {n} {kind} character{'s' if n > 1 else ''}" for kind, n in sorted(found.items())]
    if cut:
        parts.append(f"took out what is nested deeper than {_DEPTH}, with hidden characters in it")
    if left:
        parts.append(f"has {left} hidden characters outside its descriptions, which stay")
    return (clean if found or cut else raw), "; ".join(parts)


def _clean(node: object, found: Counter[str], *, depth: int, named: bool) -> object:
    """`node` with clean texts; `named`: it is a mapping of names (properties), whose keys are not keywords."""
    if depth > _DEPTH and isinstance(node, Mapping | list):
        if not any(HIDDEN.search(part) for part in _strings(cast(object, node))):
            return cast(object, node)
        found[_CUT] += 1
        return {}  # as a schema: anything
    if isinstance(node, Mapping):
        fields = cast(Mapping[str, Any], node)
        return {key: _field(key, value, found, depth, named) for key, value in fields.items()}
    if isinstance(node, list):
        return [_clean(each, found, depth=depth + 1, named=False) for each in cast(list[object], node)]
    return node


def _field(key: str, value: object, found: Counter[str], depth: int, named: bool) -> object:
    if isinstance(value, str):
        return _text(value, found) if key in _TEXTS and not named else value
    names = key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas") and not named
    return _clean(value, found, depth=depth + 1, named=names)


def _text(text: str, found: Counter[str]) -> str:
    for character in HIDDEN.findall(text):
        found[kind(character)] += 1
    return HIDDEN.sub("", text)


def _strings(node: object) -> list[str]:
    if isinstance(node, str):
        return [node]
    if isinstance(node, Mapping):
        fields = cast(Mapping[str, Any], node)
        return [text for key, value in fields.items() for text in (key, *_strings(value))]
    return [text for each in cast(list[object], node) for text in _strings(each)] if isinstance(node, list) else []


def kind(character: str) -> str:
    """What a hidden character is, in a word."""
    code = ord(character)
    if code < 0xA0:
        return "control"
    if code >= 0xE0000:
        return "tag"
    if code == 0x61C or 0x200E <= code <= 0x200F or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069:
        return "direction"
    return "zero-width"
