"""A server's entry in each program's words <-> one neutral `Launch`. Nothing is expanded and nothing is started."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, cast

from proxy.hosts.problem import HostFileError

Transport = Literal["stdio", "http", "sse"]
OURSELVES = re.compile(r"(?:^|[/\\])narrow-waist(?:\.exe|[@=].*)?$")
"""A word of a command line that starts this proxy."""


class Dialect(Enum):
    """The words of one program's entries. The plain ones are `command`, `args`, `env`, `url`, `headers`."""

    PLAIN = "plain"
    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    GEMINI = "gemini"
    HERMES = "hermes"
    OPENCODE = "opencode"
    VS_CODE = "vscode"
    ZED = "zed"


@dataclass(frozen=True)
class Launch:
    """How one server is reached, in our words; `${VAR}` stands for a variable of the environment."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    transport: Transport = "stdio"
    enabled: bool = True
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    lazy: bool = True
    """Whether the model is to search for its tools."""
    resources: bool = True
    prompts: bool = True
    timeout: float | None = None
    """Seconds a call may take."""
    connect_timeout: float | None = None
    references: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variable -> how the program's own file asks for it, such as `${input:token}`."""
    ignored: tuple[str, ...] = ()
    """Keys of the entry that have no equal here."""
    login: str = ""
    """The key with the settings of a login, which are left behind: most are made for that program alone."""

    def __post_init__(self) -> None:
        """Raises HostFileError where the entry can start nothing."""
        if not (self.command if self.transport == "stdio" else self.url):
            raise HostFileError("has neither a command nor an address")


_READ = {
    "command", "args", "cwd", "env", "environment", "env_vars",
    "url", "httpUrl", "serverUrl", "type", "transport",
    "headers", "requestHeaders", "http_headers", "env_http_headers", "bearer_token_env_var",
    "enabled", "disabled", "lazy", "tools", "includeTools", "excludeTools",
    "enabled_tools", "disabled_tools", "enabledTools", "disabledTools",
    "timeout", "tool_timeout_sec", "connect_timeout", "startup_timeout_sec", "startup_timeout_ms",
}  # fmt: skip
"""Keys that are understood."""
MEANINGLESS = {
    "name", "description", "source", "trust", "alwaysAllow", "autoApprove", "gallery", "version", "dev", "required",
    "default_tools_approval_mode", "tools_approval", "icon", "settings", "oauth", "auth", "sandboxEnabled",
}  # fmt: skip
"""Keys about the program's own manners; that they are left behind needs no warning."""


def read_entry(entry: object, dialect: Dialect) -> Launch:
    """One server of a program's file.

    Raises:
        HostFileError: the entry is no mapping or names neither a program nor an address.
    """
    if not isinstance(entry, Mapping):
        raise HostFileError(f"expected a mapping, found {type(entry).__name__}")
    given = {str(k): v for k, v in cast(Mapping[Any, Any], entry).items() if v is not None}
    words = _command(given)
    url = _text(given, "url") or _text(given, "httpUrl") or _text(given, "serverUrl")
    tools = _mapping(given.get("tools"))
    include = _list(given, "tools", "includeTools", "enabled_tools", "enabledTools")
    launch = Launch(
        command=words[0] if words else None,
        args=tuple(words[1:]),
        env={**_strings(given.get("env")), **_strings(given.get("environment"))},
        cwd=_text(given, "cwd"),
        url=url,
        headers={**_strings(given.get("headers")), **_strings(given.get("requestHeaders"))},
        transport=_transport(given, bool(words), dialect),
        enabled=given.get("enabled", True) is not False and given.get("disabled") is not True,
        include=include if include is not None else _list(tools, "include"),
        exclude=_list(given, "excludeTools", "disabled_tools", "disabledTools") or _list(tools, "exclude") or (),
        lazy=given.get("lazy") is not False,
        resources=tools.get("resources") is not False,
        prompts=tools.get("prompts") is not False,
        timeout=_seconds(given, dialect),
        connect_timeout=_number(given, "startup_timeout_sec") or _number(given, "connect_timeout"),
        ignored=tuple(sorted(given.keys() - _READ - MEANINGLESS)),
        login=next((name for name in ("oauth", "auth") if _mapping(given.get(name)).keys() - {"enabled"}), ""),
    )
    return _codex(_neutral(launch, dialect), given) if dialect is Dialect.CODEX else _neutral(launch, dialect)


def our_entry(
    command: Sequence[str],
    dialect: Dialect,
    values: Mapping[str, str] | None = None,
    references: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The entry that makes a program of this dialect start us as the words of `command`.

    Where servers are moved behind us, we need what they were given: `values` (variable -> secret, which stays in the
    file where it has always been) and `references` (`Launch.references`).
    """
    env = {**(values or {}), **({} if dialect is Dialect.CODEX else references or {})}
    plain: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    if dialect is Dialect.OPENCODE:
        entry: dict[str, Any] = {"type": "local", "command": list(command), "enabled": True}
        return {**entry, "environment": env} if env else entry
    if dialect in (Dialect.VS_CODE, Dialect.CLAUDE_CODE):
        plain = {"type": "stdio", **plain}
    elif dialect is Dialect.ZED:
        return {"source": "custom", **plain, "env": env}
    elif dialect is Dialect.CODEX and references:
        plain["env_vars"] = sorted(references)
    return {**plain, "env": env} if env else plain


def starts_us(entry: object) -> bool:
    """Whether an entry of any dialect starts this proxy: following it would start us again, without end."""
    if not isinstance(entry, Mapping):
        return False
    return any(OURSELVES.search(word) for word in _command(cast(Mapping[str, Any], entry)))


def _command(given: Mapping[str, Any]) -> list[str]:
    command: Any = given.get("command")
    args: Any = given.get("args")
    if isinstance(command, Mapping):  # Zed until 2025: {"path": ..., "args": [...]}
        inner = cast(Mapping[str, Any], command)
        command, args = inner.get("path"), inner.get("args")
    return [*_words(command), *_words(args)]


def _words(value: object) -> list[str]:
    return [str(word) for word in cast(list[Any], value)] if isinstance(value, list) else [str(value)] if value else []


def _transport(given: Mapping[str, Any], has_command: bool, dialect: Dialect) -> Transport:
    word = str(given.get("type") or given.get("transport") or "").lower()
    if has_command:
        return "stdio"
    if word == "sse" or (dialect is Dialect.GEMINI and "url" in given and "httpUrl" not in given and not word):
        return "sse"
    return "http"


def _codex(launch: Launch, given: Mapping[str, Any]) -> Launch:
    """What Codex names instead of writing it down: variables to pass on, and headers taken from variables."""
    passed = _list(given, "env_vars") or ()
    headers = {name: _escaped(value) for name, value in _strings(given.get("http_headers")).items()}
    named = _strings(given.get("env_http_headers"))
    headers |= {name: f"${{{variable}}}" for name, variable in named.items()}
    if token := _text(given, "bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    names = [*passed, *named.values(), *([token] if token else ())]
    return replace(
        launch,
        env={**{name: f"${{{name}}}" for name in passed}, **launch.env},
        headers={**launch.headers, **headers},
        references={name: name for name in names},
    )


def _seconds(given: Mapping[str, Any], dialect: Dialect) -> float | None:
    if (seconds := _number(given, "tool_timeout_sec")) is not None:
        return seconds
    found = _number(given, "timeout")
    if found is None or dialect is Dialect.OPENCODE:  # there it bounds the listing of tools only
        return None
    return found if dialect is Dialect.HERMES else found / 1000


_COMMON = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_]\w*)(?P<default>:-[^{}]*)?\}")
_VS_CODE = re.compile(rf"{_COMMON.pattern}|\$\{{input:(?P<input>[^{{}}]+)\}}")
"""VS Code asks the person for an input; here a variable of the environment stands for it."""
_REFERENCES: Mapping[Dialect, re.Pattern[str]] = {
    Dialect.CODEX: re.compile(r"(?!)"),
    Dialect.GEMINI: re.compile(r"\$(?:\{(?P<name>[A-Za-z_]\w*)\}|(?P<bare>[A-Za-z_]\w*))"),
    Dialect.OPENCODE: re.compile(r"\{env:(?P<name>[A-Za-z_]\w*)\}"),
    Dialect.VS_CODE: _VS_CODE,
}
_FOLDERS = {"userHome": "HOME"}
"""Names that VS Code and Cursor replace by themselves."""


def _neutral(launch: Launch, dialect: Dialect) -> Launch:
    """The launch with the program's own references as `${VAR}`, and what only looks like one escaped."""
    references: dict[str, str] = {}
    pattern = _REFERENCES.get(dialect, _COMMON)

    def text(value: str) -> str:
        parts: list[str] = []
        end = 0
        for match in pattern.finditer(value):
            groups = match.groupdict()
            asked = groups.get("input")
            name = variable_name(asked) if asked else groups.get("name") or groups.get("bare") or ""
            if name in _FOLDERS:
                name = _FOLDERS[name]
            else:
                references[name] = match[0]
            parts += [_escaped(value[end : match.start()]), f"${{{name}{groups.get('default') or ''}}}"]
            end = match.end()
        return "".join([*parts, _escaped(value[end:])])

    return replace(
        launch,
        command=text(launch.command) if launch.command else None,
        args=tuple(map(text, launch.args)),
        env={key: text(value) for key, value in launch.env.items()},
        cwd=text(launch.cwd) if launch.cwd else None,
        url=text(launch.url) if launch.url else None,
        headers={key: text(value) for key, value in launch.headers.items()},
        references=references,
    )


def variable_name(text: str) -> str:
    """`text` as the name of an environment variable."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper()
    return name if name and not name[0].isdigit() else f"V_{name}".rstrip("_")


def _escaped(text: str) -> str:
    return text.replace("${", "$${")


def _text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    return value if isinstance(value, str) and value else None


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _strings(value: object) -> dict[str, str]:
    return {
        str(k): v if isinstance(v, str) else str(v).lower() if isinstance(v, bool) else str(v)
        for k, v in _mapping(value).items()
        if v is not None
    }


def _list(given: Mapping[str, Any], *keys: str) -> tuple[str, ...] | None:
    for key in keys:
        if isinstance(value := given.get(key), list):
            return tuple(str(v) for v in cast(list[Any], value) if not isinstance(v, Mapping))
    return None


def _number(given: Mapping[str, Any], key: str) -> float | None:
    value = given.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
