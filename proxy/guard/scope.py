"""Scopes: the catalog as one caller sees it.

A view narrows what exists for anyone (`base`) to what the caller's profiles leave. Whatever is computed from a view
(listing, counts, search, near names, status) cannot tell a hidden tool from one that does not exist, because the view
does not hold it.
"""

from proxy.caller import Scope
from proxy.catalog import Catalog, Server
from proxy.config import Decision, Profile, Settings, Toolset
from proxy.guard.globs import any_name, any_of_server, any_tool
from proxy.guard.policy import PerTool, Policy, decided
from proxy.guard.spill import reading_server
from proxy.offers import Offers
from proxy.tool import Tool

DEFAULT = "default"
"""The profile of callers that name none."""


class Scopes:
    """What the callers of each scope see of a catalog."""

    def __init__(self, settings: Settings, policy: Policy) -> None:
        self._profiles, self._policy = settings.profiles, policy
        self._bounded = frozenset(s.key for s in settings.servers if s.max_result_chars)
        self._denied: dict[Scope, PerTool[bool]] = {}
        self._decided: dict[Scope, PerTool[Decision]] = {}
        self._of_scope: dict[Scope, tuple[Profile, ...]] = {}

    # Which profiles.

    def scope(self, *names: str) -> Scope:
        """The scope of a caller that these profiles apply to."""
        if not names and DEFAULT in self._profiles:
            return (DEFAULT,)
        return tuple(sorted(set(names)))

    def profiles(self, scope: Scope) -> tuple[Profile, ...]:
        """The profiles of a scope; one that is not configured (any more) leaves nothing."""
        found = self._of_scope.get(scope)
        if found is None:
            found = tuple(self._profiles.get(name) or Profile(name, enabled=()) for name in scope)
            self._of_scope[scope] = found
        return found

    # What is in them.

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
        return offers.of(lambda key: self.opens(key, scope)) if scope else offers

    def opens(self, server: str, scope: Scope) -> bool:
        """Whether the scope holds the resources and prompts of a server: it holds it whole, and may read at all."""
        profiles = self.profiles(scope)
        return _whole(server, profiles) and decided("read", profiles) != "deny"

    def may_hold(self, key: str, scope: Scope) -> bool:
        """Whether anything of a server can be in the scope, whatever the server turns out to have."""
        return _possible(key, self.profiles(scope))

    def decision(self, tool: Tool, scope: Scope) -> Decision:
        """What becomes of a call of `tool` by a caller of the scope."""
        known = self._decided.get(scope)
        if known is None:
            profiles = self.profiles(scope)
            known = self._decided[scope] = PerTool(lambda tool: self._policy.decision(tool, profiles))
        return known(tool)

    def denies(self, tool: Tool, scope: Scope) -> bool:
        """Whether the scope does not hold `tool`, asked of the tool itself and not of any view."""
        denied = self._denied.get(scope)
        if denied is None:
            profiles = self.profiles(scope)
            denied = self._denied[scope] = PerTool(lambda tool: not self._leaves(tool, profiles))
        return denied(tool)

    def _leaves(self, tool: Tool, profiles: tuple[Profile, ...]) -> bool:
        """Whether these profiles leave `tool`."""
        return _holds(tool.server, tool.name, profiles) and self._policy.decision(tool, profiles) != "deny"

    def _narrowed(self, server: Server, profiles: tuple[Profile, ...]) -> Server | None:
        whole = _whole(server.key, profiles)
        tools = [tool for tool in server.tools if self._leaves(tool, profiles)]
        if not tools and not whole and (server.known or not _possible(server.key, profiles)):
            return None
        denied = frozenset(name for name in server.denied if _holds(server.key, name, profiles))
        if len(tools) == len(server.tools) and len(denied) == len(server.denied):
            return server
        return server.having(tools, denied, server.topic)


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
