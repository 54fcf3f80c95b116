"""Reading a JSON schema that may be anything: references, combinators and types, in bounded work. Never raises."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

Node = Mapping[str, Any]

EMPTY: Node = {}
_REFERENCE_HOPS = 16
_VARIANTS = 12
_PROPERTIES = 400
"""More parameters than any honest tool has (the largest seen: 162)."""
_WORK = 3_000
"""Nodes read per schema; what comes after is `any`."""


def mapping(value: object) -> Node | None:
    """`value` if it is an object, else None."""
    if isinstance(value, dict):  # nearly always, and ten times as quick to ask as for any mapping
        return cast(Node, value)
    return cast(Node, value) if isinstance(value, Mapping) else None


def sequence(value: object) -> Sequence[Any]:
    """`value` if it is an array, else an empty one."""
    return cast(Sequence[Any], value) if isinstance(value, list | tuple) else ()


class Reader:
    """One schema document, with the work that may still be spent on it."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._work = _WORK

    def resolve(self, value: object, depth: int = 0) -> Node:
        """The node with its references followed inside the document and its `allOf` merged; {} where that fails.

        `depth` counts the `allOf` around it.
        """
        node = mapping(value) or EMPTY
        self._work -= 1
        if self._work < 0 or depth > _REFERENCE_HOPS:
            return EMPTY
        for _ in range(_REFERENCE_HOPS):
            reference = node.get("$ref")
            if not isinstance(reference, str):
                break
            rest = {key: item for key, item in node.items() if key != "$ref"}
            target = self._find(reference)
            if target is None:
                return rest
            node = {**target, **rest}
        else:
            return EMPTY
        if parts := sequence(node.get("allOf")):
            merged: Node = {key: item for key, item in node.items() if key != "allOf"}
            for part in parts[:_VARIANTS]:
                merged = _merge(merged, self.resolve(part, depth + 1))
            return merged
        return node

    def _find(self, reference: str) -> Node | None:
        """What a JSON pointer within the document means. Nothing is ever fetched."""
        if not reference.startswith("#"):
            return None
        found: object = self._root
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~").replace("%24", "$")
            node = mapping(found)
            if node is not None:
                found = node.get(step)
            elif step.isdecimal() and int(step[:6]) < len(sequence(found)):
                found = sequence(found)[int(step[:6])]
            else:
                return None
        return mapping(found)

    def variants(self, node: Node) -> list[Node]:
        """The members of `anyOf` or `oneOf`, resolved, without null."""
        if "anyOf" not in node and "oneOf" not in node:
            return []
        members = sequence(node.get("anyOf")) or sequence(node.get("oneOf"))
        resolved = [self.resolve(member) for member in members[: 4 * _VARIANTS]]
        return [member for member in resolved if member.get("type") != "null"]

    def fields(self, node: Node) -> "Fields | None":
        """The properties of an object, those of its variants joined as optional ones; None if it has none."""
        properties = dict(list((mapping(node.get("properties")) or EMPTY).items())[:_PROPERTIES])
        required = [name for name in sequence(node.get("required"))[:_PROPERTIES] if isinstance(name, str)]
        variants = self.variants(node)
        alternatives: list[tuple[str, ...]] = []
        if variants and all(_is_object(v) for v in variants):
            demanded = [[n for n in sequence(v.get("required")) if isinstance(n, str)] for v in variants]
            common = [name for name in demanded[0] if all(name in names for names in demanded)]
            required += [name for name in common if name not in required]
            joined: dict[str, list[object]] = {}
            for variant in variants[:_VARIANTS]:
                for name, value in list((mapping(variant.get("properties")) or EMPTY).items())[:_PROPERTIES]:
                    joined.setdefault(name, []).append(value)
            for name, values in joined.items():
                if name not in properties or _adds_nothing(properties[name]):
                    properties[name] = values[0] if len(values) == 1 else {"anyOf": _distinct(values)}
            rest = [tuple(name for name in names if name not in required) for names in demanded]
            if all(rest) and len(set(rest)) > 1:
                alternatives = list(dict.fromkeys(rest))
        if not properties and not required:
            return None
        for name in required:
            properties.setdefault(name, EMPTY)
        conditional = any(key in node for key in ("dependentRequired", "dependencies", "if"))
        return Fields(properties, frozenset(required), tuple(alternatives), conditional)


class Fields:
    """The fields of an object schema."""

    __slots__ = ("alternatives", "conditional", "properties", "required")

    def __init__(
        self, properties: Node, required: frozenset[str], alternatives: tuple[tuple[str, ...], ...], conditional: bool
    ) -> None:
        self.properties = properties
        self.required = required
        self.alternatives = alternatives
        """Sets of further names of which one must be there."""
        self.conditional = conditional
        """Whether the schema demands more under a condition."""


def _is_object(node: Node) -> bool:
    return node.get("type", "object") == "object" and ("properties" in node or "required" in node)


def _adds_nothing(value: object) -> bool:
    node = mapping(value)
    return node is None or not any(k in node for k in ("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"))


def _distinct(values: Sequence[object]) -> list[object]:
    found: list[object] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _merge(first: Node, second: Node) -> Node:
    """Both at once, as `allOf` means it: properties and required names of both, otherwise the first one's word."""
    merged = {**second, **first}
    one, two = mapping(first.get("properties")), mapping(second.get("properties"))
    if one and two:
        both = {name: {"allOf": [one[name], two[name]]} for name in one if name in two}
        merged["properties"] = {**one, **two, **both}
    names = [*sequence(first.get("required")), *sequence(second.get("required"))]
    if names:
        merged["required"] = names
    return merged
