"""Scopes: the catalog as one caller sees it.

The base is what exists for anyone: without what the tool lock withholds, with clean descriptions. A view narrows it to
what the caller's profiles leave. Whatever is computed from a view (listing, counts, search, near names, status) cannot
tell a hidden tool from one that does not exist, because the view does not hold it.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from proxy.caller import Scope
from proxy.catalog import Catalog, Server
from proxy.config import GuardConfig, Profile, Settings, Toolset
from proxy.guard.clean import cleaned
from proxy.guard.globs import any_name, any_of_server, any_tool
from proxy.guard.lock import Lock, about_hash
from proxy.guard.policy import Policy
from proxy.guard.spill import reading_server
from proxy.offers import Offers
from proxy.tool import Tool

log = logging.getLogger(__name__)

DEFAULT = "default"
"""The profile of callers that name none."""


class Scopes:
    """What the callers of each scope see of a catalog."""

    def __init__(self, settings: Settings, policy: Policy, lock: Callable[[], Lock | None]) -> None:
        """`lock` gives the content of the lock file; None where there is no lock."""
        self._guard = settings.guard or GuardConfig()
        self._cleans = settings.guard is not None and settings.guard.clean
        self._profiles = settings.profiles
        self._policy, self._lock = policy, lock
        self._described = {s.key: s.description for s in settings.servers}
        self._bounded = frozenset(s.key for s in settings.servers if s.max_result_chars)
        self._bases: dict[str, tuple[Server, Lock | None, Server]] = {}
        self.notes: dict[str, tuple[str, ...]] = {}
        """Server key -> what was cleaned or is not as approved, for `check` and the log."""

    # Which profiles.

    def scope(self, *names: str) -> Scope:
        """The scope of a caller that these profiles apply to."""
        if not names and DEFAULT in self._profiles:
            return (DEFAULT,)
        return tuple(sorted(set(names)))

    def profiles(self, scope: Scope) -> tuple[Profile, ...]:
        """The profiles of a scope; one that is not configured (any more) leaves nothing."""
        return tuple(self._profiles.get(name) or Profile(name, enabled=()) for name in scope)

    # What is in them.

    def base(self, catalog: Catalog) -> Catalog:
        """What exists for anyone."""
        lock = self._lock()
        if lock is None and not self._cleans:
            return catalog
        return Catalog(self._base(server, lock) for server in catalog.servers.values())

    def view(self, base: Catalog, scope: Scope) -> Catalog:
        """What a caller of `scope` may see and call."""
        servers = list(base.servers.values())
        if scope:
            profiles = self.profiles(scope)
            servers = [kept for server in servers if (kept := self._narrowed(server, profiles)) is not None]
        elif not self._bounded:
            return base
        if any(server.key in self._bounded for server in servers):
            servers.append(reading_server())
        return Catalog(servers)

    def offers(self, offers: Offers, scope: Scope) -> Offers:
        """The resources and prompts of the servers that the scope holds whole."""
        profiles = self.profiles(scope)
        return offers.of(lambda key: _whole(key, profiles)) if profiles else offers

    def may_hold(self, key: str, scope: Scope) -> bool:
        """Whether anything of a server can be in the scope, whatever the server turns out to have."""
        return _possible(key, self.profiles(scope))

    def denies(self, tool: Tool, scope: Scope) -> bool:
        """Whether the scope does not hold `tool`, asked of the tool itself and not of any view."""
        profiles = self.profiles(scope)
        return not (_holds(tool.server, tool.name, profiles) and self._policy.decision(tool, profiles) != "deny")

    def _narrowed(self, server: Server, profiles: tuple[Profile, ...]) -> Server | None:
        whole = _whole(server.key, profiles)
        tools = [
            tool
            for tool in server.tools
            if _holds(server.key, tool.name, profiles) and self._policy.decision(tool, profiles) != "deny"
        ]
        if not tools and not whole and (server.known or not _possible(server.key, profiles)):
            return None
        denied = frozenset(name for name in server.denied if _holds(server.key, name, profiles))
        if len(tools) == len(server.tools) and len(denied) == len(server.denied):
            return server
        return server.having(tools, denied, server.topic)

    def _base(self, server: Server, lock: Lock | None) -> Server:
        known = self._bases.get(server.key)
        if known is not None and known[0] is server and known[1] is lock:
            return known[2]
        tools, notes = list(server.tools), list[str]()
        topic = server.topic
        if lock is not None:
            tools, topic, notes = self._locked(server, lock)
        if self._cleans:
            for number, tool in enumerate(tools):
                tools[number], said = cleaned(tool)
                if said:
                    notes.append(f"{tool.name}: {said}")
        if tuple(notes) != self.notes.get(server.key, ()):
            for note in notes:
                log.warning("server %r: %s", server.key, note)
        self.notes[server.key] = tuple(notes)
        same = tools == list(server.tools) and topic == server.topic
        made = server if same else server.having(tools, server.denied, topic)
        self._bases[server.key] = (server, lock, made)
        return made

    def _locked(self, server: Server, lock: Lock) -> tuple[list[Tool], str | None, list[str]]:
        """The tools that the lock lets through, the topic, and what is not as it was approved."""
        strict = self._guard.lock == "strict"
        said = about_hash(*server.about)
        difference = lock.difference(server.key, server.tools, said)
        notes: list[str] = []
        if server.known and (difference.new or difference.changed):
            what = [f"{len(n)} {w}" for n, w in ((difference.changed, "changed"), (difference.new, "new")) if n]
            names = ", ".join((*difference.changed, *difference.new)[:8])
            step = "withheld until approved" if strict else "not approved"
            run = "see: narrow-waist lock --diff" if lock.exists else "approve all with: narrow-waist lock"
            notes.append(f"{' and '.join(what)} since the lock, {step}: {names}; {run}")
        off = {*difference.new, *difference.changed}
        tools = [replace(t, locked=True) if t.name not in off else t for t in server.tools]
        if strict:
            tools = [tool for tool in tools if tool.locked]
        topic = server.topic
        if server.about != (None, None) and not lock.approves_about(server.key, said):
            if not lock.servers.get(server.key):
                pass  # its tools are all new, which was said
            else:
                notes.append("what it says about itself has changed since the lock; see: narrow-waist lock --diff")
            topic = self._described.get(server.key) if strict else topic
        return tools, topic, notes


def _means(toolset: Toolset, server: str, tool: str) -> bool:
    return any_name(toolset.servers, server) or any_tool(toolset.tools, server, tool)


def _holds(server: str, tool: str, profiles: tuple[Profile, ...]) -> bool:
    """Whether the toolsets of all `profiles` leave that tool."""
    return all(
        (p.enabled is None or any(_means(t, server, tool) for t in p.enabled))
        and not any(_means(t, server, tool) for t in p.disabled)
        for p in profiles
    )


def _whole(server: str, profiles: tuple[Profile, ...]) -> bool:
    """Whether all `profiles` hold the server itself, and not only tools of it."""
    return all(
        (p.enabled is None or any(any_name(t.servers, server) for t in p.enabled))
        and not any(any_name(t.servers, server) for t in p.disabled)
        for p in profiles
    )


def _possible(server: str, profiles: tuple[Profile, ...]) -> bool:
    """Whether any tool of the server could be held by all `profiles`."""
    return all(
        (p.enabled is None or any(any_name(t.servers, server) or any_of_server(t.tools, server) for t in p.enabled))
        and not any(any_name(t.servers, server) for t in p.disabled)
        for p in profiles
    )
