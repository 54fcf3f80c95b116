"""What models really send to search and describe, understood where it can mean only one thing.

Seen in the wild: the query as a list, the whole request as a JSON string in one field (failure report B3), numbers as
strings, null for absent, one name where a list is asked for and the reverse, `q` or `text` for `query`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from proxy.bridge.tools import DETAILS
from proxy.config import ToolSearchConfig

_QUERY_KEYS = ("query", "queries", "q", "search", "text", "keywords", "search_query")
_SERVER_KEYS = ("server", "server_name", "source")
_LIMIT_KEYS = ("limit", "max_results", "top_k", "k", "n")
_NAME_KEYS = ("name", "names", "tool", "tools", "tool_name", "tool_names", "query", "queries")
_WRAPPERS = ("arguments", "args", "params", "parameters", "input")
_JSON_CHARACTERS = 20_000
_QUERIES = 50
_WRAPPINGS = 3


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search as it is meant."""

    queries: tuple[str, ...]
    """Without empty ones and repetitions; none means paging through the catalog."""
    server: str | None
    limit: int
    offset: int
    detail: str
    limited: bool
    """Whether `limit` was given."""


def read_search(arguments: object, settings: ToolSearchConfig) -> SearchRequest:
    """The request in `arguments`, whatever they are. Limits are clamped."""
    values = _values(arguments, "query", _QUERY_KEYS)
    queries: list[str] = []
    for key in _QUERY_KEYS:
        for query in _texts(values.get(key), ("query", "q", "text")):
            if query not in queries and len(queries) < _QUERIES:
                queries.append(query)
    limit = next((n for key in _LIMIT_KEYS if (n := _number(values.get(key))) is not None), None)
    detail = values.get("detail")
    detail = detail.strip().lower() if isinstance(detail, str) else "brief"
    return SearchRequest(
        queries=tuple(queries),
        server=next((text for key in _SERVER_KEYS for text in _texts(values.get(key), ("name", "server"))), None),
        limit=min(max(limit if limit is not None else settings.search_default_limit, 1), settings.max_search_limit),
        offset=max(_number(values.get("offset")) or 0, 0),
        detail=detail if detail in DETAILS else "brief",
        limited=limit is not None,
    )


def read_names(arguments: object) -> tuple[str, ...]:
    """The names to describe in `arguments`, in order, each once."""
    values = _values(arguments, "name", _NAME_KEYS)
    names: list[str] = []
    for key in _NAME_KEYS:
        names += [name for name in _texts(values.get(key), ("name", "tool")) if name not in names]
    return tuple(names[:_QUERIES])


def _values(arguments: object, scalar: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    """The arguments as an object: JSON text is read, wrappings are taken off, a bare value is the `scalar`."""
    for _ in range(_WRAPPINGS):
        node = _object(arguments)
        if node is None:
            return {} if arguments is None else {scalar: arguments}
        inner = _inner(node, scalar, known)
        if inner is None:
            return node
        arguments = {**{key: value for key, value in node.items() if key not in (scalar, *_WRAPPERS)}, **inner}
    return _object(arguments) or {}


def _inner(node: Mapping[str, Any], scalar: str, known: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The request that stands whole in one field of `node`, else None."""
    keys = (scalar,) if any(node.get(key) for key in known) else _WRAPPERS
    for key in keys:
        found = _object(node.get(key))
        if found is not None and any(found.get(name) for name in known):
            return found
    return None


def _object(value: object) -> Mapping[str, Any] | None:
    """`value` if it is an object or the JSON text of one."""
    found = _parsed(value) if isinstance(value, str) else value
    return cast(Mapping[str, Any], found) if isinstance(found, Mapping) else None


def _parsed(text: str) -> object:
    """The object or array that `text` is as JSON, else None."""
    text = text.strip()
    if not text or text[0] not in "{[" or len(text) > _JSON_CHARACTERS:
        return None
    try:
        return cast(object, json.loads(text))
    except (ValueError, RecursionError):
        return None


def _texts(value: object, keys: tuple[str, ...], depth: int = 0) -> Iterator[str]:
    """The non-empty texts in `value`: itself, its items, or what objects hold under one of `keys`."""
    if depth > 3:
        return
    if isinstance(value, str):
        parsed = _parsed(value)
        if parsed is not None and (found := tuple(_texts(parsed, keys, depth + 1))):
            yield from found
        elif value.strip():
            yield value.strip()
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int | float):
        yield str(value)
    elif isinstance(value, Mapping):
        node = cast(Mapping[str, Any], value)
        for key in keys:
            yield from _texts(node.get(key), keys, depth + 1)
    elif isinstance(value, list | tuple):
        for item in cast(list[object], value)[:_QUERIES]:
            yield from _texts(item, keys, depth + 1)


def _number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = value.strip()[:20]
    if isinstance(value, str | int | float):
        try:
            return int(float(value))
        except (ValueError, OverflowError):
            return None
    return None
