"""Settings: what the person configured, frozen. Fields that may hold a secret stay out of the `repr`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from proxy.hosts import HostTable

Transport = Literal["stdio", "http", "sse"]
Mode = Literal["auto", "legacy", "modern"]
Validate = Literal["strict", "warn", "off"]
Risk = Literal["read", "write", "destructive"]
Decision = Literal["allow", "ask", "deny"]
LockPolicy = Literal["off", "warn", "strict"]
RISKS: tuple[Risk, ...] = ("read", "write", "destructive")
"""From the least to the greatest."""


@dataclass(frozen=True)
class OAuthConfig:
    """What a person sets for the login of a server at an address; mostly nothing, the server says what it needs."""

    scopes: tuple[str, ...] = ()
    """Asked for instead of those that the server names."""
    client_id: str | None = None
    """Of a client that was registered by hand, where the server registers none by itself."""
    client_secret: str | None = field(default=None, repr=False)
    callback_port: int = 0
    """Port of 127.0.0.1 that the browser comes back to; 0: any that is free."""


@dataclass(frozen=True)
class ServerConfig:
    """One upstream as configured. Every `${VAR}` is expanded; all times are seconds."""

    key: str
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: Path | None = None
    """Absolute; a relative one in the file is relative to the file."""
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    oauth: OAuthConfig = field(default_factory=OAuthConfig)
    description: str | None = None
    aliases: tuple[str, ...] = ()
    """Other names of the product; search takes them like the key."""
    keywords: tuple[str, ...] = ()
    """Words that people use and no tool has; search takes them like the description."""
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    lazy: bool = True
    enabled: bool = True
    timeout: float = 300.0
    connect_timeout: float = 30.0
    max_concurrency: int = 0
    mode: Mode = "auto"
    validate: Validate | None = None
    """None: strict behind the bridge, off for eager tools."""
    inherit_env: bool | tuple[str, ...] = False
    retry: bool = False
    start: Literal["eager", "lazy"] = "eager"
    """lazy: connected only when a tool of it is called (and once, while its list is unknown)."""
    session: Literal["shared", "per_client"] = "shared"
    """per_client: each client connection gets its own session (a browser, a shell)."""
    resources: bool = True
    prompts: bool = True
    """Whether the server's resources and prompts are offered to clients."""
    client_requests: tuple[str, ...] = ("elicitation", "sampling")
    """What the server may ask of clients that can answer; roots change what some servers serve, so only if asked."""
    idle_timeout: float = 300.0
    """Seconds without a call after which a lazily started server is stopped again; 0: never."""
    max_result_chars: int = 0
    """Characters of a result that a client gets at once; the rest is read with `narrow_waist__read_result`. 0: all."""
    launch_hash: str = ""
    """Hash of the unexpanded launch config (command, args, env, cwd, url, headers, transport, mode)."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values of 8 characters or more from env, headers and ${...}, and what looks like a secret in args and url: masked
    wherever we print."""
    problem: str | None = None
    """Why this one server cannot be started (an unset variable, naming the field), else None."""

    def runs_as(self, other: "ServerConfig") -> bool:
        """Whether the server's process or session would be the same under `other`: only what it never learns of is
        not.
        """
        return replace(other, **{name: getattr(self, name) for name in _OURS_ALONE}) == self


_OURS_ALONE = (
    "description", "aliases", "keywords", "include", "exclude", "deny", "pinned", "lazy", "timeout", "connect_timeout",
    "max_concurrency", "validate", "retry", "idle_timeout", "max_result_chars",
)  # fmt: skip


@dataclass(frozen=True)
class ToolSearchConfig:
    """The `tool_search:` block, clamped."""

    enabled: Literal["auto", "on", "off"] = "auto"
    threshold_pct: float = 5.0
    context_length: int = 200_000
    listing: Literal["auto", "on", "off"] = "auto"
    listing_max_tokens: int = 20_000
    search_default_limit: int = 5
    max_search_limit: int = 20
    eager_below_tokens: int = 0
    search_name: str = "tool_search"
    describe_name: str = "tool_describe"
    call_name: str = "tool_call"
    host_row: str | None = None
    tokenizer: Literal["o200k", "estimate"] = "o200k"
    announce_changes: Literal["auto", "never"] = "auto"
    semantic: Literal["off", "on"] = "off"
    """on: search goes by meaning too, where the extra `narrow-waist[semantic]` is installed."""

    @property
    def budget(self) -> int:
        """Tokens of listing text over all slots."""
        if self.listing == "on":
            return self.listing_max_tokens
        return min(int(self.context_length * self.threshold_pct / 100), self.listing_max_tokens)


@dataclass(frozen=True)
class Toolset:
    """A named group of servers and tools."""

    name: str
    servers: tuple[str, ...] = ()
    """Globs over server keys: these servers whole, with their resources and prompts."""
    tools: tuple[str, ...] = ()
    """Globs `server/tool` over server keys and raw names."""


@dataclass(frozen=True)
class Profile:
    """What one kind of caller may see and call."""

    name: str
    enabled: tuple[Toolset, ...] | None = None
    """The toolsets that are there; None: everything."""
    disabled: tuple[Toolset, ...] = ()
    """The toolsets that are not there, whatever is enabled."""
    policy: Mapping[Risk, Decision] = field(default_factory=dict[Risk, Decision])
    """What becomes of a call by its risk; a risk that is not named is allowed."""
    rate_limit: int = 0
    """Calls a minute that all callers of the profile may make together; 0: any number."""


@dataclass(frozen=True)
class AuditConfig:
    """Where a line for each call is kept."""

    file: Path
    arguments: bool = False
    """Whether arguments are kept too (secrets of the configuration masked)."""
    max_bytes: int = 10_000_000
    """Size at which the file is rotated."""
    keep: int = 5
    """Rotated files that are kept."""


@dataclass(frozen=True)
class GuardConfig:
    """The `guard:` block."""

    risk: Mapping[Risk, tuple[str, ...]] = field(default_factory=dict[Risk, tuple[str, ...]])
    """Globs `server/tool` of the tools whose risk the person knows better than the server says."""
    default_risk: Risk = "write"
    """Of tools that nobody has marked."""
    trust_annotations: bool | tuple[str, ...] = False
    """Servers whose annotations may also lower a risk; True: all."""
    lock: LockPolicy = "off"
    lock_file: Path | None = None
    clean: bool = True
    """Whether control, zero-width and tag characters are taken out of descriptions."""
    audit: AuditConfig | None = None
    read_call: bool = False
    """A second call tool that runs only tools which read, so that a host can approve it once."""
    ask_timeout: float = 300.0
    """Seconds that a person has to answer."""
    max_sessions: int = 1_000
    """Open HTTP sessions, each 40 KB; beyond it the one that was idle longest is closed."""
    max_body: int = 64 * 1024 * 1024
    """Bytes of one HTTP request."""
    max_connections: int = 0
    """Open HTTP connections; beyond it the one that has waited longest is closed. 0: half of the descriptors there are,
    at most 10,000."""
    head_timeout: float = 15.0
    """Seconds in which the head of an HTTP request must have come."""
    body_timeout: float = 60.0
    """Seconds in which the body of an HTTP request must have come."""


@dataclass(frozen=True)
class Settings:
    """One configuration file, read and checked."""

    servers: tuple[ServerConfig, ...] = ()
    """Sorted by key; disabled ones included."""
    tool_search: ToolSearchConfig = field(default_factory=ToolSearchConfig)
    first_list_wait: float = 1.0
    allowed_hosts: tuple[str, ...] = ()
    session_idle_timeout: float = 1800.0
    """Seconds without a request or an open stream after which the session of an HTTP client is forgotten."""
    hosts: HostTable = field(default_factory=HostTable)
    profiles: Mapping[str, Profile] = field(default_factory=dict[str, Profile])
    guard: GuardConfig | None = None
    """None: nothing is guarded beyond what each server's own block says."""
    reload: bool = True
    """Whether a proxy that runs takes up what changes in the file."""
    path: Path | None = None
    warnings: tuple[str, ...] = ()
