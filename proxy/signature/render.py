"""One schema node as a type: `str int num bool any obj null`, `[T]`, `{a: T, b?: T}`, `{*: T}`, `'a'|'b'|…+12`."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.signature.schema import Fields, Node, Reader, mapping, sequence
from proxy.text import one_line


@dataclass(frozen=True, slots=True)
class Options:
    """How much one pass shows."""

    nested: bool
    """Optional objects with their fields, else `{…}`."""
    enum: tuple[int, int]
    """Values and characters of an optional enum."""
    required_enum: tuple[int, int]
    ranges: bool


PASSES = (
    Options(nested=True, enum=(6, 60), required_enum=(16, 160), ranges=True),
    Options(nested=False, enum=(4, 40), required_enum=(16, 160), ranges=True),
    Options(nested=False, enum=(3, 24), required_enum=(8, 80), ranges=False),
)
"""From generous to terse; the first that fits is taken."""

_REQUIRED_DEPTH = 4
"""Required fields of nested objects are followed so deep: valid calls rise from 90.8 to 99.7 %."""
_LEVELS = 24
"""Types within types, arrays and unions included."""
_FIELDS = 8
_REQUIRED_FIELDS = 16
_UNION = 3
_DEFAULT_CHARACTERS = 20
_PATTERN_CHARACTERS = 24
_NAME_CHARACTERS = 80
_LARGE = 2**31
"""Bounds beyond are those of the number type, not of the parameter."""
_WORDS = {"string": "str", "integer": "int", "number": "num", "boolean": "bool", "null": "null"}
_FORMATS = {"date-time": "datetime", "date": "date", "time": "time", "email": "email", "uri": "url", "url": "url",
            "uuid": "uuid"}  # fmt: skip
_PLAIN_NAME = re.compile(r"[^\s,:?|='\"(){}\[\]…*+]+")
_HINTS = (
    (
        "json",
        re.compile(
            r"\bJSON[- ](?:encoded |formatted |serialized )?(?:string|text|array|object)|stringified JSON", re.I
        ),
        "JSON",
    ),
    ("comma", re.compile(r"\bcomma[- ]separated", re.I), "comma separated"),
    ("iso", re.compile(r"\bISO[- ]?8601", re.I), "ISO 8601"),
    ("yyyy", re.compile(r"\bYYYY-MM-DD(?!T|[ T]?HH)"), "YYYY-MM-DD"),
    ("base64", re.compile(r"\bbase64", re.I), "base64"),
)
"""Formats that schemas tell only in words: what is in all such words (looking for that costs a twentieth), and how they
go."""
_DEFAULT_IN_WORDS = re.compile(
    r"\bdefault(?:s to|s? value(?: is|:)?|s?:| is|=)\s*(?:(?P<quote>[`'\"])(?P<text>[\w./-]{1,18})(?P=quote)|"
    r"(?P<bare>true|false|-?\d{1,9}(?:\.\d{1,4})?)(?![\w.]*\w))",
    re.I,
)
_VALUES_IN_WORDS = re.compile(r"\b(?:one of|allowed values|valid values|possible values|must be either)\b", re.I)
_CONDITION_IN_WORDS = re.compile(r"\brequired (?:if|when|unless)\b|\beither .{1,60}\bor\b.{1,60}\brequired\b", re.I)
_TEXT_CHARACTERS = 600


class Renderer:
    """Renders the nodes of one schema and remembers whether a required place stayed vague."""

    def __init__(self, reader: Reader, options: Options, *, closed: bool = False) -> None:
        self._reader = reader
        self._options = options
        self._closed = closed
        self._level = 0
        self.vague = False

    def parameters(self, fields: Fields) -> tuple[list[str], list[str]]:
        """The required and the optional parameters, each `name: type`."""
        required = [
            self._field(n, v, required=True, depth=0) for n, v in fields.properties.items() if n in fields.required
        ]
        optional = [
            self._field(n, v, required=False, depth=0) for n, v in fields.properties.items() if n not in fields.required
        ]
        return required, optional

    def _field(self, name: str, value: object, *, required: bool, depth: int) -> str:
        node = self._reader.resolve(value)
        described = node.get("description")
        words = described[:_TEXT_CHARACTERS] if isinstance(described, str) else ""
        folded = words.lower()
        shown, sure = self._type(node, required, depth)
        if required:
            if shown == "str":
                shown = _hinted(node, words, folded)
                sure = shown != "str" or not _VALUES_IN_WORDS.search(words)
            self.vague = self.vague or not sure
            return f"{name_text(name)}: {shown}"
        if shown == "str":
            shown = _hinted(node, words, folded)
        if depth == 0 and "required" in folded and _CONDITION_IN_WORDS.search(words):
            self.vague = True
        told = words if "default" in folded else ""
        return f"{name_text(name)}?: {shown}{_default(node, shown, told)}"

    def _type(self, node: Node, required: bool, depth: int) -> tuple[str, bool]:
        """The type, and whether a value made from it alone will do. `depth` counts the objects around it."""
        if self._level > _LEVELS:
            return "any", False
        self._level += 1
        found = self._type_below(node, required, depth)
        self._level -= 1
        return found

    def _type_below(self, node: Node, required: bool, depth: int) -> tuple[str, bool]:
        if "const" in node:
            return _literal(node["const"]), True
        if values := [v for v in sequence(node.get("enum")) if v is not None]:
            return self._enum(values, required)
        members = self._reader.variants(node)
        kinds = node.get("type")
        if members and not (kinds == "object" or all("properties" in m for m in members)):
            return self._union(members, required, depth)
        if listed := sequence(kinds):
            names = [kind for kind in listed if kind != "null"]
            if len(names) > 1:
                return self._union([{**node, "type": kind} for kind in names[:8]], required, depth)
            kinds = names[0] if names else "null"
        if kinds == "array" or (kinds is None and "items" in node):
            return self._array(node, required, depth)
        if kinds == "object" or (kinds is None and ("properties" in node or "additionalProperties" in node or members)):
            return self._object(node, required, depth + 1)
        if kinds == "string" and isinstance(form := node.get("format"), str) and form in _FORMATS:
            return _FORMATS[form], True
        word = _WORDS.get(kinds) if isinstance(kinds, str) else None
        if word is None:
            return "any", False
        return word + (self._range(node, "minimum", "maximum") if word in ("int", "num") else ""), True

    def _enum(self, values: Sequence[object], required: bool) -> tuple[str, bool]:
        most, characters = self._options.required_enum if required else self._options.enum
        shown: list[str] = []
        length = 0
        for value in values[:most]:
            text = _literal(value)
            length += len(text) + 1
            if shown and length > characters:
                break
            shown.append(text)
        more = len(values) - len(shown)
        return "|".join(shown) + (f"|…+{more}" if more else ""), not more

    def _union(self, members: Sequence[Node], required: bool, depth: int) -> tuple[str, bool]:
        literals = [v for m in members for v in (sequence(m.get("enum")) or ([m["const"]] if "const" in m else []))]
        others = [m for m in members if "const" not in m and not sequence(m.get("enum"))]
        shown: dict[str, bool] = {}
        if literals:
            text, sure = self._enum(
                list(dict.fromkeys(v for v in literals if isinstance(v, str | int | float))), required
            )
            shown[text] = sure
        for member in others[:8]:
            text, sure = self._type(member, required, depth)
            shown[text] = shown.get(text, True) and sure
        if not shown:
            return "any", False
        # what can be filled in from the line comes first
        kept = sorted(shown, key=lambda text: not shown[text])[:_UNION]
        more = len(shown) - len(kept)
        return "|".join(kept) + (f"|…+{more}" if more else ""), any(shown[text] for text in kept)

    def _array(self, node: Node, required: bool, depth: int) -> tuple[str, bool]:
        items = node.get("items")
        if "prefixItems" in node or isinstance(items, list | tuple):
            return "[any]", False
        inner, sure = self._type(self._reader.resolve(items), required, depth) if items is not None else ("any", False)
        return f"[{inner}]{self._range(node, 'minItems', 'maxItems')}", sure

    def _object(self, node: Node, required: bool, depth: int) -> tuple[str, bool]:
        fields = self._reader.fields(node)
        if fields is None:
            extra = mapping(node.get("additionalProperties"))
            patterns = mapping(node.get("patternProperties"))
            extra = extra or (next((mapping(v) for v in patterns.values()), None) if patterns else None)
            if not extra:
                return "obj", False
            inner, sure = self._type(self._reader.resolve(extra), required, depth + 1)
            return ("obj", False) if inner == "any" else (f"{{*: {inner}}}", sure)
        if self._closed or (not required and (depth > 1 or not self._options.nested)):
            return "{…}", False
        return self._open_object(fields, required, depth)

    def _open_object(self, fields: Fields, required: bool, depth: int) -> tuple[str, bool]:
        needed = [n for n in fields.properties if n in fields.required]
        if needed and depth > _REQUIRED_DEPTH:
            return "{…}", False
        before, self.vague = self.vague, False
        most = _REQUIRED_FIELDS if required else _FIELDS
        parts = [self._field(n, fields.properties[n], required=required, depth=depth) for n in needed[:most]]
        if not required:
            parts = [self._named(n, fields.properties[n], depth, "") for n in needed[:most]]
        others = [n for n in fields.properties if n not in fields.required]
        room = max(0, _FIELDS - len(parts)) if depth <= 1 and self._options.nested else 0
        parts += [self._named(n, fields.properties[n], depth, "?") for n in others[:room]]
        hidden = len(needed[most:]) + len(others[room:])
        if hidden:
            parts.append(f"…+{hidden}" if room and parts else "…")
        sure = not self.vague and len(needed) <= most and not fields.alternatives
        self.vague = before
        return "{" + ", ".join(parts) + "}", sure

    def _named(self, name: str, value: object, depth: int, mark: str) -> str:
        """A field of a nested object that nobody must fill in."""
        return f"{name_text(name)}{mark}: {self._type(self._reader.resolve(value), False, depth)[0]}"

    def _range(self, node: Node, least: str, most: str) -> str:
        if not self._options.ranges:
            return ""
        low, high = _bound(node.get(least)), _bound(node.get(most))
        return f"({low}..{high})" if low or high else ""


def name_text(name: str) -> str:
    """A parameter's name; in quotes where it could be misread."""
    return name if _PLAIN_NAME.fullmatch(name) and one_line(name) == name else _quoted(name)


def _bound(value: object) -> str:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or abs(value) >= _LARGE
    ):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _literal(value: object) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping | list):
        return "obj" if isinstance(value, Mapping) else "[any]"
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return "any"


def _quoted(text: str) -> str:
    """`text` in single quotes, escaped as in JSON: quotes inside the JSON of an answer would cost a backslash each."""
    safe = one_line(text) == text
    return "'" + json.dumps(text, ensure_ascii=not safe)[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"


def _hinted(node: Node, words: str, folded: str) -> str:
    """`str`, with the format that the schema tells in a pattern or in words."""
    if node.get("contentMediaType") == "application/json":
        return "str(JSON)"
    for part, pattern, hint in _HINTS:
        if part in folded and pattern.search(words):
            return f"str({hint})"
    pattern = node.get("pattern")
    if isinstance(pattern, str) and len(pattern) <= _PATTERN_CHARACTERS and pattern.isascii() and pattern.isprintable():
        return f"str(/{pattern}/)"
    return "str"


def _default(node: Node, shown: str, words: str) -> str:
    """`=default` of an optional scalar."""
    value = node.get("default")
    if value is None and words and "default" not in node and (match := _DEFAULT_IN_WORDS.search(words)):
        bare = match["bare"]
        if shown.startswith("str") and match["text"]:
            return f"={_quoted(match['text'])}"
        if bare and (
            (shown == "bool" and bare.lower() in ("true", "false"))
            or (shown[:3] in ("int", "num") and bare[-1].isdigit())
        ):
            return f"={bare.lower()}"
        return ""
    if isinstance(value, str | bool | int | float):
        text = _literal(value)
        if len(text) <= _DEFAULT_CHARACTERS:
            return f"={text}"
    return ""
