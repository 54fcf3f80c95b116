"""How deep an argument may be nested before checking it against a schema could take unbounded time.

References can make a validator look at one value again and again: `allOf` with the same reference twice doubles the
work, and a recursive schema doubles it at every level (measured: `anyOf` of two references to the root, 14 levels:
2.2 s, and the event loop waits). So the looks at one value are counted before anything is validated.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from proxy.arguments.shapes import listing, mapping

LOOKS = 64
"""How often one subschema may look at one value; about a millisecond at worst (measured 8 ms for 256)."""
DEEPEST = 100
"""Deeper arguments were never seen; they are passed on unchecked."""

Schema: TypeAlias = Mapping[str, Any]

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE = ("not", "if", "then", "else")
_IN_PLACE_MAPS = ("dependentSchemas", "dependencies")
_BELOW_OBJECT = ("additionalProperties", "unevaluatedProperties")
_BELOW_ARRAY = ("items", "additionalItems", "contains", "unevaluatedItems")
_BELOW_LISTS = ("prefixItems", "items")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_CONTAINERS = (dict, list)
_ANY_KEY, _ITEM, _NAME = "any key", "item", "name"
"""Marks beside the properties, which are written with a dot in front."""
_MOST_STATES = 20_000
_State: TypeAlias = frozenset[tuple[int, int]]
"""How often each node looks at one value: (node, count)."""
_ANYTHING: Schema = {}


class _TooCostly(Exception):
    """Raised when no bound can be told."""


def deepest_checkable(schema: Schema) -> int:
    """The deepest nesting of an argument (an object of scalars is 1) that `schema` checks in bounded time.

    -1: nothing is checked against this schema, because a reference leads in a circle, doubles the work too often or
    cannot be followed.
    """
    if not any(key in node for node in _subtrees(schema) for key in _REFERENCES):
        return DEEPEST
    own_id = "id" if "draft-04" in str(schema.get("$schema")) else "$id"
    if any(isinstance(node.get(own_id), str) for node in _subtrees(schema) if node is not schema):
        return -1  # references inside it mean something else than they seem to
    try:
        return _Graph(schema).deepest()
    except _TooCostly:
        return -1


def depth(value: Any, limit: int = DEEPEST + 1) -> int:
    """The nesting of a JSON value: 0 for a scalar, 1 for a list or object of scalars; counted up to `limit`."""
    found = 0
    level: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    while level and found < limit:
        found += 1
        level = [c for node in level for c in _children(node) if isinstance(c, _CONTAINERS)]
    return found


def _children(node: Any) -> Iterable[Any]:
    return cast(dict[str, Any], node).values() if isinstance(node, dict) else cast(list[Any], node)


def _subtrees(root: Any) -> Iterator[Mapping[str, Any]]:
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            yield cast(Mapping[str, Any], node)
            stack.extend(cast(Mapping[str, Any], node).values())
        elif isinstance(node, list):
            stack.extend(cast(list[Any], node))


class _Graph:
    """Which subschemas look at the same value as a subschema does, and which at the values below it."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.nodes: dict[int, Schema] = {}
        self.same: dict[int, list[int]] = {}
        """Node -> nodes that look at the same value, once per look."""
        self.below: dict[int, dict[str, list[int]]] = {}
        """Node -> property, or one of the marks -> nodes that look at the value there."""
        self.rank: dict[int, int] = {}
        """Node -> its place in an order where each stands before those in its `same`."""
        self._walk()

    def deepest(self) -> int:
        """See `deepest_checkable`."""
        states = {self._closed({id(self.root): 1})}
        seen: set[_State] = set()
        for level in range(DEEPEST):
            fresh = states - seen
            seen |= fresh
            if len(seen) > _MOST_STATES or any(count > LOOKS for state in fresh for _, count in state):
                return level - 1
            if not fresh:
                break
            states = {self._closed(looks) for state in fresh for looks in self._at_each_key(state)}
        return DEEPEST

    def _closed(self, looks: dict[int, int]) -> _State:
        """All looks at one value: those given, and those of nodes that look at the same value as they do."""
        queue = [(self.rank[node], node) for node in looks]
        heapq.heapify(queue)
        while queue:
            _, node = heapq.heappop(queue)
            for other in self.same[node]:
                if other not in looks:
                    looks[other] = 0
                    heapq.heappush(queue, (self.rank[other], other))
                looks[other] += looks[node]
        return frozenset(looks.items())

    def _at_each_key(self, state: _State) -> Iterator[dict[int, int]]:
        """The looks at the values one level further down, for each key that makes a difference."""
        found: dict[str, dict[int, int]] = {}
        for node, count in state:
            for key, targets in self.below[node].items():
                looks = found.setdefault(key, {})
                for target in targets:
                    looks[target] = looks.get(target, 0) + count
        any_key = found.get(_ANY_KEY, {})
        for key, looks in found.items():
            if key not in (_ANY_KEY, _ITEM, _NAME):
                for target, count in any_key.items():
                    looks[target] = looks.get(target, 0) + count
            if looks:
                yield looks

    def _walk(self) -> None:
        """Visits all nodes that the root reaches; post-order over `same`, reversed, is `rank`."""
        pending: list[Schema] = [self.root]
        done: set[int] = set()
        finished: list[int] = []
        while pending:
            stack: list[tuple[Schema, Iterator[Schema]]] = []
            open_nodes: set[int] = set()

            def enter(node: Schema, stack: list[Any] = stack, open_nodes: set[int] = open_nodes) -> None:
                same = list(self._same(node))
                below = {key: list(found) for key, found in self._below(node)}
                self.nodes[id(node)] = node
                self.same[id(node)] = [id(n) for n in same]
                self.below[id(node)] = {key: [id(n) for n in found] for key, found in below.items()}
                pending.extend(n for found in below.values() for n in found if id(n) not in done)
                stack.append((node, iter(same)))
                open_nodes.add(id(node))

            first = pending.pop()
            if id(first) in done:
                continue
            enter(first)
            while stack:
                node, rest = stack[-1]
                child = next(rest, None)
                if child is None:
                    stack.pop()
                    open_nodes.discard(id(node))
                    done.add(id(node))
                    finished.append(id(node))
                elif id(child) in open_nodes:
                    raise _TooCostly  # looks at the same value for ever
                elif id(child) not in done:
                    enter(child)
        self.rank = {node: place for place, node in enumerate(reversed(finished))}

    def _same(self, node: Schema) -> Iterator[Schema]:
        for key in _IN_PLACE_LISTS:
            yield from _schemas(node.get(key))
        for key in _IN_PLACE_ONE:
            yield from _schemas([node.get(key)])
        for key in _IN_PLACE_MAPS:
            yield from _schemas_of_map(node.get(key))
        for key in _REFERENCES:
            if key in node:
                yield self._resolve(node[key])

    @staticmethod
    def _below(node: Schema) -> Iterator[tuple[str, Iterable[Schema]]]:
        for key, child in mapping(node.get("properties")).items():
            yield f".{key}", _schemas([child])
        objects = [node.get(key) for key in _BELOW_OBJECT] + list(mapping(node.get("patternProperties")).values())
        arrays = [node.get(key) for key in _BELOW_ARRAY] + [s for key in _BELOW_LISTS for s in listing(node.get(key))]
        yield _ANY_KEY, _schemas(objects)
        yield _ITEM, _schemas(arrays)
        yield _NAME, _schemas([node.get("propertyNames")])

    def _resolve(self, reference: Any) -> Schema:
        """The target of a reference inside this schema; anchors and other documents are not followed."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise _TooCostly
        target: Any = self.root
        for part in unquote(reference[2:]).split("/") if len(reference) > 1 else ():
            step = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and step in target:
                target = cast(Mapping[str, Any], target)[step]
            elif isinstance(target, list) and step.isdigit() and int(step) < len(cast(list[Any], target)):
                target = cast(list[Any], target)[int(step)]
            else:
                raise _TooCostly
        if isinstance(target, bool):
            return _ANYTHING
        if not isinstance(target, Mapping):
            raise _TooCostly
        return cast(Schema, target)


def _schemas(value: Any) -> list[Schema]:
    return [cast(Schema, v) for v in listing(value) if isinstance(v, Mapping)]


def _schemas_of_map(value: Any) -> list[Schema]:
    return _schemas(list(mapping(value).values()))
