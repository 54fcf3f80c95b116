"""Unmatched: globs of the configuration that mean none of a server's tools, so that a slip in one is told.

A `deny` written as clients show names (`fs__write_file`) protected nothing, and nobody said so: the call ran. What is
told is told only once a server's list is known. `check` fails for what was to protect; serving warns of that alone.
"""

import difflib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import anyio
import anyio.to_thread

from proxy.catalog import SEPARATORS
from proxy.config import Profile, ServerConfig, Settings
from proxy.guard.globs import any_tool, splits
from proxy.tool import public_name

log = logging.getLogger(__name__)

Names = Mapping[str, Collection[str]]
"""Server key -> the raw names of all that it lists, for each whose list is known."""

_WILD = re.compile(r"[*?\[]")
_NEAR = 0.75


@dataclass(frozen=True)
class Unmatched:
    """One glob that means nothing."""

    key: str
    """Where it stands, such as `fs: deny` or `guard.risk.destructive`."""
    glob: str
    what: str
    """What is wrong with it."""
    meant: str | None
    """What was probably to be written."""
    protects: bool
    """Whether more can happen than was meant; else it is only advice."""

    def __str__(self) -> str:
        """One sentence for a person."""
        hint = f"; did you mean {self.meant!r}?" if self.meant is not None else ""
        return f"{self.key}: {self.glob!r} {self.what}{hint}"


class GlobWatch:
    """Warns, once of each, of globs that were to protect and mean nothing."""

    def __init__(self, settings: Settings, names: Callable[[], Names]) -> None:
        self._settings, self._names = settings, names
        self._said: set[Unmatched] = set()
        self._changed = anyio.Event()

    def follow(self, before: "GlobWatch") -> None:
        """Take the place of one by another configuration: what that has warned of is no news."""
        self._said = set(before._said)

    def changed(self) -> None:
        """A server's list is another one."""
        self._changed.set()

    async def run(self) -> None:
        """Follow the lists until cancelled."""
        while True:
            self._changed = anyio.Event()
            self.tell(await anyio.to_thread.run_sync(unmatched, self._settings, self._names()))
            await self._changed.wait()

    def tell(self, found: Iterable[Unmatched]) -> None:
        """Warn of what is new."""
        for each in found:
            if each.protects and each not in self._said:
                self._said.add(each)
                log.warning("%s", each)


def has_globs(settings: Settings) -> bool:
    """Whether there is anything that `unmatched` could tell."""
    guard = settings.guard is not None and bool(settings.guard.risk)
    return guard or bool(settings.profiles) or any(map(_given, settings.servers))


def _given(server: ServerConfig) -> bool:
    return bool(server.deny or server.exclude or server.pinned or server.include != ("*",))


def unmatched(settings: Settings, names: Names) -> list[Unmatched]:
    """The globs that mean no tool, of all servers whose lists are in `names`."""
    found: dict[Unmatched, None] = {}
    for server in settings.servers:
        if server.enabled and names.get(server.key):
            found |= dict.fromkeys(_of_server(server, settings.servers, names))
    enabled = [server.key for server in settings.servers if server.enabled]
    for key, globs, protects in _of_guard(settings):
        for glob in globs:
            if (told := _qualified(key, glob, protects, enabled, names)) is not None:
                found[told] = None
    return list(found)


def _of_server(server: ServerConfig, servers: Iterable[ServerConfig], names: Names) -> Iterable[Unmatched]:
    """What a server's own block says in vain."""
    own = names[server.key]
    left = any(_matches(glob, own) for glob in server.include)
    for field, key in (("deny", "deny"), ("exclude", "tools.exclude"), ("include", "tools.include"), ("pinned",) * 2):
        globs: tuple[str, ...] = getattr(server, field)
        for glob in globs:
            if _matches(glob, own):
                continue
            # A glob that several servers share is meant for whichever has such a tool.
            shared = [other.key for other in servers if other is not server and glob in getattr(other, field)]
            if any(_matches(glob, names.get(other, ())) for other in shared):
                continue
            meant = _raw(glob, server.key, own)
            protects = (field == "deny" or (field == "exclude" and meant is not None)) and not shared
            what = "matches no tool"
            if field == "include" and not left:
                protects, what = True, f"matches no tool, and nothing is left of {server.key}"
            yield Unmatched(f"{server.key}: {key}", glob, what, meant, protects)


def _of_guard(settings: Settings) -> Iterable[tuple[str, tuple[str, ...], bool]]:
    """Key, globs `server/tool`, and whether they protect."""
    if settings.guard is not None:
        for risk, globs in settings.guard.risk.items():
            yield f"guard.risk.{risk}", globs, risk != "read"
    profiles: Collection[Profile] = settings.profiles.values()
    disabled = {toolset.name for profile in profiles for toolset in profile.disabled}
    for profile in profiles:
        for toolset in (*profile.disabled, *(profile.enabled or ())):
            yield f"toolsets.{toolset.name}.tools", toolset.tools, toolset.name in disabled


def _qualified(key: str, glob: str, protects: bool, enabled: Iterable[str], names: Names) -> Unmatched | None:
    """A glob `server/tool` that means nothing; None where it means something, or that cannot be known."""
    if any(any_tool((glob,), server, name) for server, own in names.items() for name in own):
        return None
    parts = list(splits(glob))
    meaning = [(server, tool) for server in enabled for left, tool in parts if fnmatchcase(server, left)]
    if not meaning or not all(names.get(server) for server, _ in meaning):
        return None
    meant = next((f"{s}/{raw}" for s, tool in meaning if (raw := _raw(tool, s, names[s])) is not None), None)
    anywhere = _WILD.search(parts[0][0]) is not None
    what = "matches no tool of any server" if anywhere else f"matches no tool of {meaning[0][0]}"
    return Unmatched(key, glob, what, meant, protects and not anywhere)


def _matches(glob: str, names: Iterable[str]) -> bool:
    return glob == "*" or any(fnmatchcase(name, glob) for name in names)


def _raw(glob: str, server: str, names: Collection[str]) -> str | None:
    """The glob over raw names that was meant by one over the names that clients show, or by a slip."""
    shown = [name for name in names if fnmatchcase(public_name(server, name), glob)]
    prefixes = (f"mcp__{server}__", *(server + separator for separator in SEPARATORS))
    rest = next((glob.removeprefix(prefix) for prefix in prefixes if glob.startswith(prefix)), None)
    if rest is not None and (len(shown) != 1 or _matches(rest, names)):
        return rest or None
    if len(shown) == 1:
        return shown[0]
    near = difflib.get_close_matches(glob, names, 1, _NEAR) if not _WILD.search(glob) else []
    return near[0] if near else None
