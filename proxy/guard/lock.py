"""The tool lock: which definitions a person has approved. `upstreams.lock` is small, sorted JSON, meant for git.

It holds the hash of each tool's whole raw dict (not only of its description: a changed default or annotation is a
change too), and one of what the server says about itself. A tool is approved if its hash is the one in the file.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from proxy.errors import ConfigError
from proxy.private import write_whole
from proxy.tool import Tool

VERSION = 1


def tool_hash(raw: Mapping[str, Any]) -> str:
    """sha256 of a raw tool; the order of keys means nothing in JSON and does not count."""
    return _sha256(json.dumps(raw, sort_keys=True, separators=(",", ":")))


def about_hash(instructions: str | None, description: str | None) -> str:
    """sha256 of what a server says about itself: its instructions and its own description; "" where it says nothing."""
    return _sha256(json.dumps([instructions, description])) if instructions or description else ""


def _sha256(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class LockedServer:
    """One server's part of the file."""

    about: str = ""
    tools: Mapping[str, str] = field(default_factory=dict[str, str])
    """Raw name -> hash."""


@dataclass(frozen=True)
class Difference:
    """How what a server offers differs from what was approved; raw names, sorted."""

    server: str
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    about: bool = False
    """What it says about itself has changed."""

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone or self.about)


@dataclass(frozen=True)
class Lock:
    """The content of the file."""

    servers: Mapping[str, LockedServer] = field(default_factory=dict[str, LockedServer])
    exists: bool = True
    """False where there is no file: nothing is approved then."""

    def approves_about(self, server: str, about: str) -> bool:
        """Whether what a server says about itself is what was approved; saying nothing needs no approval."""
        known = self.servers.get(server)
        return not about or (known is not None and known.about == about)

    def difference(self, server: str, tools: Iterable[Tool], about: str, hidden: Iterable[str] = ()) -> Difference:
        """What is not as it was approved; `hidden`: raw names that it has and the configuration leaves out."""
        locked = self.servers.get(server, LockedServer())
        now = {tool.name: tool_hash(tool.raw) for tool in tools}
        return Difference(
            server,
            tuple(sorted(now.keys() - locked.tools.keys())),
            tuple(sorted(name for name in now.keys() & locked.tools.keys() if now[name] != locked.tools[name])),
            tuple(sorted(locked.tools.keys() - now.keys() - set(hidden))),
            about != locked.about,
        )

    def approved(
        self,
        server: str,
        tools: Iterable[Tool],
        about: str,
        only: Iterable[str] | None = None,
        hidden: Iterable[str] = (),
    ) -> "Lock":
        """The lock with what the server offers now approved; with `only`, of these raw names and nothing else.

        What was approved of `hidden` (raw names that it has and this configuration leaves out) stays: another
        configuration beside this one may share the file.
        """
        now = {tool.name: tool_hash(tool.raw) for tool in tools}
        old = self.servers.get(server, LockedServer())
        if only is None:
            now = {name: old.tools[name] for name in hidden if name in old.tools} | now
        else:
            kept = {name: digest for name, digest in old.tools.items() if name not in only or name in now}
            now, about = kept | {name: now[name] for name in only if name in now}, old.about
        return Lock({**self.servers, server: LockedServer(about, now)})


def read_lock(path: Path) -> Lock:
    """The lock in a file; one that does not exist approves nothing.

    Raises:
        ConfigError: it cannot be read, or is not a lock. (Never passed over: a broken lock must not open anything.)
    """
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Lock(exists=False)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: the lock cannot be read: {error}") from None
    root = _mapping(value)
    if root.get("version") != VERSION:
        raise ConfigError(f"{path}: is not a lock of version {VERSION}; delete it and run: narrow-waist lock")
    servers: dict[str, LockedServer] = {}
    for key, entry in _mapping(root.get("servers")).items():
        tools = {k: v for k, v in _mapping(_mapping(entry).get("tools")).items() if isinstance(v, str)}
        about = _mapping(entry).get("about")
        servers[key] = LockedServer(about if isinstance(about, str) else "", tools)
    return Lock(servers)


def write_lock(path: Path, lock: Lock) -> None:
    """Replace the file at once; raises OSError."""
    servers = {key: {"about": s.about, "tools": dict(s.tools)} for key, s in lock.servers.items()}
    text = json.dumps({"version": VERSION, "servers": servers}, indent=1, sort_keys=True, ensure_ascii=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = f"{text}\n".encode("utf-8", "surrogatepass")
    write_whole(path, content, 0o644)  # it is read by everybody who shares the repository


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}
