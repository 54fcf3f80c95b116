"""A YAML or JSON file as a tree of nodes that remember their line, their key path and the text they were written as.

The text matters: `NO`, `123` and `on` are a boolean or a number to YAML, but text where a string is expected.
"""

import json
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, cast

import yaml
from yaml.constructor import SafeConstructor

from proxy.errors import ConfigError

Value: TypeAlias = "dict[str, Node] | list[Node] | str | bool | int | float | None"

_YAML = "tag:yaml.org,2002:"
_MERGE = f"{_YAML}merge"
_TAGS = {_YAML + kind for kind in ("str", "int", "float", "bool", "null", "timestamp", "value", "map", "seq", "merge")}
"""Anything else, such as `!secret` or `!!python/object`, would mean something that we do not do."""
_JSON_NOISE = re.compile(
    r'"(?:[^"\\\n]|\\.)*"'  # a string, kept
    r"|//[^\n]*|/\*.*?\*/"  # comments, as VS Code and Zed allow them
    r"|,(?=(?:\s|//[^\n]*|/\*.*?\*/)*[}\]])",  # trailing commas
    re.DOTALL,
)
LARGEST, LARGEST_YAML = 16_000_000, 2_000_000
"""Characters of a file, which take some 3 s to read: clients keep more in their JSON than servers, and nobody writes
that much YAML. Longer ones would keep a proxy that runs busy, and who stops it waiting.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One value of the file."""

    value: Value
    text: str
    """A scalar as it was written, without quotes; "" for null and for collections."""
    path: str
    """Dotted keys from the root, such as `servers.github.env`."""
    line: int | None = None
    """1-based; the line of the key where there is one; None for JSON."""
    twice: tuple[str, ...] = field(default=())
    """Keys of this mapping that were given more than once (JSON only; in YAML that is an error at once)."""

    @property
    def items(self) -> "dict[str, Node]":
        """The mapping; empty where the value is none."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def is_map(self) -> bool:
        """Whether the value is a mapping."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """Whether the value is a list."""
        return isinstance(self.value, list)

    @property
    def elements(self) -> "list[Node]":
        """The list; empty where the value is none."""
        return self.value if isinstance(self.value, list) else []


def present(node: Node | None) -> TypeGuard[Node]:
    """Whether a key was given a value; `key:` and `key: null` are as absent."""
    return node is not None and node.value is not None


def read(path: Path) -> tuple[Node, bool]:
    """The root node of a file, and whether it is JSON (by its suffix, else by a leading brace).

    Raises:
        ConfigError: the file cannot be read, is too long or not UTF-8, or is not valid YAML or JSON; with the line.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would have us wait for ever
            raise ConfigError(
                f"{path}: is a {'folder' if stat.S_ISDIR(found.st_mode) else 'pipe or device'}, not a file"
            )
        _check_size(path, found.st_size, LARGEST)
        source = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    suffix = path.suffix.lower()
    is_json = suffix in (".json", ".jsonc") or (suffix not in (".yaml", ".yml") and source.lstrip().startswith("{"))
    if not is_json:
        _check_size(path, len(source), LARGEST_YAML)
    try:
        return (_json(path, source) if is_json else _yaml(path, source)), is_json
    except RecursionError as error:
        raise ConfigError(f"{path}: is nested too deeply") from error


def _check_size(path: Path, size: int, largest: int) -> None:
    if size > largest:
        raise ConfigError(f"{path}: has {size:,} characters; a configuration has at most {largest:,} of this kind")


def _json(path: Path, source: str) -> Node:
    # Comments and trailing commas become spaces, so that every position stays true.
    plain = _JSON_NOISE.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), source)
    if not plain.strip():
        return Node(None, "", "")
    try:
        parsed = json.loads(plain, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}:{error.colno}: is not valid JSON: {error.msg}") from error
    return _from_json(parsed, "")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys as they came."""


class _Number(str):
    """A JSON number as it was written."""


def _from_json(value: Any, path: str) -> Node:
    if isinstance(value, _Pairs):
        keys = [k for k, _ in value]
        twice = tuple(sorted({k for k in keys if keys.count(k) > 1})) if len(set(keys)) < len(keys) else ()
        return Node({k: _from_json(v, _join(path, k)) for k, v in value}, "", path, twice=twice)
    if isinstance(value, list):
        return Node([_from_json(v, f"{path}[{i}]") for i, v in enumerate(cast(list[Any], value))], "", path)
    if isinstance(value, _Number):
        number = float(value)
        return Node(int(value) if value.lstrip("-").isdigit() else number, str(value), path)
    if isinstance(value, bool):
        return Node(value, "true" if value else "false", path)
    return Node(value, value if isinstance(value, str) else "", path)


def _yaml(path: Path, source: str) -> Node:
    try:
        # PyYAML ships no types.
        root = cast(yaml.Node | None, yaml.compose(source, yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        hint = "; indent with spaces, YAML allows no tabs" if "'\\t'" in str(error.problem) else ""
        raise ConfigError(f"{place}: is not valid YAML: {error.problem or error.context}{hint}") from error
    except yaml.reader.ReaderError as error:
        line = source.count("\n", 0, error.position) + 1
        raise ConfigError(f"{path}:{line}: is not valid YAML: {str(error).splitlines()[0]}") from error
    if root is None:
        return Node(None, "", "", 1)
    return _FromYaml(path).convert(root, "", root.start_mark.line + 1)


class _FromYaml:
    """Turns PyYAML's composed nodes into ours. Each is converted once, so that aliases cannot multiply the work."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[int, Node | None] = {}
        self.scalars = SafeConstructor()

    def convert(self, node: yaml.Node, path: str, line: int) -> Node:
        known = self.done.get(id(node), node)
        if known is None:
            raise ConfigError(f"{self.path}:{line}: {path}: an alias contains itself")
        if isinstance(known, Node):
            return known
        if node.tag not in _TAGS:
            tag = node.tag.replace(_YAML, "!!", 1)
            raise ConfigError(f"{self.path}:{line}: {path}: the tag {tag!r} is not supported; remove it")
        self.done[id(node)] = None
        self.done[id(node)] = made = self._make(node, path, line)
        return made

    def _make(self, node: yaml.Node, path: str, line: int) -> Node:
        if isinstance(node, yaml.MappingNode):
            return Node(self._mapping(node, path), "", path, line)
        if isinstance(node, yaml.SequenceNode):
            children = [self.convert(n, f"{path}[{i}]", n.start_mark.line + 1) for i, n in enumerate(node.value)]
            return Node(children, "", path, line)
        text = str(node.value)
        value = self._scalar(cast(yaml.ScalarNode, node), text)
        return Node(value, "" if value is None else text, path, line)

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Node]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        pairs = cast(list[tuple[yaml.Node, yaml.Node]], node.value)
        for key_node, value_node in pairs:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{self.path}:{line}: {path}: a key must be a plain word")
            key = str(key_node.value)
            if key_node.tag == _MERGE:
                value = self.convert(value_node, _join(path, key), line)
                for part in value.elements or [value]:
                    merged = part.items | merged
            elif key in own:
                first = own[key].line
                raise ConfigError(
                    f"{self.path}:{line}: {_join(path, key)}: this key is given twice (first in line {first})"
                )
            else:
                own[key] = self.convert(value_node, _join(path, key), line)
        return own | {k: v for k, v in merged.items() if k not in own}

    def _scalar(self, node: yaml.ScalarNode, text: str) -> str | bool | int | float | None:
        kind = node.tag.rpartition(":")[2]
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return bool(self.scalars.construct_yaml_bool(node))
            if kind == "int":
                return int(self.scalars.construct_yaml_int(node))
            if kind == "float":
                return float(self.scalars.construct_yaml_float(node))
        except (ValueError, KeyError):
            return text
        return text


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
