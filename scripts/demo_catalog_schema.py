"""Python types -> JSON Schema, for `make_demo_catalog.py`: what a parameter of an API client accepts.

Knows the forms that generated API clients use (unions with an "omit" marker, Literal, TypedDict, Annotated with an
alias, iterables); everything else becomes the schema that allows anything, never a wrong one.
"""

import ast
import collections.abc
import datetime
import functools
import inspect
import textwrap
import types
import typing
from typing import Any

import typing_extensions

Schema = dict[str, Any]

MAX_DEPTH = 4
"""Objects within objects that are spelled out. Deeper ones are a plain object: real servers cut there as well, and
one recursive filter type would otherwise be most of the file."""

_SIMPLE: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bytes: {"type": "string"},
    type(None): {"type": "null"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
}
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number"}
_ARRAYS = (list, collections.abc.Iterable, collections.abc.Sequence)
_OBJECTS = (dict, collections.abc.Mapping)
_MARKERS = {"Omit", "NotGiven"}
_FILES = {"IOBase", "PathLike", "FileTypes", "PurePath"}


def schema_of(annotation: Any, depth: int = 0) -> Schema:
    """The JSON Schema of one resolved annotation."""
    if annotation in _SIMPLE:
        return dict(_SIMPLE[annotation])
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Annotated, typing_extensions.Required, typing_extensions.NotRequired):
        return schema_of(arguments[0], depth)
    if origin in (typing.Union, types.UnionType):
        return _union([a for a in arguments if getattr(a, "__name__", "") not in _MARKERS], depth)
    if origin is typing.Literal:
        return _literal(arguments)
    if origin in _ARRAYS or getattr(origin, "__name__", "") == "SequenceNotStr":
        return _compact({"type": "array", "items": schema_of(arguments[0], depth)})
    if origin in _OBJECTS:
        return _compact({"type": "object", "additionalProperties": schema_of(arguments[1], depth)})
    if typing_extensions.is_typeddict(annotation):
        return _typed_dict(annotation, depth)
    if origin is tuple or getattr(annotation, "__name__", "") in _FILES:
        return {"type": "string", "description": "File contents"}
    return {"type": "object"} if annotation is object and depth else {}


def _literal(values: tuple[Any, ...]) -> Schema:
    kinds = {type(value) for value in values}
    schema: Schema = {"type": _NAMES[kinds.pop()]} if len(kinds) == 1 else {}
    return {**schema, "enum": list(values)}


def _union(members: list[Any], depth: int) -> Schema:
    if any(getattr(member, "__name__", "") in _FILES for member in members):
        return {"type": "string", "description": "File contents"}
    schemas: list[Schema] = []
    for member in members:
        schema = schema_of(member, depth)
        if schema not in schemas:
            schemas.append(schema)
    if {} in schemas:
        return {}
    if all(schema.keys() == {"type", "enum"} and schema["type"] == "string" for schema in schemas):
        return {"type": "string", "enum": list(dict.fromkeys(value for schema in schemas for value in schema["enum"]))}
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _typed_dict(annotation: Any, depth: int) -> Schema:
    if depth >= MAX_DEPTH:
        return {"type": "object"}
    texts = field_texts(annotation)
    properties: dict[str, Schema] = {}
    for name, hint in typing_extensions.get_type_hints(annotation, include_extras=True).items():
        properties[alias_of(hint) or name] = described(schema_of(hint, depth + 1), texts.get(name))
    required = sorted(alias_of(annotation.__annotations__.get(n)) or n for n in annotation.__required_keys__)
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def alias_of(hint: Any) -> str | None:
    """The name on the wire of a TypedDict field, where it differs from the Python name."""
    if typing.get_origin(hint) in (typing_extensions.Required, typing_extensions.NotRequired):
        return alias_of(typing.get_args(hint)[0])
    for extra in getattr(hint, "__metadata__", ()):
        if alias := getattr(extra, "alias", None):
            return alias
    return None


def described(schema: Schema, text: str | None) -> Schema:
    """`schema` with `text` as its description, where there is one."""
    return {**schema, "description": text} if text else schema


def _compact(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if value != {}}


@functools.cache
def _module_tree(module_file: str) -> ast.Module:
    with open(module_file, encoding="utf-8") as file:
        return ast.parse(file.read())


def field_texts(annotation: Any) -> dict[str, str]:
    """The docstrings below the fields of a TypedDict class, its bases included. They exist in the source only."""
    texts: dict[str, str] = {}
    for base in getattr(annotation, "__orig_bases__", ()):
        if typing_extensions.is_typeddict(base):
            texts.update(field_texts(base))
    for node in _module_tree(inspect.getfile(inspect.getmodule(annotation) or annotation)).body:
        if isinstance(node, ast.ClassDef) and node.name == annotation.__name__:
            texts.update(_docstrings_below(node))
    return texts


def _docstrings_below(node: ast.ClassDef) -> dict[str, str]:
    texts: dict[str, str] = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
                texts[field.target.id] = inspect.cleandoc(text.value.value)
    return texts


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """A Google-style docstring as (prose, {parameter: its text}); texts keep their line breaks."""
    prose, _, arguments = ("\n" + inspect.cleandoc(text)).partition("\nArgs:\n")
    parameters: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent(arguments).split("\n"):
        head, colon, rest = line.partition(":")
        if colon and head.isidentifier():
            name, parameters[head] = head, rest.strip()
        elif name:
            parameters[name] += "\n" + line.strip()
    return prose.strip(), {name: text.strip() for name, text in parameters.items()}
