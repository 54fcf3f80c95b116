"""YAML, edited in place: entries of a block mapping (or of a flow mapping) are inserted and removed as lines."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import yaml

from proxy.hosts.problem import HostFileError

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def parse(text: str) -> Any:
    """The data; None for an empty file. Raises HostFileError with line and column."""
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise HostFileError(f"is not valid YAML: {error.problem or error.context}{place}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise HostFileError(f"is not valid YAML: {error}") from None


def set_entry(text: str, path: Sequence[str], key: str, value: Mapping[str, Any]) -> str:
    """`text` with the entry at `path` + `key`; see `Editor.set`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if (lines := _entry_lines(text, path, key)) is not None:
        start, end, column = lines
        return text[:start] + _block([key], value, " " * column, newline) + text[end:]
    without = remove_entry(text, path, key)
    root = _root(without)
    if root is None:
        start = without if not without.strip() or without.endswith("\n") else without + newline
        return start + _block([*path, key], value, "", newline)
    node, missing = root, [*path, key]
    while len(missing) > 1 and (child := _child(node, missing[0])) is not None:
        if isinstance(child[1], yaml.MappingNode):
            node, missing = child[1], missing[1:]
        elif child[1].tag.endswith(":null") and child[1].start_mark.index == child[1].end_mark.index:
            # `key:` with nothing below it
            indent = " " * (child[0].start_mark.column + 2)
            return _after_line(without, child[0].end_mark.index, _block(missing[1:], value, indent, newline), newline)
        else:
            break
    if node.flow_style:
        if not node.value and node is not root:
            indent = " " * (_line_indent(without, node.start_mark.index) + 2)
            start, end = node.start_mark.index, node.end_mark.index
            block = _block(missing, value, indent, newline).rstrip("\r\n")
            return without[:start].rstrip(" ") + newline + block + without[end:]
        end = len(without[: node.end_mark.index - 1].rstrip())
        comma = "" if not node.value or without[end - 1] == "," else ","
        data: Any = value
        for name in reversed(missing[1:]):
            data = {name: data}
        flow = f"{_scalar(missing[0])}: {json.dumps(data, ensure_ascii=False)}"
        return without[:end] + comma + (" " if node.value else "") + flow + without[end:]
    indent = " " * node.value[0][0].start_mark.column
    return _after_line(without, _content_end(without, node), _block(missing, value, indent, newline), newline)


def remove_entry(text: str, path: Sequence[str], key: str) -> str:
    """`text` without the entry; see `Editor.remove`."""
    if (lines := _entry_lines(text, path, key)) is not None:
        return text[: lines[0]] + text[lines[1] :]
    node, found = _find(text, path, key)
    if node is not None and found is not None:
        start, end = found[0].start_mark.index, _content_end(text, found[1])
        rest = text[end:].lstrip()
        if rest.startswith(","):
            end = text.index(",", end) + 1
            end += len(text[end:]) - len(text[end:].lstrip(" "))
        else:
            start = len(text[:start].rstrip().removesuffix(","))
        return text[:start] + text[end:]
    return text


_Pair = tuple[yaml.Node, yaml.Node]


def _find(text: str, path: Sequence[str], key: str) -> tuple[yaml.MappingNode | None, _Pair | None]:
    """The mapping at `path` and its entry `key`, where there are such."""
    node = _root(text)
    for part in path:
        child = _child(node, part) if node is not None else None
        node = child[1] if child is not None and isinstance(child[1], yaml.MappingNode) else None
    return node, _child(node, key) if node is not None else None


def _entry_lines(text: str, path: Sequence[str], key: str) -> tuple[int, int, int] | None:
    """Start and end of the lines of an entry of a block mapping, and its column."""
    node, found = _find(text, path, key)
    if node is None or found is None or node.flow_style:
        return None
    start, end = found[0].start_mark.index, max(found[0].end_mark.index + 1, _content_end(text, found[1]))
    line_end = text.find("\n", end)
    return text.rfind("\n", 0, start) + 1, len(text) if line_end < 0 else line_end + 1, found[0].start_mark.column


def _root(text: str) -> yaml.MappingNode | None:
    try:
        node = cast(yaml.Node, yaml.compose(text, yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
    except yaml.YAMLError as error:
        raise HostFileError(f"is not valid YAML: {error}") from None
    return node if isinstance(node, yaml.MappingNode) else None


def _child(node: yaml.MappingNode, key: str) -> _Pair | None:
    return next((pair for pair in cast(list[_Pair], node.value) if pair[0].value == key), None)


def _content_end(text: str, node: yaml.Node) -> int:
    """Where the last character of a node stands; PyYAML's own end of a block is the start of what follows."""
    if isinstance(node, yaml.ScalarNode) or getattr(node, "flow_style", False) or not node.value:
        start, end = cast(int, node.start_mark.index), cast(int, node.end_mark.index)
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            return start + len(text[start:end].rstrip())
        return end
    last: Any = node.value[-1]
    if isinstance(node, yaml.MappingNode):
        key, value = cast(_Pair, last)
        return max(cast(int, key.end_mark.index), _content_end(text, value))
    return _content_end(text, cast(yaml.Node, last))


def _after_line(text: str, place: int, block: str, newline: str) -> str:
    """`block` after the line that holds `place`."""
    end = text.find("\n", place)
    if end < 0:
        return text + newline + block.rstrip("\r\n")
    return text[: end + 1] + block + text[end + 1 :]


def _line_indent(text: str, place: int) -> int:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return len(line) - len(line.lstrip(" "))


def _block(names: Sequence[str], value: Mapping[str, Any], indent: str, newline: str) -> str:
    lines: list[str] = []
    for number, name in enumerate(names, 1):
        lines.append(f"{indent}{_scalar(name)}:" + (" {}" if number == len(names) and not value else ""))
        indent += "  "
    _dump(value, indent, lines)
    return newline.join(lines) + newline


def _dump(value: Mapping[str, Any], indent: str, lines: list[str]) -> None:
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            lines.append(f"{indent}{_scalar(key)}:")
            _dump(cast(Mapping[str, Any], item), indent + "  ", lines)
        else:
            lines.append(f"{indent}{_scalar(key)}: {_flow(item)}")


def _flow(value: Any) -> str:
    if isinstance(value, str):
        return _scalar(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_flow(v) for v in cast(Sequence[Any], value))}]"
    return json.dumps(value, ensure_ascii=False)


def _scalar(text: str) -> str:
    """Plain where nobody can misread it, else a JSON string, which YAML reads the same."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(ch if ch.isprintable() else f"\\U{ord(ch):08x}" for ch in quoted)
