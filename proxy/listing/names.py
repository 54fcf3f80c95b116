"""Names as the listing shows them: their words, the guard against odd ones, the prefix that a server's names share."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.catalog import Server
from proxy.tool import Tool, public_stem

_WORD = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+|[^\W\d_A-Za-z]+")
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
SEPARATOR = "__"

_SHARED_MIN_TOOLS = 4
_SHARED_PCT = 90


def word_spans(name: str) -> list[tuple[int, int]]:
    """Where the words of `name` are. What lies between is separator and belongs to a family's literal."""
    return [match.span() for match in _WORD.finditer(name)]


def words(name: str) -> list[str]:
    """The words of `name`, as written."""
    return _WORD.findall(name)


@dataclass(frozen=True)
class Shown:
    """A tool with the name the listing gives it: `stem + entry` is accepted by `Catalog.resolve`."""

    stem: str
    """`<server>__`, or "" where no part of the name could be said once for all."""
    entry: str
    tool: Tool


def shown(server: Server) -> list[Shown]:
    """The tools behind the bridge, sorted by the name that is shown.

    The raw name where `<server>__<raw name>` is plain text that can mean no other tool; else the public name.
    """
    stem = server.key + SEPARATOR
    plain = bool(_PLAIN.fullmatch(server.key)) and SEPARATOR not in server.key and not server.key.endswith("_")
    public = public_stem(server.key)
    found: list[Shown] = []
    for tool in server.deferred:
        if plain and _PLAIN.fullmatch(tool.name) and not tool.name.startswith("_"):
            found.append(Shown(stem, tool.name, tool))
        elif tool.public_name.startswith(public) and tool.public_name != public:
            found.append(Shown(public, tool.public_name.removeprefix(public), tool))
        else:
            found.append(Shown("", tool.public_name, tool))
    return sorted(found, key=lambda s: (s.stem, s.entry))


@dataclass(frozen=True)
class Group:
    """Entries under one heading."""

    prefix: str
    """What the heading says before its star."""
    entries: tuple[str, ...]
    tools: tuple[Tool, ...]


def groups(names: Sequence[Shown]) -> list[Group]:
    """The names by heading: those with the server's shared prefix, then those without."""
    found: list[Group] = []
    for stem in sorted({s.stem for s in names}, reverse=True):
        members = [s for s in names if s.stem == stem]
        prefix = shared_prefix([s.entry for s in members])
        inside = [s for s in members if _has(s.entry, prefix)] if prefix else members
        outside = [s for s in members if not _has(s.entry, prefix)] if prefix else []
        found.append(Group(stem + prefix, tuple(s.entry[len(prefix) :] for s in inside), tuple(s.tool for s in inside)))
        if outside:
            found.append(Group(stem, tuple(s.entry for s in outside), tuple(s.tool for s in outside)))
    return found


def shared_prefix(names: Sequence[str]) -> str:
    """The longest prefix of whole words that at least 90 % of `names` have before something else; "" below 4 names."""
    if len(names) < _SHARED_MIN_TOOLS:
        return ""
    counts: dict[str, int] = {}
    for name in names:
        for prefix in prefixes(name):
            counts[prefix] = counts.get(prefix, 0) + 1
    return max((p for p, n in counts.items() if n * 100 >= _SHARED_PCT * len(names)), key=len, default="")


def prefixes(name: str) -> Iterable[str]:
    """The prefixes of `name` that end before one of its words, the first word excepted."""
    return (name[:start] for start, _ in word_spans(name)[1:])


def _has(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and prefix in prefixes(name)
