"""One server's block -> `ServerConfig`."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from proxy.caller import CLIENT_REQUESTS
from proxy.config.document import Node, present
from proxy.config.environment import doubt
from proxy.config.fields import Reader, slip_of, unknown_key
from proxy.config.oauth_block import FOREIGN_BLOCKS, foreign_oauth, oauth
from proxy.config.settings import Mode, ServerConfig, Transport, Validate
from proxy.hosts.launches import OURSELVES
from proxy.hosts.secrets import literal_secrets
from proxy.masking import secret_parts

RESERVED_KEY = "narrow_waist"
"""Names that start with it are kept for ourselves."""

KEYS = (
    "command", "args", "env", "cwd", "url", "headers", "oauth", "transport", "description", "aliases", "keywords",
    "tools", "deny", "pinned", "lazy",
    "enabled", "timeout", "connect_timeout", "max_concurrency", "mode", "validate", "inherit_env", "retry", "start",
    "idle_timeout", "session", "resources", "prompts", "client_requests", "max_result_chars",
)  # fmt: skip
_TOOLS_KEYS = ("include", "exclude")

_SPELLINGS = {
    "type": "transport", "httpUrl": "url", "serverUrl": "url", "environment": "env", "requestHeaders": "headers",
    "includeTools": "include", "enabledTools": "include", "enabled_tools": "include",
    "excludeTools": "exclude", "disabledTools": "exclude", "disabled_tools": "exclude",
}  # fmt: skip
"""Other clients' words, understood in lenient blocks. Their filters count, or a tool they hide would come back."""

PROTECTING = frozenset({
    "deny", "tools", "include", "exclude", "enabled", "disabled", "retry", "max_result_chars", "resources", "prompts",
    "client_requests", "inherit_env", "session", *(name for name, ours in _SPELLINGS.items() if ours in _TOOLS_KEYS),
})  # fmt: skip
"""Keys without which more can happen than the person meant; a slip in one is an error in every kind of file."""

_TRANSPORTS: Mapping[str, str] = {
    "stdio": "stdio", "http": "http", "sse": "sse",
    "streamable-http": "http", "streamable_http": "http", "streamablehttp": "http",
}  # fmt: skip
_LENIENT_TRANSPORTS: Mapping[str, str] = {**_TRANSPORTS, "local": "stdio", "remote": "http"}
_MODES: Mapping[str, str] = {"auto": "auto", "legacy": "legacy", "modern": "modern"}
_SESSIONS: Mapping[str, str] = {"shared": "shared", "per_client": "per_client"}
_STARTS: Mapping[str, str] = {"eager": "eager", "lazy": "lazy"}
_VALIDATE: Mapping[str, str] = {
    "strict": "strict", "warn": "warn", "off": "off", "true": "strict", "on": "strict", "false": "off",
}  # fmt: skip

_DENIES = ("deny", "denied", "denies")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MILLISECONDS = 1000.0
"""From here on a time-out of another client's file is most likely in milliseconds."""


@dataclass
class _Block:
    """A server's keys under our names, whatever they were called in the file."""

    node: Node
    keys: dict[str, Node]
    read: Reader
    lenient: bool
    warnings: list[str]

    def get(self, key: str) -> Node | None:
        found = self.keys.get(key)
        return found if present(found) else None

    def warn(self, node: Node, what: str) -> None:
        self.warnings.append(f"{self.read.where(node)}: {what}")


def server(
    key: str,
    node: Node,
    file: Path,
    environ: Mapping[str, str],
    home: Path,
    *,
    lenient: bool,
    warnings: list[str],
    fail: Callable[[str], None],
) -> ServerConfig:
    """The config of one upstream.

    In a strict block `fail` is told of whatever is wrong, with file, line and key; in a lenient one it becomes the
    server's `problem`. An unset `${VAR}` is a problem of this server in both.
    """
    problems: list[str] = []
    read = Reader(file, environ, problems.append if lenient else fail, problems.append)
    _check_key(key, node, read, fail)
    block = _Block(node, {}, read, lenient, warnings)
    _take_keys(block)
    transport = _transport(block)

    command, args = _command(block)
    env = _env(block)
    headers = {name: value.strip() for name, value in read.mapping(block.get("headers")).items()}
    url = read.text(block.get("url"))
    login = foreign_oauth(node.items, read, warnings) if lenient else oauth(block.get("oauth"), read)
    address = url is None or url.lower().startswith(("http://", "https://"))
    if transport != "stdio" and not problems and not address:
        read.complain(block.keys["url"], "expected an address that starts with http:// or https://")
    foreign = ("command", "args", "env", "cwd") if transport != "stdio" else ("url", "headers", "oauth")
    for name in filter(block.get, foreign):
        block.warn(block.keys[name], f"has no effect on a server with the transport {transport}")
    _doubt(block)
    include, exclude = _tools(block)
    enabled = read.boolean(block.get("enabled"), True) and not read.boolean(block.get("disabled"), False)
    if lenient and enabled and _launches_ourselves(command, args):
        block.warn(node, "starts narrow-waist itself and is left out")
        enabled = False
    return ServerConfig(
        key=key,
        transport=transport,
        command=_home(command, home),
        args=args,
        env=env,
        cwd=_cwd(block, file, home),
        url=url,
        inferred=block.get("transport") is None,
        headers=headers,
        oauth=login,
        description=read.text(block.get("description")),
        aliases=read.texts(block.get("aliases")) or (),
        keywords=read.texts(block.get("keywords")) or (),
        include=include,
        exclude=exclude,
        deny=read.texts(block.get("deny")) or (),
        pinned=read.texts(block.get("pinned")) or (),
        lazy=read.boolean(block.get("lazy"), True),
        enabled=enabled,
        timeout=_seconds(block, "timeout", 300.0),
        connect_timeout=_seconds(block, "connect_timeout", 30.0),
        max_concurrency=int(read.number(block.get("max_concurrency"), 0, 0)),
        mode=cast(Mode, read.choice(block.get("mode"), _MODES, "auto")),
        validate=cast(Validate | None, read.choice(block.get("validate"), _VALIDATE, None)),
        inherit_env=_inherit_env(block),
        retry=read.boolean(block.get("retry"), False),
        start=cast(Literal["eager", "lazy"], read.choice(block.get("start"), _STARTS, "eager")),
        session=cast(Literal["shared", "per_client"], read.choice(block.get("session"), _SESSIONS, "shared")),
        resources=read.boolean(block.get("resources"), True),
        prompts=read.boolean(block.get("prompts"), True),
        client_requests=_client_requests(block),
        idle_timeout=read.number(block.get("idle_timeout"), 300.0, 0),
        max_result_chars=int(read.number(block.get("max_result_chars"), 0, 0)),
        launch_hash=_launch_hash(block, transport, file),
        secrets=secret_parts(
            {*env.values(), *headers.values(), *read.secrets, *literal_secrets(args, url), login.client_secret or ""}
        ),
        problem="; ".join(dict.fromkeys(problems)) or None,
    )


def _check_key(key: str, node: Node, read: Reader, fail: Callable[[str], None]) -> None:
    """A key that cannot name a server is an error in every kind of file."""
    if key == RESERVED_KEY:
        fail(f"{read.where(node)}: the name {RESERVED_KEY!r} is reserved; choose another for this server")
    if not key.strip() or _CONTROL.search(key):
        fail(f"{read.where(node)}: a server needs a name without control characters, not {key!r}")


def _take_keys(block: _Block) -> None:
    """Put what stands in the file under our names, and tell of what means nothing."""
    node, keys, read, lenient = block.node, block.keys, block.read, block.lenient
    if present(node) and not node.is_map:
        read.complain(node, "expected a mapping with at least `command` or `url`")
    unknown: list[str] = []
    for name, child in node.items.items():
        ours = _SPELLINGS.get(name, name) if lenient else name
        if lenient and name in FOREIGN_BLOCKS and child.is_map:
            continue  # see `foreign_oauth`
        if (ours in KEYS and not (lenient and ours == "oauth")) or (lenient and ours in (*_TOOLS_KEYS, "disabled")):
            if ours not in keys or name == ours:
                keys[ours] = child
        elif not lenient:
            read.complain(child, unknown_key(name, KEYS))
        elif (meant := _slip(name)) is not None:
            read.complain(child, f"unknown key {name!r}; did you mean {meant!r}?")
        else:
            unknown.append(name)
    if "httpUrl" in node.items and "transport" not in keys:
        keys["transport"] = Node("http", "http", f"{node.path}.httpUrl")
    if unknown:
        block.warn(node, f"keys that mean nothing here: {', '.join(map(repr, unknown))}")
    if node.twice:
        block.warn(node, f"given twice, the last counts: {', '.join(map(repr, node.twice))}")


def _slip(name: str) -> str | None:
    """The key that protects and was meant by an unknown one."""
    if name.lower().startswith(_DENIES):
        return "deny"
    return slip_of(name, (*KEYS, *_SPELLINGS, *_TOOLS_KEYS, "disabled"), PROTECTING)


def _transport(block: _Block) -> Transport:
    command, url, read, lenient = block.get("command"), block.get("url"), block.read, block.lenient
    default = "http" if url and not command else "stdio"
    options = _LENIENT_TRANSPORTS if lenient else _TRANSPORTS
    found = cast(Transport, read.choice(block.get("transport"), options, default))
    if command and url and not (lenient and block.get("transport")):
        read.complain(url, "a server has either `command` (stdio) or `url` (HTTP), not both")
    elif not command and not url and not lenient and block.node.items.keys() - block.keys.keys():
        pass  # it has an unknown key, which was told and may have been meant for it
    elif not command and not url:
        read.complain(block.node, "a server needs `command` (a program to start) or `url` (an address)")
    elif found == "stdio" and not command:
        read.complain(block.node, "a stdio server needs `command`")
    elif found != "stdio" and not url:
        read.complain(block.node, f"a server with the transport {found} needs `url`")
    return found


def _command(block: _Block) -> tuple[str | None, tuple[str, ...]]:
    node, read = block.get("command"), block.read
    words = read.texts(node) or ()
    args = read.texts(block.get("args")) or ()
    if node is not None and (not words or not words[0].strip()):
        read.complain(node, "expected a program to start")
        return None, args
    if node is not None and len(words) == 1 and not args and " " in words[0] and not Path(words[0]).exists():
        what = "is taken as the name of one program although it has spaces"
        block.warn(node, f"{what}; write the program in `command` and the rest in `args`")
    return (words[0] if words else None), words[1:] + args


def _env(block: _Block) -> dict[str, str]:
    node = block.get("env")
    env = block.read.mapping(node)
    for name in list(env):
        if node is not None and (not name or "=" in name or "\0" in name + env[name]):
            block.read.complain(node, f"{name!r} cannot be the name of an environment variable")
            del env[name]
    return env


def _doubt(block: _Block) -> None:
    """Warn of what in the launch may have been meant as a reference to a variable."""
    for node in filter(present, map(block.get, ("command", "args", "env", "url", "headers"))):
        for child in node.elements or node.items.values() or (node,):
            if why := doubt(child.text, block.read.environ):
                block.warn(child, why)


def _cwd(block: _Block, file: Path, home: Path) -> Path | None:
    text = _home(block.read.text(block.get("cwd")), home)
    return (file.absolute().parent / text).absolute() if text else None


def _home(text: str | None, home: Path) -> str | None:
    if text == "~" or (text or "").startswith(("~/", "~\\")):
        return str(home) + cast(str, text)[1:]
    return text


def _tools(block: _Block) -> tuple[tuple[str, ...], tuple[str, ...]]:
    include, exclude = block.get("include"), block.get("exclude")
    node, read, lenient = block.get("tools"), block.read, block.lenient
    if node is not None and node.is_map:
        include, exclude = node.items.get("include", include), node.items.get("exclude", exclude)
        for name, child in node.items.items():
            if name not in _TOOLS_KEYS:
                sentence = unknown_key(name, _TOOLS_KEYS)
                if lenient and slip_of(name, _TOOLS_KEYS, _TOOLS_KEYS) is None:
                    block.warn(child, sentence)
                else:
                    read.complain(child, sentence)
    elif node is not None and lenient and node.is_list:  # as in Copilot's files: the tools that are shown
        include = node
    elif node is not None:
        read.complain(node, "expected `include:` and `exclude:` below it, each a list of tool names")
    shown = read.texts(include)
    return (("*",) if shown is None else shown), read.texts(exclude) or ()


def _launches_ourselves(command: str | None, args: tuple[str, ...]) -> bool:
    """Whether this is the entry that a client's file has for us: following it would start us again, without end."""
    return any(OURSELVES.search(word) for word in (command or "", *args)) and "--config" not in args


def _seconds(block: _Block, key: str, default: float) -> float:
    node = block.get(key)
    seconds = block.read.number(node, default, 0, above=True)
    if node is not None and block.lenient and seconds >= _MILLISECONDS:
        block.warn(node, f"is {seconds:g} seconds; if milliseconds were meant, divide it by 1000")
    return seconds


def _inherit_env(block: _Block) -> bool | tuple[str, ...]:
    node = block.get("inherit_env")
    if node is not None and node.is_list:
        return block.read.texts(node) or ()
    return block.read.boolean(node, False, "expected true, false or a list of variables")


def _client_requests(block: _Block) -> tuple[str, ...]:
    node = block.get("client_requests")
    given = block.read.texts(node)
    if given is None or node is None:
        return ServerConfig.client_requests
    if unknown := [name for name in given if name not in CLIENT_REQUESTS]:
        block.read.complain(node, f"expected some of {', '.join(CLIENT_REQUESTS)}, not {unknown[0]!r}")
    return tuple(name for name in given if name in CLIENT_REQUESTS)


def _launch_hash(block: _Block, transport: Transport, file: Path) -> str:
    """sha256 of how the server is launched, before `${VAR}` is expanded: a rotated token keeps what is remembered."""

    def raw(name: str) -> object:
        node = block.get(name)
        if node is None:
            return None
        if node.is_map:
            return {k: v.text for k, v in node.items.items()}
        return [n.text for n in node.elements] if node.is_list else node.text

    def words(name: str) -> list[str]:
        node = block.get(name)
        return [] if node is None else [n.text for n in (node.elements if node.is_list else [node])]

    cwd = raw("cwd")
    if isinstance(cwd, str) and not cwd.startswith(("~", "$")):
        cwd = str(file.absolute().parent / cwd)
    launch: dict[str, object] = {
        "command": words("command") + words("args"),
        "cwd": cwd,
        "env": raw("env") or {},
        "headers": raw("headers") or {},
        "mode": raw("mode") or "auto",
        "transport": transport,
        "url": raw("url"),
    }
    return hashlib.sha256(json.dumps(launch, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
