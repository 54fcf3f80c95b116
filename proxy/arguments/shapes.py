"""JSON values of unknown shape, looked at without trusting them."""

from collections.abc import Mapping
from typing import Any, cast


def mapping(value: object) -> Mapping[str, Any]:
    """`value` where it is an object, else an empty one."""
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def listing(value: object) -> list[Any]:
    """`value` where it is a list, else an empty one."""
    return cast(list[Any], value) if isinstance(value, list) else []


def kind(value: object) -> str:
    """The JSON Schema type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names: list[tuple[type, str]] = [
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (Mapping, "object"),
    ]
    return next((name for cls, name in names if isinstance(value, cls)), "unknown")
