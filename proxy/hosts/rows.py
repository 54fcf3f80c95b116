"""What each host keeps of a server's texts, as a table with its sources.

A row is chosen by `HostTable.row_for`; `bridge` and `listing` see only its numbers. A row may change texts, never the
set of tools. All lengths are UTF-16 units, which is what JavaScript hosts count; None means that nothing is cut.
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
    client_names: tuple[str, ...] = ()
    """`clientInfo.name` as seen on the wire."""
    description: int | None = None
    """Kept of each tool's description, guidance included."""
    parameter: int | None = None
    """Kept of a parameter's description; 0 where no listing should be there."""
    instructions: int | None = None
    """Kept of the server's instructions; 0 where the model never sees them."""
    first_line: int | None = None
    """Shown of the first line of the instructions while the host has not loaded our tools; None where it is no less."""
    deferred: bool = False
    """The model may see our descriptions only after a search of the host's own: the instructions hold the map too."""
    slots: tuple[Slot, ...] = ("search",)
    """Where the listing goes, in the order in which it continues."""
    result: int | None = None
    """Characters of a tool result that survive."""
    tool_name: str = "{tool}"
    """How the model sees a tool's name, from `{server}` (what the host calls us) and `{tool}`."""
    tool_name_limit: int | None = None
    """Characters that such a name may have; what becomes of a longer one is the host's secret or a refusal."""
    tools: int | None = None
    """How many tools there may be, of all servers together or of one."""
    reserved: tuple[str, ...] = ()
    """Names that a tool must not have as the model sees it, or that mean another tool to it."""
    patience: float | None = None
    """Seconds within which `initialize` and `tools/list` have to be answered."""
    source: str = ""
    """Where the facts are from, and for which version."""

    def limit(self, slot: Slot) -> int | None:
        """Characters that the whole text of `slot` may have, guidance included."""
        return self.parameter if slot == "parameter" else self.description

    def shown_name(self, tool: str, server: str = "narrow-waist") -> str:
        """A tool's name as the model sees it where the host calls us `server`."""
        return self.tool_name.format(server=server, tool=tool)


UNKNOWN = HostRow(name="unknown", source="no facts: nothing is assumed to be cut")

_CLAUDE_RESULT = 75_000
"""Claude Code refuses results above 25,000 tokens (MAX_MCP_OUTPUT_TOKENS) unless `_meta` raises it; at 3 characters a
token, as dense JSON has."""
_REGISTRY = "name of the client from apify/mcp-client-capabilities, not seen on the wire"
_THREE = ("search", "describe", "call")

ROWS: Sequence[HostRow] = (
    HostRow(
        name="claude-code",
        client_names=("claude-code",),
        description=4_096,
        instructions=4_096,
        deferred=True,
        slots=("search", "parameter"),
        result=_CLAUDE_RESULT,
        tool_name="mcp__{server}__{tool}",
        tool_name_limit=128,
        patience=30,
        source="Claude Code 2.1.332, request to a stand-in model endpoint: description and instructions cut at 4,096, "
        "a parameter description of 60,000 characters whole; all tools deferred unless anthropic/alwaysLoad is set, "
        "which was reported as ignored for plugins and for HTTP servers that are late (claude-code#56551, #82900)",
    ),
    HostRow(
        name="claude-code-2048",
        description=2_048,
        parameter=0,
        instructions=2_048,
        deferred=True,
        slots=_THREE,
        result=_CLAUDE_RESULT,
        tool_name="mcp__{server}__{tool}",
        tool_name_limit=64,
        patience=30,
        source="Claude Code 2.1.84 to 2.1.234: anthropics/claude-code#41593, #81268, #87650; large schemas lost "
        "properties in #31302, so no listing in a parameter",
    ),
    HostRow(
        name="claude-desktop",
        client_names=("claude-ai",),
        tools=256,
        tool_name_limit=64,
        source="Claude Desktop and claude.ai: no limit of texts found; Cowork keeps exactly 256 tools of a connector, "
        f"in the order of the response (claude-ai-mcp#587); 64 characters of a name in older reports; {_REGISTRY}",
    ),
    HostRow(
        name="cline",
        client_names=("Cline",),
        result=8_000,
        patience=3,
        source="Cline's source, 2026-08: descriptions whole, results cut at 8,000 characters, 3 s to connect",
    ),
    HostRow(
        name="codex",
        client_names=("codex-mcp-client",),
        parameter=0,
        first_line=250,
        deferred=True,
        tool_name="mcp__{server}__{tool}",
        tool_name_limit=64,
        reserved=("tool_search",),
        patience=1.2,
        source="Codex 0.171.0: descriptions whole once its own search loaded the tool; of the instructions the first "
        "line, cut at 250, until then and all of them afterwards; a parameter description of 6,000 characters dropped; "
        "a turn begins without a server that has not answered after about 1.2 s (startup_timeout_sec, 10 to 30, is "
        "when it gives the server up); its own tool_search is another one (openai/codex#33608)",
    ),
    HostRow(
        name="copilot",
        client_names=("github-copilot-developer",),
        instructions=0,
        tool_name="{server}-{tool}",
        tool_name_limit=64,
        tools=128,
        source="Copilot CLI 1.0.102, request to a stand-in model endpoint: everything whole, no instructions sent; 128 "
        "tools as in VS Code (vscode-copilot-chat#392)",
    ),
    HostRow(
        name="cursor",
        client_names=("cursor-vscode",),
        deferred=True,
        tool_name="{server}{tool}",
        tool_name_limit=60,
        tools=40,
        source="Cursor: drops a tool whose server and name together exceed 60 characters (awslabs/mcp#1283), shows the "
        "first 40 tools (anytype-mcp#5; 80 reported later), since 2026-01 only names up front "
        f"(cursor.com/blog/dynamic-context-discovery); no limit of texts found; {_REGISTRY}",
    ),
    HostRow(
        name="gemini",
        client_names=("gemini-cli-mcp-client", "mcp-test-client"),
        tool_name="mcp_{server}_{tool}",
        tool_name_limit=63,
        source="Gemini CLI 0.61.0, request to a stand-in model endpoint: everything whole; names shortened in the "
        "middle beyond 63; `gemini mcp list` calls itself mcp-test-client",
    ),
    HostRow(
        name="hermes",
        instructions=0,
        tool_name="mcp__{server}__{tool}",
        tool_name_limit=64,
        source="Hermes Agent 0.19.0, request to a stand-in model endpoint: everything whole, instructions not seen; it "
        "does not say who it is (its client library's name is `mcp`)",
    ),
    HostRow(
        name="opencode",
        client_names=("opencode",),
        tool_name="{server}_{tool}",
        tool_name_limit=64,
        source="opencode 1.18.33, request to a stand-in model endpoint: everything whole",
    ),
    HostRow(
        name="vscode",
        client_names=("Visual Studio Code", "Visual Studio Code - Insiders"),
        parameter=1_024,
        tool_name="mcp_{server}_{tool}",
        tool_name_limit=64,
        tools=128,
        source="vscode-copilot-chat's source, 2026-03: description and instructions whole; a parameter's description "
        "cut at 1,024 for some models; 128 tools a request, grouped from 64",
    ),
    HostRow(
        name="windsurf",
        client_names=("windsurf-client", "Windsurf"),
        tools=100,
        source="Windsurf Cascade: 100 tools (its documentation, quoted in a blog); no limit of texts "
        f"found; {_REGISTRY}",
    ),
    HostRow(
        name="zed",
        client_names=("Zed",),
        tool_name_limit=64,
        source="Zed: no limit of texts found; names of 64 characters, as its providers take them",
    ),
    HostRow(
        name="openai-1024",
        description=1_024,
        parameter=0,
        slots=_THREE,
        tool_name_limit=64,
        tools=128,
        source="OpenAI Chat Completions and Azure OpenAI, 2025-02 to 2025-04: a longer description fails the whole "
        "request with string_above_max_length: modelcontextprotocol/servers#799, LibreChat#5741, OpenManus#1080",
    ),
    HostRow(
        name="xai",
        reserved=("tool_search",),
        tool_name_limit=64,
        source="xAI's API is said to answer 400 to a tool called tool_search (source of p1s4/mcp-search-proxy; not "
        "verified); matters where a client passes names on without a prefix",
    ),
    UNKNOWN,
)


@dataclass(frozen=True)
class HostTable:
    """The table that is in force: the one above, with what the configuration says about it."""

    rows: Sequence[HostRow] = ROWS
    unnamed: str | None = None
    """The row of clients that do not say who they are."""

    def row_for(self, client_name: str | None, override: str | None = None) -> HostRow:
        """The row of a client: `override` (`host_row` in the config) if set, else by `clientInfo.name`, else unknown.

        A client without a name has the row `unnamed`.

        Raises:
            ConfigError: there is no row of the name `override`.
        """
        if override is not None:
            return self.named(override)
        if client_name is None:
            return self.named(self.unnamed or UNKNOWN.name)
        return next((row for row in self.rows if client_name in row.client_names), self.named(UNKNOWN.name))

    def named(self, name: str) -> HostRow:
        """The row of that name; raises ConfigError with the nearest one."""
        by_name = {row.name: row for row in self.rows}
        if (row := by_name.get(name)) is None:
            near = get_close_matches(name, by_name, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"host_row: {name!r} is not one of {', '.join(by_name)}{hint}")
        return row
