"""Catalog: immutable snapshot of all tools that are known now, with look-up by name and a content hash.

Built from raw tool dicts by `make_server` (one upstream) and `Catalog` (all of them); swapped whole, never mutated.
What a caller may see is a `view`, which is a Catalog too.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from proxy.config import ServerConfig
from proxy.eager import unshowable
from proxy.text import first_sentence
from proxy.tool import Tool, public_name, public_stem

log = logging.getLogger(__name__)

TOPIC = 240
"""Characters of a topic that the server says of itself; what the person configured is kept whole."""

_ESCAPED = re.compile(r"\\[ubf]|\x7f")
"""What JSON text has where a string is not plain ASCII, or holds a control character other than a line break or tab."""

SEPARATORS = (".", "/", ":", "__")
"""What models put between server and raw name."""


@dataclass(frozen=True, eq=False)
class Server:
    """One upstream's part of the catalog."""

    key: str
    tools: tuple[Tool, ...] = ()
    """Sorted by raw name; without what is excluded or denied."""
    topic: str | None = None
    """The configured description, else the first sentence of `serverInfo.description`."""
    aliases: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    instructions: str | None = None
    """What the server says to models; searched, never shown."""
    eager: bool = False
    """All its tools are eager, by its config; so it is absent from the listing even while its list is unknown."""
    known: bool = True
    """False while no list of this server was ever seen."""
    denied: frozenset[str] = frozenset()
    """Raw names that exist but are out of every view."""
    hash: str = ""
    by_name: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """Raw name -> tool."""
    odd: frozenset[str] = frozenset()
    """Raw names of tools that are not plain ASCII, and so may hold characters that nobody sees."""
    about: tuple[str | None, str | None] = (None, None)
    """What the server says of itself, as sent: its instructions (shown to nobody) and `serverInfo.description`."""

    @cached_property
    def deferred(self) -> tuple[Tool, ...]:
        """The tools behind the bridge."""
        return tuple(t for t in self.tools if not t.eager)

    def having(self, tools: Iterable[Tool], denied: frozenset[str], topic: str | None) -> "Server":
        """The same server with these of its tools (in their order), these denied names and this topic."""
        chosen = tuple(tools)
        digest = hashlib.sha256(self.hash.encode())
        for part in (topic or "", *sorted(denied)):
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
        for tool in chosen:
            digest.update(tool.name.encode("utf-8", "surrogatepass") + b"\0")
        by_name = {t.name: t for t in chosen}
        return replace(self, tools=chosen, denied=denied, topic=topic, by_name=by_name, hash=digest.hexdigest())


def make_server(
    config: ServerConfig,
    raw_tools: Sequence[Mapping[str, Any]] | None,
    info_description: str | None = None,
    instructions: str | None = None,
) -> Server:
    """One upstream's tools as they exist for anyone, by its config.

    `raw_tools` are the dicts of `tools/list`, each with a string `name`; None means that no list was ever seen.
    A raw name listed twice: the first wins, with a warning.
    """
    tools: dict[str, Tool] = {}
    denied: set[str] = set()
    public: set[str] = set()
    twice: dict[str, None] = {}
    for raw in raw_tools or ():
        name: str = raw["name"]
        if name in tools or name in denied:
            twice[name] = None
        elif not _any(config.include, name) or _any(config.exclude, name):
            continue
        elif _any(config.deny, name):
            denied.add(name)
        else:
            shown = public_name(config.key, name)
            if shown in public:
                log.warning("server %r: the public name of %r is taken; the tool is left out", config.key, name)
                continue
            public.add(shown)
            wanted = not config.lazy or _any(config.pinned, name)
            why = unshowable(raw) if wanted else ""
            tools[name] = Tool(config.key, name, raw, shown, eager=wanted and not why, unshowable=why)
    if twice:  # one line, for pages that repeat are thousands of them
        more = f" and {len(twice) - 1} more" if len(twice) > 1 else ""
        log.warning("server %r lists the tool %r%s twice; the first one is kept", config.key, next(iter(twice)), more)
    ordered = tuple(sorted(tools.values(), key=lambda t: t.name))
    topic = config.description or (info_description and first_sentence(info_description, TOPIC))
    digest = hashlib.sha256()
    known = "known" if raw_tools is not None else ""
    searched = (*config.aliases, "", *config.keywords, "", instructions or "")
    for part in (config.key, topic or "", known, *searched, *sorted(denied)):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    odd: list[str] = []
    for tool in ordered:
        digest.update(b"eager" if tool.eager else b"lazy")
        text = json.dumps(tool.raw, sort_keys=True, separators=(",", ":"))
        digest.update(text.encode())
        if _ESCAPED.search(text):
            odd.append(tool.name)
    return Server(
        key=config.key,
        tools=ordered,
        topic=topic,
        aliases=config.aliases,
        keywords=config.keywords,
        instructions=instructions,
        eager=not config.lazy,
        known=raw_tools is not None,
        denied=frozenset(denied),
        hash=digest.hexdigest(),
        by_name={t.name: t for t in ordered},
        odd=frozenset(odd),
        about=(instructions, info_description),
    )


def _any(globs: Iterable[str], name: str) -> bool:
    return any(g == "*" or fnmatchcase(name, g) for g in globs)


class NotFound(Exception):
    """Raised by `Catalog.resolve` when not exactly one tool has that name.

    `candidates` are the tools that do (none, or several that must be told apart);
    `incomplete` says that a bare name cannot be trusted yet because some server's list is unknown.
    """

    def __init__(self, name: str, candidates: tuple[Tool, ...] = (), *, incomplete: bool = False) -> None:
        super().__init__(name)
        self.name = name
        self.candidates = candidates
        self.incomplete = incomplete


class Catalog:
    """All servers and their tools, in the fixed order of their keys and raw names."""

    def __init__(self, servers: Iterable[Server] = ()) -> None:
        self.servers: Mapping[str, Server] = {s.key: s for s in sorted(servers, key=lambda s: s.key)}
        self.tools: tuple[Tool, ...] = tuple(t for s in self.servers.values() for t in s.tools)
        self._public: dict[str, Tool] = {}
        self._spelled: dict[str, Tool] = {}
        """What was resolved from another spelling; a tool has few, so it stays small."""
        for tool in self.tools:
            if self._public.setdefault(tool.public_name, tool) is not tool:
                log.warning("%r of server %r has a public name that is taken", tool.name, tool.server)
        self.hash: str = hashlib.sha256("\0".join(s.hash for s in self.servers.values()).encode()).hexdigest()

    @cached_property
    def complete(self) -> bool:
        """Whether every server's list is known."""
        return all(s.known for s in self.servers.values())

    @cached_property
    def eager(self) -> tuple[Tool, ...]:
        """The tools shown to the client directly, by public name."""
        return tuple(sorted((t for t in self.tools if t.eager), key=lambda t: t.public_name))

    def public(self, name: str) -> Tool | None:
        """The tool with exactly that public name."""
        return self._public.get(name)

    def resolve(self, name: str) -> Tool:
        """The one tool that `name` means, in any of the accepted spellings; only exact matches count.

        A public name wins. Otherwise `server.tool`, `server/tool`, `server:tool`, `server__tool` with the raw name,
        `mcp__server__tool`, `mcp_server_tool` and the bare raw name are all tried.

        Raises:
            NotFound: no tool has that name, or several have.
        """
        if (tool := self._public.get(name) or self._spelled.get(name)) is not None:
            return tool
        found: dict[str, Tool] = {}
        if name.startswith("mcp__") and (tool := self._public.get(name[5:])) is not None:
            found[tool.public_name] = tool
        for server in self.servers.values():
            for form in self._rests(server.key, name):
                if (tool := server.by_name.get(form)) is not None:
                    found[tool.public_name] = tool
        bare = tuple(t for s in self.servers.values() if (t := s.by_name.get(name)) is not None)
        if not found and bare:
            hidden = any(name in s.denied for s in self.servers.values())
            if not self.complete or hidden:
                raise NotFound(name, bare, incomplete=True)
        found |= {t.public_name: t for t in bare}
        if len(found) == 1:
            return self._spelled.setdefault(name, *found.values())
        raise NotFound(name, tuple(found.values()))

    def unknown_in(self, name: str) -> list[str]:
        """The servers whose list was never seen and of which `name` can be a tool, as it begins like theirs."""
        return [key for key, server in self.servers.items() if not server.known and self._of(key, name)]

    @classmethod
    def _of(cls, key: str, name: str) -> bool:
        """Whether `name` is spelled as that of a tool of the server `key`, whichever tools it has."""
        spelled = name.removeprefix("mcp__").startswith(public_stem(key))
        return spelled or next(iter(cls._rests(key, name)), None) is not None

    @staticmethod
    def _rests(key: str, name: str) -> Iterable[str]:
        """What would be the raw name if `name` were a qualified form with the server `key`."""
        for prefix in (*(key + s for s in SEPARATORS), f"mcp__{key}__", f"mcp_{key}_"):
            if name.startswith(prefix):
                yield name[len(prefix) :]
