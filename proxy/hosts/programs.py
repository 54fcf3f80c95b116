"""Where each program keeps its MCP servers, per platform, and in which words: the table behind import and install."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePath

from proxy.errors import ConfigError
from proxy.hosts.launches import Dialect

OUR_NAME = "narrow-waist"
"""What our entry is called in every program's file."""


@dataclass(frozen=True)
class Surroundings:
    """What the paths depend on."""

    home: Path
    cwd: Path
    environ: Mapping[str, str]
    platform: str = sys.platform

    def folder(self, variable: str, default: str) -> Path:
        """The folder a variable names, else `default` below the home folder."""
        return Path(self.environ.get(variable) or self.home / default)

    @property
    def settings(self) -> Path:
        """Where desktop programs keep their settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self.folder("APPDATA", "AppData/Roaming")
        return self.folder("XDG_CONFIG_HOME", ".config")


@dataclass(frozen=True)
class Place:
    """One mapping of servers in one file."""

    file: Path
    path: tuple[str, ...]
    """Keys down to the mapping of servers."""
    scope: str
    """user or project."""


Find = Callable[[Surroundings], Sequence[Place]]


@dataclass(frozen=True)
class Program:
    """One program that reads MCP servers from a file."""

    name: str
    """As it is typed (`install claude-code`), and of its row in the table of what hosts show."""
    title: str
    dialect: Dialect
    places: Find
    """All places that may hold servers, the user's own first; a place need not exist."""


def _one_of(folder: Path, *names: str) -> Path:
    """The first file that exists, else the first name."""
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])


def _claude_code(at: Surroundings) -> Sequence[Place]:
    folder = at.environ.get("CLAUDE_CONFIG_DIR")
    user = (Path(folder) if folder else at.home) / ".claude.json"
    return (
        Place(user, ("mcpServers",), "user"),
        Place(at.cwd / ".mcp.json", ("mcpServers",), "project"),
        Place(user, ("projects", str(at.cwd), "mcpServers"), "local"),
    )


def _vs_code(at: Surroundings) -> Sequence[Place]:
    user = at.settings / "Code" / "User"
    return (
        Place(user / "mcp.json", ("servers",), "user"),
        Place(at.cwd / ".vscode" / "mcp.json", ("servers",), "project"),
        Place(user / "settings.json", ("mcp", "servers"), "older"),
    )


def _zed(at: Surroundings) -> Sequence[Place]:
    folder = at.settings / "Zed" if at.platform == "win32" else at.folder("XDG_CONFIG_HOME", ".config") / "zed"
    return (
        Place(folder / "settings.json", ("context_servers",), "user"),
        Place(at.cwd / ".zed" / "settings.json", ("context_servers",), "project"),
    )


def _opencode(at: Surroundings) -> Sequence[Place]:
    names = ("opencode.json", "opencode.jsonc")
    folder = at.folder("XDG_CONFIG_HOME", ".config") / "opencode"
    return (
        Place(_one_of(folder, *names), ("mcp",), "user"),
        Place(_one_of(at.cwd, *names), ("mcp",), "project"),
    )


def _plain(folder: Callable[[Surroundings], Path], file: str, key: str, project: str | None = None) -> Find:
    def places(at: Surroundings) -> Sequence[Place]:
        found = [Place(folder(at) / file, (key,), "user")]
        return [*found, Place(at.cwd / project, (key,), "project")] if project else found

    return places


PROGRAMS: Sequence[Program] = (
    Program("claude-code", "Claude Code", Dialect.CLAUDE_CODE, _claude_code),
    Program(
        "claude-desktop",
        "Claude Desktop",
        Dialect.PLAIN,
        _plain(lambda at: at.settings / "Claude", "claude_desktop_config.json", "mcpServers"),
    ),
    Program(
        "codex",
        "Codex",
        Dialect.CODEX,
        _plain(lambda at: at.folder("CODEX_HOME", ".codex"), "config.toml", "mcp_servers", ".codex/config.toml"),
    ),
    Program(
        "cursor",
        "Cursor",
        Dialect.PLAIN,
        _plain(lambda at: at.home / ".cursor", "mcp.json", "mcpServers", ".cursor/mcp.json"),
    ),
    Program(
        "gemini",
        "Gemini CLI",
        Dialect.GEMINI,
        _plain(lambda at: at.home / ".gemini", "settings.json", "mcpServers", ".gemini/settings.json"),
    ),
    Program(
        "hermes",
        "Hermes Agent",
        Dialect.HERMES,
        _plain(lambda at: at.folder("HERMES_HOME", ".hermes"), "config.yaml", "mcp_servers"),
    ),
    Program("opencode", "opencode", Dialect.OPENCODE, _opencode),
    Program("vscode", "VS Code", Dialect.VS_CODE, _vs_code),
    Program(
        "windsurf",
        "Windsurf",
        Dialect.PLAIN,
        _plain(lambda at: at.home / ".codeium" / "windsurf", "mcp_config.json", "mcpServers"),
    ),
    Program("zed", "Zed", Dialect.ZED, _zed),
)


def program(name: str) -> Program:
    """The program of that name (or title, in any case); raises ConfigError with the nearest one."""
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-")
    by_name = {p.name: p for p in PROGRAMS}
    spelled = {p.title.lower().replace(" ", "-"): p.name for p in PROGRAMS} | {
        "claude": "claude-code",
        "gemini-cli": "gemini",
        "vs-code": "vscode",
        "code": "vscode",
    }
    wanted = spelled.get(wanted, wanted)
    if wanted in by_name:
        return by_name[wanted]
    near = get_close_matches(wanted, by_name, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"no host is called {name!r}; there are {', '.join(by_name)}{hint}")


def shown_path(path: PurePath, home: PurePath) -> str:
    """A path as people write it: `~/.cursor/mcp.json`."""
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)
