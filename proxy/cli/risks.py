"""What `describe` and `list` say of a tool's risk, where something is guarded.

It is for the person who writes `guard:` and `profiles:`; a model is not told, and calls what it likes.
"""

from proxy.app import App
from proxy.guard import Gate
from proxy.guard.spill import SERVER
from proxy.tool import Tool


def risk_line(app: App, tool: Tool, *, narrowed: bool) -> str:
    """The class of a tool, what has decided it, and what becomes of a call; "" where nothing is guarded.

    `narrowed`: a profile was asked for, and nothing is told of the others.
    """
    if (gate := _gate(app, tool)) is None:
        return ""
    line = f"{tool.public_name}: risk: {gate.policy.risk(tool)} (by {gate.policy.source(tool)})"
    if narrowed:
        return f"{line}; a call: {gate.scopes.decision(tool, app.scope)}"
    said = [f"{name} {_becomes(gate, tool, name)}" for name in app.settings.profiles]
    return f"{line}; a call, by profile: {', '.join(said)}" if said else line


def risk_mark(app: App, tool: Tool) -> str:
    """The class, and what becomes of a call where that is not simply allowed, as ` [write: ask]`; else ""."""
    if (gate := _gate(app, tool)) is None:
        return ""
    decision = gate.scopes.decision(tool, app.scope)
    return f" [{gate.policy.risk(tool)}{'' if decision == 'allow' else f': {decision}'}]"


def _gate(app: App, tool: Tool) -> Gate | None:
    """The gate; None where it guards nothing, or the tool is our own, which nobody is asked about."""
    guarded = app.settings.guard is not None or app.settings.profiles
    return app.gate if guarded and tool.server != SERVER else None


def _becomes(gate: Gate, tool: Tool, profile: str) -> str:
    scope = gate.scopes.scope(profile)
    decision = gate.scopes.decision(tool, scope)
    return "not there" if decision != "deny" and gate.scopes.denies(tool, scope) else decision
