"""Reads a listing back as a careful model would, knowing nothing of how it was made.

Strict on purpose: a line that is none of the known kinds is an error, so that nothing an upstream says can pass for
structure. Also loads the catalogs of real servers.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from proxy.catalog import Catalog, Server, make_server
from proxy.config import ServerConfig
from proxy.tokens import Counts

CATALOGS = Path(__file__).parent / "catalogs"

RULES = "Names below are exact."
SUMMARY = re.compile(r"- (?P<name>.+?) \((?P<count>\d+|\?)\): (?P<topic>.+)")
SERVERS = re.compile(r"(?P<label>Servers \(tools\)|Listed below): (?P<entries>.+)")
ENTRIES = re.compile(r"\S+ (?:\d+|\?)(?:, \S+ (?:\d+|\?))*,?")
HEADING = re.compile(r"(?P<prefix>[A-Za-z0-9_./-]*)\* \((?P<count>\d+)\):(?: (?P<names>.+))?")
FAMILY = re.compile(r"(?P<before>[A-Za-z0-9_./-]*)\*(?P<after>[A-Za-z0-9_./-]*): (?P<words>[A-Za-z0-9_./ -]+)")
NAMES = re.compile(r"[A-Za-z0-9_./-]+(?: [A-Za-z0-9_./-]+)*")
FULL = re.compile(r"(?P<name>[A-Za-z0-9_./-]+): (?P<sentence>.+)")


@dataclass
class Reading:
    summaries: dict[str, str] = field(default_factory=dict)
    """Server -> count."""
    bare: dict[str, str] = field(default_factory=dict)
    listed: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    described: dict[str, str] = field(default_factory=dict)
    headings: list[str] = field(default_factory=list)
    before_blocks: set[str] = field(default_factory=set)
    """Servers that were named before the first block."""


def read(slots: Sequence[str]) -> Reading:
    """What the slots say together. Raises AssertionError at the first line that has no business there."""
    found = Reading()
    prefix, left, servers = "", 0, None
    for line in "\n".join(slot for slot in slots if slot).split("\n"):
        if line.startswith(RULES):
            assert not found.summaries and not found.headings
        elif match := HEADING.fullmatch(line):
            assert left == 0, f"{left} names missing before {line!r}"
            if not found.headings:
                found.before_blocks = {*found.summaries, *found.bare, *found.listed}
            prefix, left, servers = match["prefix"], int(match["count"]), None
            found.headings.append(prefix)
            for name in (match["names"] or "").split():
                found.names.append(prefix + name)
                left -= 1
        elif left > 0:
            if match := FAMILY.fullmatch(line):
                new = [match["before"] + word + match["after"] for word in match["words"].split(" ")]
            elif match := FULL.fullmatch(line):
                new = [match["name"]]
                found.described[prefix + match["name"]] = match["sentence"]
            else:
                assert NAMES.fullmatch(line), f"not a line of names: {line!r}"
                new = line.split(" ")
            found.names += [prefix + name for name in new]
            left -= len(new)
        elif match := SUMMARY.fullmatch(line):
            assert not found.headings, f"a summary after a block: {line!r}"
            found.summaries[match["name"]] = match["count"]
        elif match := SERVERS.fullmatch(line):
            servers = found.bare if match["label"].startswith("Servers") else found.listed
            _entries(match["entries"], servers)
        else:
            assert servers is not None, f"a line out of place: {line!r}"
            _entries(line, servers)
    assert left == 0
    return found


def _entries(text: str, into: dict[str, str]) -> None:
    assert ENTRIES.fullmatch(text), f"not a line of servers: {text!r}"
    into.update(tuple(entry.rsplit(" ", 1)) for entry in text.rstrip(",").split(", "))


def server(key: str, tools: Sequence[str | dict[str, Any]], **config: Any) -> Server:
    """A server from tools given as names, or as raw dicts."""
    raw = [{"name": tool} if isinstance(tool, str) else tool for tool in tools]
    return make_server(ServerConfig(key=key, transport="stdio", **config), raw)


@cache
def real_servers() -> tuple[Server, ...]:
    """The servers of `catalogs/`, without what they say of themselves."""
    found: list[Server] = []
    for path in sorted(CATALOGS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        info = data["serverInfo"].get("description")
        found.append(make_server(ServerConfig(key=data["server"], transport="stdio"), data["tools"], info))
    return tuple(found)


@cache
def real_catalog() -> Catalog:
    return Catalog(real_servers())


ESTIMATES = Counts()


def count(line: str) -> int:
    """The estimate, remembered between tests."""
    return ESTIMATES.estimated(line)


def rank(form: str) -> float:
    """How much a form shows, comparable within one server."""
    kind, _, size = form.partition("-")
    kinds = ["unnamed", "named", "bare", "summary", "areas", "names", "families", "full"]
    return kinds.index(kind) + int(size or 0) / 10_000
