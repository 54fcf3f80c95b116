"""The table of what the bench can measure. Add a proxy by adding a `Target`.

Placeholders in `command` and `env`: {config} the generated file, {port} a free loopback port, {python} this
interpreter, {here} this folder, {root} the repository, {peers} where the peers' environments are, {fastmcp} an
interpreter that has fastmcp, {work} the scratch folder of the run, {url} that of the first HTTP upstream. An item that
is exactly *UP becomes the argv of the first upstream.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEERS = Path(os.environ.get("BENCH_PEERS", ROOT / ".cache" / "peers"))
_FOREIGN = ROOT / ".cache" / "foreign" / "fastmcp" / "bin" / "python"
FASTMCP = PEERS / "fastmcp" / "bin" / "python" if (PEERS / "fastmcp").exists() else _FOREIGN

Transport = Literal["stdio", "http"]


@dataclass(frozen=True)
class Call:
    """How a tool of an upstream is called. {server} and {tool} are filled in, "$ARGS" becomes the arguments."""

    tool: str
    args: object = "$ARGS"

    def make(self, server: str, tool: str, args: Mapping[str, Any]) -> tuple[str, Any]:
        """Name and arguments of the `tools/call`."""

        def fill(value: object) -> Any:
            if value == "$ARGS":
                return args
            if isinstance(value, str):
                return value.replace("{server}", server).replace("{tool}", tool)
            if isinstance(value, dict):
                return {key: fill(each) for key, each in value.items()}
            return [fill(each) for each in value] if isinstance(value, list) else value

        return fill(self.tool), fill(self.args)


@dataclass(frozen=True)
class Search:
    """How tools are searched; "$QUERY" becomes the query."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=lambda: {"query": "$QUERY"})

    def make(self, query: str) -> tuple[str, dict[str, Any]]:
        """Name and arguments of the `tools/call`."""
        return self.tool, {key: query if value == "$QUERY" else value for key, value in self.args.items()}


@dataclass(frozen=True)
class Target:
    """One thing to measure."""

    name: str
    about: str
    command: tuple[str, ...] = ()
    """Empty: the client talks to the upstreams themselves."""
    down: Transport = "stdio"
    """What the client uses."""
    up: Transport = "stdio"
    """What the upstreams use."""
    config: Literal["mcpServers", "lazy-mcp", "none"] = "mcpServers"
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further keys of the config file."""
    call: Call = Call("{server}_{tool}")
    single: Call | None = None
    """Replaces `call` where there is one upstream: some proxies then add no prefix."""
    search: Search | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    package: tuple[Path, str] | None = None
    """Interpreter and distribution, for the version."""
    needs: Path | None = None
    """Must exist, else the target is skipped."""
    multi: bool = True
    """Whether it takes several upstreams."""
    gentle: bool = False
    """With several upstreams one call at a time: it starts processes for each."""
    timeout: float = 60.0

    @property
    def direct(self) -> bool:
        """Whether nothing is between client and upstream."""
        return not self.command

    @property
    def base(self) -> str:
        """The direct connection that it is compared with."""
        return "direct" if self.down == "stdio" else "direct-http"

    @property
    def missing(self) -> str | None:
        """Why it cannot be measured here."""
        return (
            f"not installed ({self.needs} is not there)" if self.needs is not None and not self.needs.exists() else None
        )

    @property
    def version(self) -> str:
        """The version of a peer; empty where there is none to tell."""
        if self.package is None or self.missing:
            return ""
        code = f"import importlib.metadata as m; print(m.version({self.package[1]!r}))"
        done = subprocess.run([self.package[0], "-c", code], capture_output=True, text=True, timeout=20, check=False)
        return done.stdout.strip()


_PLAIN = Call("{tool}")
_WRAPPED = Call("tool_call", {"name": "{server}_{tool}", "arguments": "$ARGS"})
_QUIET = {"DO_NOT_TRACK": "1", "FASTMCP_CHECK_FOR_UPDATES": "off", "FASTMCP_SHOW_SERVER_BANNER": "false"}
_OURS = ("{python}", "-P", "-m", "proxy", "--config", "{config}")
_GUARD: Mapping[str, Any] = {
    "guard": {"audit": {"file": "{work}/audit.jsonl"}, "risk": {"destructive": ["*/purge_*"]}},
    "profiles": {"default": {"policy": {"destructive": "deny"}, "rate_limit": 1_000_000_000}},
}
"""Policy, limits and audit on; validation always is."""


def _ours(name: str, about: str, **more: Any) -> Target:
    command = (*_OURS, "--http", "127.0.0.1:{port}") if more.get("down") == "http" else _OURS
    return Target(
        name,
        about,
        command,
        call=Call("tool_call", {"name": "{server}.{tool}", "arguments": "$ARGS"}),
        search=Search("tool_search", {"query": "$QUERY", "limit": 5}),
        env={"NARROW_WAIST_CACHE": "{work}/../cache", "PYTHONPATH": str(ROOT), "HOME": "{work}"},
        **more,
    )


def _floor(name: str, about: str, *words: str, **more: Any) -> Target:
    return Target(name, about, ("{python}", "{here}/floor.py", *words), **more)


def _peer(name: str, about: str, *words: str, **more: Any) -> Target:
    package: str = more.pop("of", name)
    bin_ = PEERS / package / "bin"
    needs = bin_ / package
    more = {"env": _QUIET, **more}
    return Target(name, about, (str(needs), *words), package=(bin_ / "python", package), needs=needs, **more)


def _fastmcp(name: str, about: str, *words: str, **more: Any) -> Target:
    command = (str(FASTMCP), "{here}/fastmcp_peer.py", "{config}", *words)
    return Target(name, about, command, env=_QUIET, package=(FASTMCP, "fastmcp"), needs=FASTMCP, **more)


_COMPRESSOR = Call("{server}_invoke_tool", {"tool_name": "{tool}", "tool_input": "$ARGS"})
_BM25 = Call("call_tool", {"name": "{server}_{tool}", "arguments": "$ARGS"})
TARGETS: tuple[Target, ...] = (
    Target("direct", "the client talks to the upstream itself, stdio", call=_PLAIN),
    Target("direct-http", "the same over Streamable HTTP", down="http", up="http", call=_PLAIN),
    _floor("floor-pipe", "lines copied, nothing parsed", "pipe", "--", "*UP", call=_PLAIN, multi=False),
    _floor("floor-json", "JSON parsed, id rewritten, no SDK", "bridge", "--config", "{config}", call=_WRAPPED),
    _ours("ours", "narrow-waist, stdio"),
    _ours("ours-guarded", "narrow-waist, stdio, with policy, limits and audit", more=_GUARD),
    _ours("ours-uphttp", "narrow-waist, stdio, Streamable HTTP upstream", up="http"),
    _ours("ours-http", "narrow-waist, Streamable HTTP", down="http"),
    _ours("ours-http-guarded", "the same with policy, limits and audit", down="http", more=_GUARD),
    _peer(
        "mcp-compressor",
        "mcp-compressor (Rust core)",
        "--config",
        "{config}",
        call=_COMPRESSOR,
        single=replace(_COMPRESSOR, tool="invoke_tool"),
    ),
    _peer(
        "lazy-mcp",
        "lazy-mcp (Node)",
        "--config",
        "{config}",
        config="lazy-mcp",
        call=Call("invoke_command", {"server": "{server}", "command_name": "{tool}", "parameters": "$ARGS"}),
    ),
    _fastmcp("fastmcp", "FastMCP create_proxy", single=_PLAIN, gentle=True),
    _fastmcp(
        "fastmcp-bm25",
        "the same with BM25SearchTransform",
        "--bm25",
        call=_BM25,
        single=Call("call_tool", {"name": "{tool}", "arguments": "$ARGS"}),
        search=Search("search_tools"),
        gentle=True,
    ),
    _fastmcp("fastmcp-http", "FastMCP over HTTP", "--http", "{port}", down="http", single=_PLAIN, gentle=True),
    _peer(
        "mcp-proxy",
        "mcp-proxy (PyPI), HTTP",
        *("--port", "{port}", "--log-level", "ERROR", "--", "*UP"),
        down="http",
        call=_PLAIN,
        multi=False,
    ),
)
BY_NAME = {target.name: target for target in TARGETS}
CHECKED = ("direct", "direct-http", "floor-json", "ours", "ours-guarded", "ours-http")
"""What `--check` looks at."""
PEER_PACKAGES = ("mcp-compressor", "lazy-mcp", "mcp-proxy", "fastmcp")


def install_peers() -> None:
    """Each peer in an environment of its own."""
    for package in PEER_PACKAGES:
        place = PEERS / package
        if not (place / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
        done = subprocess.run([place / "bin" / "python", "-m", "pip", "install", "--quiet", package], check=False)
        print(f"{package}: {'installed' if done.returncode == 0 else 'could not be installed'}")


def write_config(target: Target, path: Path, upstreams: Mapping[str, Mapping[str, Any]], work: Path) -> None:
    """The target's config for `upstreams`: name -> {"argv": [...]} or {"url": ...}."""
    servers: dict[str, dict[str, Any]] = {
        name: {"url": up["url"]} if "url" in up else {"command": up["argv"][0], "args": up["argv"][1:]}
        for name, up in upstreams.items()
    }
    document: dict[str, Any] = {"mcpServers": servers}
    if target.config == "lazy-mcp":
        listed = [
            {"name": name, "description": name, **({"url": up["url"]} if "url" in up else {"command": up["argv"]})}
            for name, up in upstreams.items()
        ]
        document = {"servers": listed}
    text = json.dumps({**document, **target.more}, indent=1)
    path.write_text(text.replace("{work}", str(work)), encoding="utf-8")
