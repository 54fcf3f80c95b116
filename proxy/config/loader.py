"""Finding the config file, and its root: where the servers are, `tool_search:`, and our other keys."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from proxy.config.document import Node, present, read
from proxy.config.environment import OWN_PYTHON
from proxy.config.exposure import exposure
from proxy.config.fields import Reader, Slips, slip_of, unknown_key
from proxy.config.guard_block import BLOCKS as GUARD_BLOCKS
from proxy.config.guard_block import GuardBlocks
from proxy.config.hosts_block import host_table
from proxy.config.search_block import search_settings
from proxy.config.servers import server
from proxy.config.settings import ServerConfig, Settings, ToolSearchConfig
from proxy.errors import ConfigError
from proxy.hosts import HostTable
from proxy.hosts.launches import OURSELVES

VARIABLE = "NARROW_WAIST_CONFIG"
FILE_NAME = "upstreams.yaml"

STRICT_BLOCKS = ("servers", "mcp_servers")
OWN_KEYS = (
    "tool_search",
    "tools",
    "first_list_wait",
    "allowed_hosts",
    "session_idle_timeout",
    "hosts",
    "reload",
    *GUARD_BLOCKS,
)
ROOT_KEYS = (*STRICT_BLOCKS, "mcpServers", *OWN_KEYS)
PROTECTING = ("allowed_hosts", *GUARD_BLOCKS)
"""Root keys without which more can happen than the person meant; a slip in one is an error in JSON too."""
RESERVED = ("storage",)
"""Root keys with a meaning to come. Passing over one in silence could leave a person less protected than they think."""

_FOREIGN_BLOCKS = ("mcpServers", "servers", "mcp_servers", "mcp", "context_servers", "amp.mcpServers")
_LAUNCH = frozenset({"command", "url", "httpUrl", "serverUrl"})


def find(
    explicit: str | None,
    environ: Mapping[str, str],
    cwd: Path | None = None,
    home: Path | None = None,
    platform: str = sys.platform,
) -> Path:
    """The config file: `--config`, else $NARROW_WAIST_CONFIG, else the first of `places` that exists.

    Raises:
        ConfigError: there is none; the text lists where it was looked for and what to do.
    """
    cwd, home = cwd or Path.cwd(), home or Path.home()
    for origin, named in (("--config", explicit), (f"${VARIABLE}", environ.get(VARIABLE))):
        if named:
            path = cwd / (home / named[2:] if named.startswith("~/") else named)
            if path.is_file():
                return path
            raise ConfigError(
                f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'} (from {origin})"
            )
    usual = places(environ, cwd, home, platform)
    for path in usual:
        if path.is_file():
            return path
    looked = "".join(f"\n  {place}" for place in usual)
    raise ConfigError(
        f"no configuration found. Looked for:{looked}\n"
        f"Write one of these files, or name one with --config FILE or ${VARIABLE}. The smallest one is:\n"
        "  servers:\n    time:\n      command: uvx\n      args: [mcp-server-time]"
    )


def places(environ: Mapping[str, str], cwd: Path, home: Path, platform: str = sys.platform) -> tuple[Path, Path]:
    """Where a config file is looked for that nobody names: the user's own, then ./upstreams.yaml.

    In this order because hosts start us in the folder that they have open: a file there, which may have come with a
    cloned repository, names programs to start, and must not take the place of a person's own.
    """
    return user_file(environ, home, platform), cwd / FILE_NAME


def user_file(environ: Mapping[str, str], home: Path, platform: str = sys.platform) -> Path:
    """The config file in the user's config folder, whether or not it exists."""
    if platform == "darwin":
        folder = home / "Library" / "Application Support"
    elif platform == "win32":
        folder = Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        folder = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    return folder / "narrow-waist" / FILE_NAME


def _starts_again(config: ServerConfig, file: Path, default: Path) -> bool:
    """Whether a server is this proxy with the same `file`; `default` is the one it reads where none is named."""
    words = (config.command or "", *config.args)
    if not any(OURSELVES.search(word) for word in words) or {"--demo", "connect"} & set(words):
        return False
    named = [word for option, word in pairwise(words) if option == "--config"]
    named += [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    read_there = Path((*named, config.env.get(VARIABLE) or default)[0]).expanduser()
    return ((config.cwd or Path.cwd()) / read_there).resolve() == file.resolve()


def state_file(name: str, environ: Mapping[str, str], home: Path | None = None, platform: str = sys.platform) -> Path:
    """A file that we write and a person may want to keep, such as the audit, whether or not it exists."""
    home = home or Path.home()
    if platform in ("darwin", "win32"):
        folder = user_file(environ, home, platform).parent
    else:
        folder = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "narrow-waist"
    return folder / name


def load(path: Path, environ: Mapping[str, str] | None = None, home: Path | None = None) -> Settings:
    """Reads and checks one config file; what was passed over is told in `Settings.warnings`.

    Raises:
        ConfigError: a line for each thing that is wrong, at most ten, naming file, line (YAML) and key, and what was
            expected.
    """
    environ = {OWN_PYTHON: sys.executable} | dict(os.environ if environ is None else environ)
    root, is_json = read(path)
    warnings: list[str] = []
    fail = Slips()
    """Told of what is wrong; the code goes on with a default, and nothing of it leaves here."""
    reader = Reader(path, environ, warnings.append if is_json else fail, fail)
    if present(root) and not root.is_map:
        raise ConfigError(f"{reader.where(root)}: expected a mapping with `servers:`")
    blocks = _json_blocks(root, reader, warnings, fail) if is_json else _yaml_blocks(root, reader, fail)
    servers: dict[str, ServerConfig] = {}
    places: dict[str, Node] = {}
    for block, lenient in blocks:
        if present(block) and not block.is_map:
            fail(f"{reader.where(block)}: expected a mapping, one `name:` per server")
        if block.twice:
            fail(f"{reader.where(block)}: the server {block.twice[0]!r} is given twice")
        for key, node in block.items.items():
            if key in servers:
                fail(f"{reader.where(node)}: the server {key!r} is given twice (also as {places[key].path})")
                continue
            servers[key] = server(
                key, node, path, environ, home or Path.home(), lenient=lenient, warnings=warnings, fail=fail
            )
            places[key] = node
            if servers[key].enabled and _starts_again(servers[key], path, user_file(environ, home or Path.home())):
                servers[key] = replace(servers[key], enabled=False)
                warnings.append(
                    f"{reader.where(node)}: starts narrow-waist with this same file, which would go on without end, "
                    "and is left out"
                )
    blocks_of_guard = {
        k: n for k in GUARD_BLOCKS if present(n := root.items.get(k)) and not (is_json and _is_server(n))
    }
    guard = GuardBlocks(blocks_of_guard, path, environ, servers, state_file("", environ, home), fail)
    if not servers:
        step = "add one below `servers:`, or take over those of other programs with: narrow-waist import"
        warnings.append(f"{path}: no servers are configured; {step}")
    if (warning := exposure(path, places)) is not None:
        warnings.append(warning)
    # What is wrong in `hosts:` and in the names of `tool_search:` costs texts, not servers.
    slip = warnings.append if is_json else fail
    hosts = host_table(root.items.get("hosts"), Reader(path, environ, slip, slip))
    settings = Settings(
        servers=tuple(servers[key] for key in sorted(servers)),
        hosts=hosts,
        tool_search=_tool_search(root, hosts, path, environ, warnings, slip),
        first_list_wait=reader.number(root.items.get("first_list_wait"), Settings.first_list_wait, 0),
        allowed_hosts=reader.texts(root.items.get("allowed_hosts")) or (),
        session_idle_timeout=reader.number(
            root.items.get("session_idle_timeout"), Settings.session_idle_timeout, 0, above=True
        ),
        reload=reader.boolean(root.items.get("reload"), Settings.reload),
        profiles=guard.profiles(),
        guard=guard.guard(),
        path=path,
    )
    fail.raise_any()
    return replace(settings, warnings=tuple(warnings))


def _yaml_blocks(root: Node, reader: Reader, fail: Slips) -> list[tuple[Node, bool]]:
    for key, node in root.items.items():
        if key in RESERVED:
            _refuse_reserved(node, reader, key, fail)
        elif key not in ROOT_KEYS:
            is_server = _LAUNCH & node.items.keys()
            stray = f"unknown key {key!r}; if this is a server, move it below `servers:`"
            reader.complain(node, stray if is_server else unknown_key(key, ROOT_KEYS))
    return [(root.items[k], k not in STRICT_BLOCKS) for k in (*STRICT_BLOCKS, "mcpServers") if k in root.items]


def _refuse_reserved(node: Node, reader: Reader, key: str, fail: Slips) -> None:
    fail(f"{reader.where(node)}: {key!r} is not supported yet; remove this block")


def _json_blocks(root: Node, reader: Reader, warnings: list[str], fail: Slips) -> list[tuple[Node, bool]]:
    """Where a client's file keeps its servers: under one of the known keys, else the root is a bare map of servers."""
    blocks: list[Node] = []
    own = {k for k in OWN_KEYS if k not in GUARD_BLOCKS or not _is_server(root.items.get(k, root))}
    used = {"inputs", "$schema"} | own
    for key in _FOREIGN_BLOCKS:
        node = root.items.get(key)
        if node is not None and not _is_server(node):
            used.add(key)
            nested = node.items.get("servers") or node.items.get("mcpServers") if key == "mcp" else None
            blocks.append(nested or node)
    bare = not blocks
    if bare:
        found = {k: n for k, n in root.items.items() if _is_server(n) and k not in own}
        used |= found.keys()
        blocks = [Node(dict(found), "", root.path, twice=tuple(k for k in root.twice if k in found))]
    for key in RESERVED:
        if key in root.items and key not in used:
            _refuse_reserved(root.items[key], reader, key, fail)
    unknown = [k for k in root.items if k not in used]
    for key in unknown:
        node = root.items[key]
        # A name alone, such as `"profile": "work"`, is another client's.
        if (node.is_map or node.is_list) and (meant := slip_of(key, OWN_KEYS, PROTECTING)) is not None:
            fail(f"{reader.where(node)}: unknown key {key!r}; did you mean {meant!r}?")
    if unknown:
        shown = ", ".join(map(repr, unknown[:8])) + (f" and {len(unknown) - 8} more" if len(unknown) > 8 else "")
        warnings.append(f"{reader.file}: keys that mean nothing here: {shown}")
    return [(block, True) for block in blocks]


def _is_server(node: Node) -> bool:
    return any(not n.is_map for k, n in node.items.items() if k in _LAUNCH)


def _tool_search(
    root: Node,
    hosts: HostTable,
    path: Path,
    environ: Mapping[str, str],
    warnings: list[str],
    slip: Callable[[str], None],
) -> ToolSearchConfig:
    reader = Reader(path, environ, warnings.append, warnings.append)

    def unknown(node: Node, sentence: str) -> None:
        slip(f"{reader.where(node)}: {sentence}")

    tools = root.items.get("tools")
    node = root.items.get("tool_search")
    if present(tools):
        if not tools.is_map:
            unknown(tools, "expected `tool_search:` below it")
        for key, child in tools.items.items():
            if key != "tool_search":
                unknown(child, unknown_key(key, ("tool_search",)))
            elif present(node):
                unknown(child, "is given twice, here and at the root; keep one")
            else:
                node = child
    return search_settings(node, hosts, reader, unknown)
