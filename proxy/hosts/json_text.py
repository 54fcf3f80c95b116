"""JSON with comments and trailing commas, edited in place (VS Code, Zed, Cursor, opencode and others write it)."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.hosts.problem import HostFileError

_TRIVIA = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_ATOM = re.compile(r"[^\s,:\[\]{}\"/]+")
_LINE_REST = re.compile(r"[ \t]*(?:/\*[^\n]*?\*/[ \t]*)*(?://[^\n]*?)?(?=\r?\n|\Z)")
_DEPTH = 200


@dataclass
class _Node:
    """A value and where it stands in the text."""

    value: Any
    start: int
    end: int
    members: "list[_Member]" = field(default_factory=list["_Member"])
    """Of an object."""


@dataclass
class _Member:
    key: str
    start: int
    value: _Node
    comma: int | None = None
    """Where the comma after it stands."""


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 1 if text.startswith("\ufeff") else 0

    def fail(self, what: str) -> HostFileError:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        return HostFileError(f"is not valid JSON: {what} at line {line}, column {column}")

    def skip(self) -> str:
        match = _TRIVIA.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def document(self) -> _Node | None:
        if not self.skip():
            return None
        root = self.node(0)
        if self.skip():
            raise self.fail("something stands after the end")
        return root

    def node(self, depth: int) -> _Node:
        if depth > _DEPTH:
            raise self.fail("nested too deeply")
        start, ch = self.at, self.text[self.at : self.at + 1]
        if ch == "{":
            members = self._members(depth)
            return _Node({m.key: m.value.value for m in members}, start, self.at, members)
        if ch == "[":
            values = list(self._elements(depth))
            return _Node(values, start, self.at)
        pattern = _STRING if ch == '"' else _ATOM
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.fail("a value is missing")
        try:
            value = json.loads(match[0])
        except ValueError:
            raise self.fail(f"{match[0][:20]!r} is no value") from None
        self.at = match.end()
        return _Node(value, start, self.at)

    def _members(self, depth: int) -> list[_Member]:
        self.at += 1
        found: list[_Member] = []
        keys: set[str] = set()
        while (ch := self.skip()) != "}":
            if found and found[-1].comma is None:
                raise self.fail("a comma is missing")
            start = self.at
            if ch != '"':
                raise self.fail("a key in double quotes is missing")
            key = self.node(depth + 1).value
            if key in keys:
                raise self.fail(f"the key {key!r} is given twice")
            keys.add(key)
            if self.skip() != ":":
                raise self.fail("a colon is missing")
            self.at += 1
            self.skip()
            member = _Member(key, start, self.node(depth + 1))
            found.append(member)
            if self.skip() == ",":
                member.comma = self.at
                self.at += 1
        self.at += 1
        return found

    def _elements(self, depth: int) -> Iterable[Any]:
        self.at += 1
        comma = True
        while self.skip() != "]":
            if not comma:
                raise self.fail("a comma is missing")
            yield self.node(depth + 1).value
            if comma := self.skip() == ",":
                self.at += 1
        self.at += 1


def parse(text: str) -> Any:
    """The data; None for an empty file. Raises HostFileError with line and column."""
    root = _Parser(text).document()
    return None if root is None else root.value


def set_member(text: str, path: Sequence[str], key: str, value: Mapping[str, Any]) -> str:
    """`text` with the member; see `Editor.set`."""
    root = _Parser(text).document()
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = _unit(text)
    if root is None:
        comments = text.rstrip(" \t\r\n") + (newline if text.strip("\ufeff \t\r\n") else "")
        return comments + _dump(_nested([*path, key], value), "", unit, newline) + newline
    block, missing = _descend(root, path)
    names = [*missing, key]
    member = next((m for m in block.members if m.key == names[0]), None)
    content = _nested(names[1:], value)
    if member is not None:
        inline = "\n" not in text[block.start : block.members[0].start]
        dumped = (
            json.dumps(content, ensure_ascii=False)
            if inline
            else _dump(content, _indent_at(text, member.start), unit, newline)
        )
        return text[: member.value.start] + dumped + text[member.value.end :]
    return _insert(text, block, names[0], content, unit, newline)


def remove_member(text: str, path: Sequence[str], key: str) -> str:
    """`text` without the member; see `Editor.remove`."""
    root = _Parser(text).document()
    if root is None:
        return text
    block, missing = _descend(root, path)
    place = next((n for n, m in enumerate(block.members) if m.key == key), None)
    if missing or place is None:
        return text
    member = block.members[place]
    end = member.value.end if member.comma is None else member.comma + 1
    start = len(text[: member.start].rstrip(" \t"))
    own_line = text[start - 1 : start] == "\n"
    if own_line:
        start -= 2 if text[start - 2 : start] == "\r\n" else 1
        if member.comma is not None and (rest := _LINE_REST.match(text, end)):
            end = rest.end() if text[end : rest.end()].strip() == "" else end
        if _comment_ends(text, start) and text[end : end + 2].strip():
            start = member.start  # what follows on this line must not end up in the comment before
    elif member.comma is not None and place + 1 < len(block.members):
        start, end = member.start, end + len(text[end:]) - len(text[end:].lstrip(" \t"))
    if len(block.members) == 1 and not text[block.start + 1 : start].strip() and not text[end : block.end - 1].strip():
        return text[: block.start + 1] + text[block.end - 1 :]
    if member.comma is None and place > 0 and (comma := block.members[place - 1].comma) is not None:
        if not own_line:
            return text[:comma] + text[end:]
        return text[:comma] + text[comma + 1 : start] + text[end:]
    return text[:start] + text[end:]


def _comment_ends(text: str, place: int) -> bool:
    """Whether the line that ends at `place` ends in a `//` comment."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return "//" in _STRING.sub('""', line)


def _descend(root: _Node, path: Sequence[str]) -> tuple[_Node, list[str]]:
    """The deepest object on the way, and what of `path` is not there."""
    node = root
    for number, part in enumerate(path):
        member = next((m for m in node.members if m.key == part), None)
        if member is None or member.value.value is None:
            return node, list(path[number:])
        node = member.value
    return node, []


def _insert(text: str, block: _Node, key: str, content: Any, unit: str, newline: str) -> str:
    name = json.dumps(key, ensure_ascii=False)

    def line(indent: str) -> str:
        return f"{newline}{indent}{name}: {_dump(content, indent, unit, newline)}"

    if not block.members:
        outer = _indent_at(text, block.start)
        kept = text[block.start + 1 : block.end - 1].rstrip()
        return text[: block.start + 1] + kept + line(outer + unit) + newline + outer + text[block.end - 1 :]
    first, last = block.members[0], block.members[-1]
    if "\n" not in text[block.start : first.start]:  # an object on one line stays on one line
        entry = f"{name}: {json.dumps(content, ensure_ascii=False)}"
        if last.comma is not None:
            return f"{text[: last.comma + 1]} {entry},{text[last.comma + 1 :]}"
        return f"{text[: last.value.end]}, {entry}{text[last.value.end :]}"
    entry = line(_indent_at(text, first.start))
    after = last.value.end if last.comma is None else last.comma + 1
    rest = _LINE_REST.match(text, after)
    place = rest.end() if rest else after
    if last.comma is None:
        return text[:after] + "," + text[after:place] + entry + text[place:]
    return text[:place] + entry + "," + text[place:]


def _nested(names: Sequence[str], value: Any) -> Any:
    for name in reversed(names):
        value = {name: value}
    return value


def _dump(value: Any, indent: str, unit: str, newline: str) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (newline + indent).join(_short_lists(lines))


def _short_lists(lines: list[str]) -> Iterable[str]:
    """Lists of plain values on one line, as people write the arguments of a command."""
    held: list[str] | None = None
    for line in lines:
        if held is None and line.endswith("["):
            held = [line]
        elif held is not None and line.strip() in ("]", "],"):
            yield held[0] + " ".join(part.strip() for part in held[1:]) + line.strip()
            held = None
        elif held is not None and line.rstrip(",").endswith(("{", "[")):
            yield from held
            yield line
            held = None
        elif held is not None:
            held.append(line)
        else:
            yield line
    yield from held or ()


def _indent_at(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """What one level of this file is indented by."""
    match = re.search(r'^([ \t]+)"', text, re.MULTILINE)
    return match[1] if match else "  "
