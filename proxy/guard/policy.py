"""Policy: how risky a tool is, and what becomes of a call of it.

The guarded party does not grade itself. A server's annotations may always raise the class of its tool; they lower it
only where the person trusts the server, or has approved exactly this definition (`upstreams.lock`). What the person
wrote about a tool under `guard.risk` decides alone.
"""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from proxy.config import RISKS, Decision, GuardConfig, Profile, Risk
from proxy.guard.globs import any_name, any_tool
from proxy.tool import Tool

STRICTNESS: Mapping[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}


T = TypeVar("T")
MOST = 20_000
"""Tools that are remembered at most: a server may change the names of its tools for ever."""


class PerTool(Generic[T]):
    """What was worked out about tools. One that has changed is another object, about which nothing is known."""

    def __init__(self, work_out: Callable[[Tool], T]) -> None:
        self._work_out = work_out
        self._known: dict[str, tuple[Tool, T]] = {}

    def __call__(self, tool: Tool) -> T:
        """What is true of `tool`."""
        known = self._known.get(tool.public_name)
        if known is None or known[0] is not tool:
            if len(self._known) >= MOST:
                self._known.clear()
            known = self._known[tool.public_name] = (tool, self._work_out(tool))
        return known[1]


class Policy:
    """The risk of tools, by the `guard:` block."""

    def __init__(self, config: GuardConfig) -> None:
        self._config = config
        self._known = PerTool(self._judged)

    def risk(self, tool: Tool) -> Risk:
        """The class of `tool`; of several that are configured, the greatest."""
        return self._known(tool)[0]

    def source(self, tool: Tool) -> str:
        """What has decided the class of `tool`, for people."""
        return self._known(tool)[1]

    def destructive(self, tool: Tool) -> bool:
        """Whether `tool` is of the worst class."""
        return self.risk(tool) == "destructive"

    def _judged(self, tool: Tool) -> tuple[Risk, str]:
        for risk in reversed(RISKS):
            if (globs := self._config.risk.get(risk)) and any_tool(globs, tool.server, tool.name):
                return risk, "guard.risk"
        base, said = self._config.default_risk, annotated(tool)
        if said is None or said == base:
            return base, "guard.default_risk"
        if RISKS.index(said) > RISKS.index(base):
            return said, "its annotations"
        if tool.locked or self._trusts(tool.server):
            return said, f"its annotations, {'approved in the lock' if tool.locked else 'trusted'}"
        return base, f"guard.default_risk; its annotations say {said} and are not trusted"

    def decision(self, tool: Tool, profiles: tuple[Profile, ...]) -> Decision:
        """What becomes of a call by a caller of these profiles: the strictest of what they say."""
        if not any(p.policy for p in profiles):
            return "allow"
        return decided(self.risk(tool), profiles)

    def _trusts(self, server: str) -> bool:
        trusted = self._config.trust_annotations
        return trusted if isinstance(trusted, bool) else any_name(trusted, server)


def decided(risk: Risk, profiles: tuple[Profile, ...]) -> Decision:
    """What becomes of anything of that risk for a caller of these profiles: the strictest of what they say."""
    said: list[Decision] = [p.policy.get(risk, "allow") for p in profiles]
    return max(said, key=STRICTNESS.__getitem__) if said else "allow"


def annotated(tool: Tool) -> Risk | None:
    """What the tool's annotations say; None where they say nothing.

    A tool that says that it only reads and that it destroys is taken at the worse of its words.
    """
    notes = tool.annotations
    if notes.get("destructiveHint") is True:
        return "destructive"
    if notes.get("readOnlyHint") is True:
        return "read"
    return "write" if notes.get("readOnlyHint") is False or notes.get("destructiveHint") is False else None


def idempotent(tool: Tool) -> bool:
    """Whether the tool says that calling it twice is calling it once; what only reads is so by definition."""
    notes = tool.annotations
    return notes.get("idempotentHint") is True or (
        notes.get("readOnlyHint") is True and notes.get("destructiveHint") is not True
    )
