"""What each host keeps of a server's texts, as a table with its sources.

A row is chosen by `row_for`; `bridge` and `listing` see only its numbers. A row may change texts, never the set of
tools. All lengths are UTF-16 units, which is what JavaScript hosts count; None means that nothing is cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from proxy.errors import ConfigError

Slot = Literal["search", "describe", "call", "parameter"]
"""Where listing text may stand: the description of one of the three tools, or of a parameter of the first."""


@dataclass(frozen=True)
class HostRow:
    """One host (or endpoint): what is left of our texts when the model reads them."""

    name: str
    client_names: tuple[str, ...]
    """`clientInfo.name` as seen on the wire."""
    description: int | None
    """Kept of each tool's description, guidance included."""
    parameter: int | None
    """Kept of a parameter's description; 0 where no listing should be there."""
    instructions: int | None
    """Kept of the server's instructions (or all of them that the model sees at the start)."""
    slots: tuple[Slot, ...]
    """Where the listing goes, in the order in which it continues."""
    result: int | None
    """Characters of a tool result that survive."""
    source: str
    """Where the facts are from, and for which version."""

    def limit(self, slot: Slot) -> int | None:
        """Characters that the whole text of `slot` may have, guidance included."""
        return self.parameter if slot == "parameter" else self.description


UNKNOWN = HostRow(
    name="unknown",
    client_names=(),
    description=None,
    parameter=None,
    instructions=None,
    slots=("search",),
    result=None,
    source="no facts: nothing is assumed to be cut",
)

_CLAUDE_RESULT = 75_000
"""Claude Code refuses results above 25,000 tokens (MAX_MCP_OUTPUT_TOKENS) unless `_meta` raises it; at 3 characters a
token, as dense JSON has."""

ROWS: Sequence[HostRow] = (
    HostRow(
        name="claude-code",
        client_names=("claude-code",),
        description=4_096,
        parameter=None,
        instructions=4_096,
        slots=("search", "parameter"),
        result=_CLAUDE_RESULT,
        source="Claude Code 2.1.332, request to a stand-in model endpoint: description and instructions cut at 4,096, "
        "a parameter description of 60,000 characters whole",
    ),
    HostRow(
        name="claude-code-2048",
        client_names=(),
        description=2_048,
        parameter=0,
        instructions=2_048,
        slots=("search", "describe", "call"),
        result=_CLAUDE_RESULT,
        source="Claude Code 2.1.84 to 2.1.234: anthropics/claude-code#41593, #81268, #87650; large schemas lost "
        "properties in #31302, so no listing in a parameter",
    ),
    HostRow(
        name="codex",
        client_names=("codex-mcp-client",),
        description=None,
        parameter=0,
        instructions=250,
        slots=("search",),
        result=None,
        source="Codex 0.171.0: descriptions whole once its own search loaded the tool, the first line of the "
        "instructions cut at 250 until then; a parameter description of 6,000 characters dropped",
    ),
    HostRow(
        name="gemini",
        client_names=("gemini-cli-mcp-client", "mcp-test-client"),
        description=None,
        parameter=None,
        instructions=None,
        slots=("search",),
        result=None,
        source="Gemini CLI 0.61.0, request to a stand-in model endpoint: everything whole; "
        "`gemini mcp list` calls itself mcp-test-client",
    ),
    HostRow(
        name="opencode",
        client_names=("opencode",),
        description=None,
        parameter=None,
        instructions=None,
        slots=("search",),
        result=None,
        source="opencode 1.18.33, request to a stand-in model endpoint: everything whole",
    ),
    HostRow(
        name="openai-1024",
        client_names=(),
        description=1_024,
        parameter=0,
        instructions=None,
        slots=("search", "describe", "call"),
        result=None,
        source="OpenAI Chat Completions and Azure OpenAI, 2025-02 to 2025-04: a longer description fails the whole "
        "request with string_above_max_length: modelcontextprotocol/servers#799, LibreChat#5741, OpenManus#1080",
    ),
    UNKNOWN,
)


def row_for(client_name: str | None, override: str | None = None) -> HostRow:
    """The row of a client: `override` (`host_row` in the config) if set, else by `clientInfo.name`, else unknown.

    Raises:
        ConfigError: there is no row of the name `override`.
    """
    if override is not None:
        by_name = {row.name: row for row in ROWS}
        if (row := by_name.get(override)) is None:
            near = get_close_matches(override, by_name, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"host_row: {override!r} is not one of {', '.join(by_name)}{hint}")
        return row
    return next((row for row in ROWS if client_name in row.client_names), UNKNOWN)
