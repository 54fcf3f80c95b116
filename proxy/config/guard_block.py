"""The blocks `toolsets:`, `profiles:` and `guard:`. They are strict in every kind of file: a line that is passed over
could leave a person less protected than they think.

toolsets:
  reading: {servers: [docs], tools: ["github/get_*", "*/list_*"]}
profiles:
  default: {disabled: [admin]}        # whoever names no profile
  work: {enabled: [reading], read_only: true, rate_limit: 60}
guard:
  risk: {destructive: ["github/delete_*"]}
  lock: strict
  audit: true
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from proxy.config.document import Node, present
from proxy.config.fields import Reader, unknown_key
from proxy.config.settings import (
    RISKS,
    AuditConfig,
    Decision,
    GuardConfig,
    LockPolicy,
    Profile,
    Risk,
    Toolset,
)

BLOCKS = ("toolsets", "profiles", "guard")
TOOLSET_KEYS = ("servers", "tools")
PROFILE_KEYS = ("enabled", "disabled", "read_only", "policy", "rate_limit")
GUARD_KEYS = (
    "risk", "default_risk", "trust_annotations", "lock", "lock_file", "clean", "audit", "read_call", "ask_timeout",
    "max_sessions", "max_connections", "max_body", "head_timeout", "body_timeout",
)  # fmt: skip
AUDIT_KEYS = ("file", "arguments", "max_bytes", "keep")
LOCK_NAME = "upstreams.lock"

_DECISIONS: Mapping[str, str] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_LOCK: Mapping[str, str] = {"off": "off", "false": "off", "warn": "warn", "strict": "strict", "on": "strict"}
_PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""It is part of a URL."""
_WILD = re.compile(r"[*?\[]")


class GuardBlocks:
    """Reads the three blocks of one file."""

    def __init__(
        self,
        blocks: Mapping[str, Node],
        path: Path,
        environ: Mapping[str, str],
        servers: Iterable[str],
        state: Path,
        fail: Callable[[str], None],
    ) -> None:
        """`servers`: the keys there are; `state`: the folder for files that we write, such as the audit.

        `fail` is told what is wrong, with file, line, key and what was expected; nothing that was read counts then.
        """
        self._reader = Reader(path, environ, fail, fail)
        self._path, self._servers, self._state = path, tuple(servers), state
        self._blocks = blocks

    def profiles(self) -> dict[str, Profile]:
        """The profiles by name, with their toolsets in place of the names of these."""
        toolsets = {name: self._toolset(name, node) for name, node in self._map("toolsets").items()}
        found: dict[str, Profile] = {}
        for name, node in self._map("profiles").items():
            if not _PROFILE_NAME.fullmatch(name):
                self._reader.complain(node, "a profile is named with letters, digits, _ and -, at most 64")
            found[name] = self._profile(name, node, toolsets)
        return found

    def guard(self) -> GuardConfig | None:
        """The `guard:` block; None where there is none."""
        node = self._blocks.get("guard")
        if node is None:
            return None
        items, read, default = self._reader.block(node, GUARD_KEYS), self._reader, GuardConfig()
        return GuardConfig(
            risk=self._risks(items.get("risk")),
            default_risk=cast(Risk, read.choice(items.get("default_risk"), {r: r for r in RISKS}, "write")),
            trust_annotations=self._trust(items.get("trust_annotations")),
            lock=cast(LockPolicy, read.choice(items.get("lock"), _LOCK, "off")),
            lock_file=self._beside(read.text(items.get("lock_file")) or LOCK_NAME),
            clean=read.boolean(items.get("clean"), True),
            audit=self._audit(items.get("audit")),
            read_call=read.boolean(items.get("read_call"), False),
            ask_timeout=read.number(items.get("ask_timeout"), default.ask_timeout, 0, above=True),
            max_sessions=int(read.number(items.get("max_sessions"), default.max_sessions, 1)),
            max_body=int(read.number(items.get("max_body"), default.max_body, 1024)),
            max_connections=int(read.number(items.get("max_connections"), default.max_connections, 0)),
            head_timeout=read.number(items.get("head_timeout"), default.head_timeout, 0, above=True),
            body_timeout=read.number(items.get("body_timeout"), default.body_timeout, 0, above=True),
        )

    def _map(self, key: str) -> dict[str, Node]:
        node = self._blocks.get(key)
        if node is None:
            return {}
        if not node.is_map:
            self._reader.complain(node, "expected a mapping, one `name:` per entry")
        return node.items

    def _toolset(self, name: str, node: Node) -> Toolset:
        items = self._reader.block(node, TOOLSET_KEYS)
        servers = self._reader.texts(items.get("servers")) or ()
        for glob in servers:
            self._known(glob, items["servers"])
        return Toolset(name, servers, self._tools(items.get("tools")))

    def _tools(self, node: Node | None) -> tuple[str, ...]:
        """Globs `server/tool`; a server that is written out must exist, or a typo would open or close something."""
        globs = self._reader.texts(node) or ()
        for glob in globs:
            server, slash, tool = glob.partition("/")
            if node is not None and not (slash and server and tool):
                self._reader.complain(node, f"expected server/tool, for instance github/get_*, not {glob!r}")
            elif node is not None and "/" not in tool:
                self._known(server, node)
        return globs

    def _known(self, glob: str, node: Node) -> None:
        if not _WILD.search(glob) and glob not in self._servers:
            self._reader.complain(node, unknown_key(glob, self._servers).replace("unknown key", "no server", 1))
        elif not any(fnmatchcase(key, glob) for key in self._servers):
            self._reader.complain(node, f"no server is meant by {glob!r}")

    def _profile(self, name: str, node: Node, toolsets: Mapping[str, Toolset]) -> Profile:
        items = self._reader.block(node, PROFILE_KEYS) if present(node) else {}

        def named(key: str) -> tuple[Toolset, ...] | None:
            names = self._reader.texts(child := items.get(key))
            for each in names or ():
                if each not in toolsets and child is not None:
                    sentence = unknown_key(each, toolsets).replace("unknown key", "no toolset", 1)
                    self._reader.complain(child, sentence)
            return None if names is None else tuple(toolsets[each] for each in names if each in toolsets)

        policy: dict[Risk, Decision] = {}
        if self._reader.boolean(items.get("read_only"), False):
            policy = {"write": "deny", "destructive": "deny"}
        given = items.get("policy")
        for risk, child in (self._reader.block(given, RISKS) if present(given) else {}).items():
            decided = cast(Decision, self._reader.choice(child, _DECISIONS, "allow"))
            if policy.get(cast(Risk, risk), decided) != decided:
                self._reader.complain(child, "read_only: true denies it already; take one of both out")
            policy[cast(Risk, risk)] = decided
        limit = int(self._reader.number(items.get("rate_limit"), 0, 0))
        return Profile(name, named("enabled"), named("disabled") or (), policy, limit)

    def _risks(self, node: Node | None) -> dict[Risk, tuple[str, ...]]:
        if not present(node):
            return {}
        return {cast(Risk, risk): self._tools(child) for risk, child in self._reader.block(node, RISKS).items()}

    def _trust(self, node: Node | None) -> bool | tuple[str, ...]:
        if node is not None and node.is_list:
            globs = self._reader.texts(node) or ()
            for glob in globs:
                self._known(glob, node)
            return globs
        return self._reader.boolean(node, False, "expected true, false or a list of servers")

    def _audit(self, node: Node | None) -> AuditConfig | None:
        if not present(node):
            return None
        items: dict[str, Any] = {}
        if node.is_map:
            items = self._reader.block(node, AUDIT_KEYS)
        elif not self._reader.boolean(node, False, "expected true, false or a mapping with `file:`"):
            return None
        file, read, default = self._reader.text(items.get("file")), self._reader, AuditConfig(Path())
        return AuditConfig(
            file=self._beside(file) if file else self._state / "audit.jsonl",
            arguments=read.boolean(items.get("arguments"), False),
            max_bytes=int(read.number(items.get("max_bytes"), default.max_bytes, 10_000)),
            keep=int(read.number(items.get("keep"), default.keep, 0, 1000)),
        )

    def _beside(self, text: str) -> Path:
        """A path of the file, relative to the file itself."""
        return (self._path.absolute().parent / Path(text).expanduser()).absolute()
