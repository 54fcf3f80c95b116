"""An eager tool as it is shown to the client directly: the raw dict under its public name.

Strict hosts drop a whole server, and providers refuse the whole request, over one unusual schema (failure reports D1,
D2, D5). What they would refuse is mended in a copy where that cannot change the meaning of a right call; a tool that
cannot be mended stays behind the bridge. Behind the bridge nothing is ever changed.
"""

import json
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


def shown(tool: Tool) -> Shown:
    """`tool` as a client's `tools/list` can hold it; whatever needs no mending stays as it is, unknown fields too."""
    copy = {**tool.raw, "name": tool.public_name}
    notes: list[str] = []
    schema, why = _root(tool.raw.get("inputSchema"))
    if schema is None:
        return Shown(None, (why,))
    if why:
        copy["inputSchema"] = schema
        notes.append(why)
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
