"""An eager tool as it is shown to the client directly: the raw dict under its public name.

Strict hosts drop a whole server, and providers refuse the whole request, over one unusual schema (failure reports D1,
D2, D5). What they would refuse is mended in a copy where that cannot change the meaning of a right call; a tool that
cannot be mended stays behind the bridge. Behind the bridge nothing is ever changed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from proxy.tokens import estimate
from proxy.tool import Tool

COMBINATORS = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const", "$ref")
"""At the root of an inputSchema Anthropic, OpenAI and Bedrock refuse these."""


HYSTERESIS_PCT = 20
"""How far a catalog that is shown whole may grow beyond the limit before the bridge comes back. Going from one to the
other costs every client its prompt cache, so a catalog at the limit must not do it with every tool that comes or
goes."""


def fits_below(tools: Iterable[Tool], below: int, *, before: bool) -> bool:
    """Whether all schemas of `tools` together are smaller than `below` tokens (estimated), so that no bridge is needed.

    `before` is the last judgement: what did fit goes on fitting until it is 20 % above the limit. Nothing fits where
    nothing is known.
    """
    limit = below * (100 + HYSTERESIS_PCT) // 100 if before else below
    total = 0
    for tool in tools if below else ():
        total += estimate(json.dumps(tool.raw, ensure_ascii=False))
        if total >= limit:  # a large catalog is not measured to its end
            return False
    return total > 0


@dataclass(frozen=True)
class Shown:
    """What became of an eager tool."""

    tool: dict[str, Any] | None
    """None: it cannot be shown, only called through the bridge or by its name."""
    notes: tuple[str, ...] = ()
    """What was mended or why it is not shown, for `check`."""


def unshowable(raw: Mapping[str, Any]) -> str:
    """Why the tool that a server sent as `raw` can be in no client's `tools/list`; "" where it can, mended or not."""
    schema, why = _root(raw.get("inputSchema"))
    if schema is None:
        return why
    if (bad := _unusable_name(schema)) is not None:
        return f"its parameter {bad!r} has a name that providers refuse"
    return ""


def shown(tool: Tool) -> Shown:
    """`tool` as a client's `tools/list` can hold it; whatever needs no mending stays as it is, unknown fields too."""
    copy = {**tool.raw, "name": tool.public_name}
    notes: list[str] = []
    schema, why = _root(tool.raw.get("inputSchema"))
    if schema is None or _unusable_name(schema) is not None:
        return Shown(None, (unshowable(tool.raw),))
    mender = _Mender(schema)
    schema = mender.mended(schema)
    if why or mender.found:
        copy["inputSchema"] = schema
        notes += [*([why] if why else []), *(f"mended {what}" for what in mender.found)]
    if not tool.description.strip():
        copy["description"] = tool.title or tool.name
        notes.append("has no description; its title or name stands for it")
    for key, kind in (("description", str), ("title", str), ("annotations", dict), ("_meta", dict), ("icons", list)):
        if key in copy and not isinstance(copy[key], kind):
            del copy[key]
            notes.append(f"left out its {key}, which is not of the right type")
    output = copy.get("outputSchema")
    if "outputSchema" in copy and (
        not isinstance(output, dict) or cast(dict[str, Any], output).get("type") != "object"
    ):
        del copy["outputSchema"]
        notes.append("left out its outputSchema, whose root is not an object")
    return Shown(copy, tuple(notes))


_PARAMETER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What Anthropic's API takes as the name of a parameter; it refuses the whole request over another one."""


def _unusable_name(schema: Mapping[str, Any]) -> str | None:
    """A parameter whose name cannot be kept: a call with another name would mean something else."""
    return next((name for name in _mapping(schema.get("properties")) if not _PARAMETER.fullmatch(name)), None)


_DEPTH = 60
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


class _Mender:
    """Mends what strict hosts refuse inside a schema; what needs no mending stays the same object.

    OpenAI refuses an array without `items` and an empty `enum`; several hosts fail on `true` for a schema, on a local
    `$ref` that leads nowhere, and on `required` that is no list.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.found: list[str] = []

    def mended(self, node: dict[str, Any], depth: int = 0) -> dict[str, Any]:
        """`node` or a mended copy."""
        changes: dict[str, Any] = {}
        drop: set[str] = set()
        if depth > _DEPTH:
            return node
        kind = node.get("type")
        if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and not _has_items(node):
            changes["items"] = {}
            self._note("an array without items")
        if node.get("enum") == []:
            drop.add("enum")
            self._note("an empty enum")
        if "required" in node and not isinstance(node["required"], list):
            drop.add("required")
            self._note("a required that is no list")
        target = node.get("$ref")
        if isinstance(target, str) and target.startswith("#/") and not _leads_somewhere(self._root, target):
            drop.add("$ref")
            self._note("a $ref that leads nowhere")
        for key in _ONE:
            if isinstance(inner := node.get(key), dict):
                changes |= self._changed(key, cast(dict[str, Any], inner), depth)
        for key in _MANY:
            if isinstance(inner := node.get(key), list):
                before = cast(list[Any], inner)
                after = [self._schema(item, depth) for item in before]
                if any(a is not b for a, b in zip(after, before, strict=True)):
                    changes[key] = after
        for key in _NAMED:
            if isinstance(inner := node.get(key), dict):
                named = cast(dict[str, Any], inner)
                new = {name: self._schema(item, depth) for name, item in named.items()}
                if any(new[name] is not named[name] for name in named):
                    changes[key] = new
        if not changes and not drop:
            return node
        return {**{k: v for k, v in node.items() if k not in drop}, **changes}

    def _changed(self, key: str, inner: dict[str, Any], depth: int) -> dict[str, Any]:
        after = self.mended(inner, depth + 1)
        return {key: after} if after is not inner else {}

    def _schema(self, item: Any, depth: int) -> Any:
        if item is True:
            self._note("a schema that is just true")
            return {}
        return self.mended(cast(dict[str, Any], item), depth + 1) if isinstance(item, dict) else item

    def _note(self, what: str) -> None:
        if what not in self.found:
            self.found.append(what)


def _has_items(node: Mapping[str, Any]) -> bool:
    return isinstance(node.get("items"), dict | list) or isinstance(node.get("prefixItems"), list)


def _leads_somewhere(root: Mapping[str, Any], target: str) -> bool:
    node: Any = root
    for part in target[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = cast(Mapping[str, Any], node)[key]
        elif isinstance(node, list) and key.isdigit() and int(key) < len(cast(list[Any], node)):
            node = cast(list[Any], node)[int(key)]
        else:
            return False
    return isinstance(node, Mapping | bool)


def _root(given: object) -> tuple[dict[str, Any] | None, str]:
    """A schema whose root every host takes, and what was mended ("" for nothing); None and why where that fails."""
    if not isinstance(given, dict):
        return {"type": "object"}, "its inputSchema is not an object; shown without parameters"
    schema = cast(dict[str, Any], given)
    kind = schema.get("type")
    if kind not in ("object", None) and not (isinstance(kind, list) and "object" in kind):
        return None, f"its inputSchema has the type {kind!r} instead of object"
    mended: dict[str, Any] = {}
    found: list[str] = []
    if kind != "object":
        found.append("type")
    if not isinstance(schema.get("properties", {}), dict):
        found.append("properties")
    if not isinstance(schema.get("required", []), list):
        found.append("required")
    found += [key for key in COMBINATORS if key in schema]
    if not found:
        return schema, ""
    drop = {"type", *found}
    mended = {"type": "object", **{k: v for k, v in schema.items() if k not in drop}}
    gathered = _gathered(schema)
    if gathered:
        mended["properties"] = gathered
    return mended, f"mended {', '.join(found)} at the root of its inputSchema"


def _gathered(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of the root and of its variants: what may be given, without what depends on what."""
    properties: dict[str, Any] = {}
    for key in ("allOf", "anyOf", "oneOf"):
        for variant in _mappings(schema.get(key)):
            properties |= _mapping(variant.get("properties"))
    target = schema.get("$ref")
    if isinstance(target, str) and target.startswith("#/"):
        node: object = schema
        for part in target[2:].split("/"):
            node = _mapping(node).get(part.replace("~1", "/").replace("~0", "~"))
        properties |= _mapping(_mapping(node).get("properties"))
    return properties | dict(_mapping(schema.get("properties")))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [_mapping(each) for each in cast(list[object], value)] if isinstance(value, list) else []
