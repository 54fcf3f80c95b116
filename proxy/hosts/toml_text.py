"""TOML, as far as Codex's file needs it: whole tables `[mcp_servers.name]` are appended, replaced and removed."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from proxy.hosts.problem import HostFileError

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(
    r"""[ \t]*\[(?!\[)(?P<name>(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\]\n"'#])*)\][ \t]*(?:#[^\n]*)?\r?(?:\n|\Z)"""
)
_ARRAY_HEADER = re.compile(r"[ \t]*\[\[")
_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}|\'\'\'(?:[^\']|\'(?!\'\'))*\'{3,5}'
    r"|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|\#[^\n]*|[\[\]{}]|\n",
    re.DOTALL,
)


def parse(text: str) -> Any:
    """The data. Raises HostFileError with line and column."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise HostFileError(f"is not valid TOML: {error}") from None


def set_table(text: str, path: Sequence[str], key: str, value: Mapping[str, Any]) -> str:
    """`text` with the table at `path` + `key`; see `Editor.set`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    table = newline.join(_table([*path, key], value)) + newline
    spans = list(_sections(text, [*path, key]))
    if spans:
        start, end = spans[0]
        for span in reversed(spans[1:]):
            text = _without(text, span)
        return text[:start] + table + text[end:]
    if not text.strip("\ufeff \t\r\n"):
        return text.rstrip(" \t\r\n") + table
    return text + ("" if text.endswith("\n") else newline) + newline + table


def remove_table(text: str, path: Sequence[str], key: str) -> str:
    """`text` without the table and its subtables; see `Editor.remove`."""
    for span in reversed(list(_sections(text, [*path, key]))):
        text = _without(text, span)
    return text


def _without(text: str, span: tuple[int, int]) -> str:
    """`text` without a span of lines and the empty line that parted it from what precedes."""
    before = text[: span[0]]
    for blank in ("\r\n\r\n", "\n\n"):
        if before.endswith(blank):
            before = before[: len(before) - len(blank) // 2]
            break
    return before + text[span[1] :]


def _table(names: Sequence[str], value: Mapping[str, Any]) -> list[str]:
    lines = [f"[{'.'.join(map(_key, names))}]"]
    lines += [f"{_key(k)} = {_value(v)}" for k, v in value.items() if not isinstance(v, Mapping)]
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            lines += ["", *_table([*names, key], cast(Mapping[str, Any], inner))]
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    # A JSON string is a TOML basic string, except for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, cast(Sequence[object], value)))}]"
    return str(value)


def _sections(text: str, names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where the table `names` and its subtables stand, each from its header to its last line with content."""
    lines = list(_top_lines(text))
    for number, (start, _) in enumerate(lines):
        header = _header_names(text, start)
        if header is None or header[: len(names)] != list(names):
            continue
        end = lines[number][1]
        for later_start, later_end in lines[number + 1 :]:
            if _HEADER.match(text, later_start) or _ARRAY_HEADER.match(text, later_start):
                break
            if text[later_start:later_end].strip() and not text[later_start:later_end].lstrip().startswith("#"):
                end = later_end
        yield start, end


def _header_names(text: str, start: int) -> list[str] | None:
    match = _HEADER.match(text, start)
    if match is None:
        return None
    try:
        data: Any = tomllib.loads(f"[{match['name']}]")
    except tomllib.TOMLDecodeError:
        return None
    names: list[str] = []
    while data:
        name = next(iter(data))
        names.append(name)
        data = data[name]
    return names


def _top_lines(text: str) -> Iterator[tuple[int, int]]:
    """The lines of the document; a value over several lines counts as one."""
    start, depth = 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in ("[", "{"):
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
        elif token == "\n" and depth <= 0:
            yield start, match.end()
            start, depth = match.end(), 0
    if start < len(text):
        yield start, len(text)
