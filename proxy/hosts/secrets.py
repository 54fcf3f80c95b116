"""Secrets of a launch -> `${VAR}` references, with a note of what to export. No value ever leaves here but in place.

And, for what is masked, the secrets that stand in the arguments and the address of a launch in so many words.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, quote, unquote_plus

from proxy.hosts.launches import Launch, variable_name

_NAMES = re.compile(
    r"(?:^|[_.-])(?:token|tokens|secret|secrets|password|passwd|passphrase|pass|pwd|pat|auth|authorization|credential"
    r"|credentials|cookie|session|dsn|signature|private)(?:$|[_.-])|api[_-]?key|access[_-]?key|apikey|(?:^|[_.-])key$"
    r"|private[_-]?key|secret[_-]?key|encryption[_-]?key|token$|secret$|password$",
    re.IGNORECASE,
)
"""Names whose values are secrets. `KEY_FILE`, `TOKEN_PATH` and the like name places and are excepted."""
_PLACES = re.compile(r"(?:file|path|dir|folder|name|url|uri|endpoint|host|id|type|mode|method|expiry|limit)$", re.I)
_LOOKS = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk)[-_](?:live|test|ant|proj|or)?[-_]?[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.?[\w-]*"
    r"|(?:lin_api|ntn|secret|hf|npm|pypi|dop_v1|shpat|figd|apify_api|tvly|fc|pat)[-_][A-Za-z0-9_-]{16,})"
)
"""Tokens known by their form."""
_RANDOM = re.compile(r"(?=[^\s]*[0-9])(?=[^\s]*[A-Za-z])[A-Za-z0-9+=_-]{32,}")
"""32 characters without a separator, letters and digits mixed: a key more often than not."""
_PLAIN_HEADERS = frozenset({"accept", "content-type", "user-agent", "accept-language", "mcp-protocol-version"})
_USERINFO = re.compile(r"(?<=://)(?P<user>[^/@:\s]*):(?P<password>[^@\s/]+)@")
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?", re.DOTALL)
_HEADER_ARGUMENT = re.compile(r"(?P<name>[A-Za-z][\w-]*):\s*(?P<value>.+)", re.DOTALL)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.+)", re.DOTALL)
"""As after `docker run -e`."""
_SURE = re.compile(
    r"(?:token|secret|password)$|(?:^|[_.-])(?:passwd|passphrase|pass|pwd|pat|authorization|credentials?|cookie|dsn)$"
    r"|(?:^|[_.-])(?:api|access|secret|private|encryption|auth)[_-]?key$",
    re.IGNORECASE,
)
"""Names whose values are secrets even where they read like words."""
_WORDS = re.compile(r"(?:[A-Za-z]{0,15}[0-9]{0,3}|[0-9]+)(?:[-_.:@](?:[A-Za-z]{0,15}[0-9]{0,3}|[0-9]+))*")
"""What may be a name, such as `azure-active-directory` or `task-manager-v2`: masking it would spoil other texts."""
_PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^/\\]+(?:[/\\].*|\.\w+)|(?:~|\.{1,2})[/\\].*", re.DOTALL)
_USER = re.compile(r"(?<=://)(?P<user>[^/@:\s]+)@")
_SCHEME = re.compile(r"(?P<scheme>Bearer|Basic|Token|ApiKey|Api-Key) +(?P<value>.+)", re.IGNORECASE | re.DOTALL)
_FLAGS = frozenset({"true", "false", "yes", "no", "on", "off", "0", "1", "none", "null"})

Hide = Callable[[str, str, str], str]
"""(value, wanted name of a variable, origin) -> the text with a reference to that variable."""


@dataclass(frozen=True)
class Export:
    """A variable to set, and where its value stands now."""

    variable: str
    origin: str
    """Such as `env.GITHUB_TOKEN`."""


class Vault:
    """Gives each secret the name of a variable, over all servers of one import."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """`environ`: a variable that already has the value of a secret keeps its name."""
        self._environ = environ
        self._values: dict[str, str] = {}

    def name(self, wanted: str, server: str, value: str) -> str:
        """The variable for `value`: `wanted` unless that stands for another value already."""
        base = variable_name(wanted)
        for name in (base, variable_name(f"{server}_{wanted}"), *(f"{base}_{n}" for n in range(2, 1_000))):
            known = self._values.get(name, self._environ.get(name))
            if known is None or known == value:
                self._values[name] = value
                return name
        raise AssertionError("a thousand secrets of one name")

    @property
    def values(self) -> Mapping[str, str]:
        """Variable -> secret, for the one file it came from and to be masked everywhere else."""
        return self._values

    def is_set(self, variable: str) -> bool:
        """Whether the environment has the variable."""
        return variable in self._environ


def without_secrets(launch: Launch, server: str, vault: Vault) -> tuple[Launch, list[Export]]:
    """The launch with references for its secrets, and what they and its own references need to be exported."""
    exports: list[Export] = []

    def hide(value: str, wanted: str, origin: str) -> str:
        scheme = _SCHEME.fullmatch(value)
        secret = scheme["value"] if scheme else value
        name = vault.name(wanted, server, secret)
        exports.append(Export(name, origin))
        return f"{scheme['scheme']} ${{{name}}}" if scheme else f"${{{name}}}"

    env = {
        name: hide(value, name, f"env.{name}")
        if _secret(name, value)
        else _address(value, name, name, f"env.{name}", hide)
        for name, value in launch.env.items()
    }
    headers = {
        name: value
        if name.lower() in _PLAIN_HEADERS or "${" in value
        else hide(value, f"{server}_{'token' if name.lower() == 'authorization' else name}", f"headers.{name}")
        for name, value in launch.headers.items()
    }
    args = tuple(_arguments(launch.args, server, hide))
    url = None if launch.url is None else _address(launch.url, server, f"{server}_key", "url", hide)
    found = replace(launch, env=env, headers=headers, args=args, url=url)
    first: dict[str, Export] = {}
    for export in (*exports, *_references(found)):
        first.setdefault(export.variable, export)
    return found, list(first.values())


def literal_secrets(args: Iterable[str], url: str | None) -> set[str]:
    """What of the arguments and the address of a launch looks like a secret, to be masked wherever we print.

    By the same signs as for an import, but for what reads like a word or a path: that would be masked everywhere.
    """
    found: set[str] = set()

    def note(value: str, wanted: str, origin: str) -> str:
        del origin
        scheme = _SCHEME.fullmatch(value)
        secret = scheme["value"] if scheme is not None else value
        sure = scheme is not None or _SURE.search(wanted.removeprefix("_"))
        if not _PATH.fullmatch(secret) and (sure or (_secret(wanted, secret) and not _WORDS.fullmatch(secret))):
            found.update((secret, unquote_plus(secret)))
        return ""

    words = tuple(args)
    for _ in _arguments(words, "", note):
        pass
    texts = words if url is None else (*words, url)
    for text in texts:
        _address(text, "", "_key", "", note)
        signs = [match[0] for match in _LOOKS.finditer(text)] + [match["user"] for match in _USER.finditer(text)]
        found.update(sign for sign in signs if not _WORDS.fullmatch(sign))
    return found


def _references(launch: Launch) -> Iterator[Export]:
    texts = [launch.command or "", *launch.args, launch.cwd or "", launch.url or ""]
    for text in [*texts, *launch.env.values(), *launch.headers.values()]:
        for match in re.finditer(r"(?<!\$)\$\{(?P<name>\w+)\}", text):
            yield Export(match["name"], "")


def _secret(name: str, value: str) -> bool:
    if not value or "${" in value:
        return False
    if _LOOKS.search(value) or _RANDOM.fullmatch(value):
        return True
    return bool(_NAMES.search(name)) and not _PLACES.search(name) and value.lower() not in _FLAGS


def _arguments(args: tuple[str, ...], server: str, hide: Hide) -> Iterator[str]:
    expect: str | None = None
    for number, arg in enumerate(args):
        origin = f"args[{number}]"
        option = _OPTION.fullmatch(arg)
        if expect is not None and option is None:
            name, expect = expect, None
            yield _value(name, arg, server, origin, hide)
            continue
        expect = None
        if option is not None and option["value"] is None:
            expect = option["name"]
            yield arg
        elif option is not None:
            yield arg[: option.start("value")] + _value(option["name"], option["value"], server, origin, hide)
        elif (given := _assigned(arg)) is not None:
            yield arg[: given.start("value")] + hide(given["value"], given["name"], origin)
        elif "${" not in arg and (_LOOKS.fullmatch(arg) or _RANDOM.fullmatch(arg)):
            yield hide(arg, f"{server}_key", origin)
        else:
            yield _address(arg, server, f"{server}_key", origin, hide)


def _value(name: str, value: str, server: str, origin: str, hide: Hide) -> str:
    """The value of an option without its secrets."""
    header = _HEADER_ARGUMENT.fullmatch(value) if name.lower() in ("header", "h") else None
    if header is not None:
        if header["name"].lower() in _PLAIN_HEADERS or "${" in value:
            return value
        return value[: header.start("value")] + hide(header["value"], f"{server}_{header['name']}", origin)
    if (given := _assigned(value)) is not None:
        return value[: given.start("value")] + hide(given["value"], given["name"], origin)
    if _secret(name, value):
        return hide(value, f"{server}_{name}", origin)
    return _address(value, server, f"{server}_key", origin, hide)


def _assigned(text: str) -> re.Match[str] | None:
    """`NAME=secret`, as `docker run -e` and `env` take it."""
    given = _ASSIGNMENT.fullmatch(text)
    return given if given is not None and _secret(given["name"], given["value"]) else None


def _address(text: str, prefix: str, wanted: str, origin: str, hide: Hide) -> str:
    """An address without the password and the keys that may stand in it; any other text as it is.

    `prefix` begins the names of variables for named parts, `wanted` is the name for a part of the path.
    """
    if "://" not in text or "${" in text:
        return text

    def password(match: re.Match[str]) -> str:
        return f"{match['user']}:{hide(match['password'], f'{prefix}_password', origin)}@"

    text = _USERINFO.sub(password, text)
    base, mark, query = text.partition("?")
    base = re.sub(
        r"(?<=/)[^/?#]+(?=/|$)",
        lambda m: hide(m[0], wanted, origin) if _LOOKS.fullmatch(m[0]) or _RANDOM.fullmatch(m[0]) else m[0],
        base,
    )
    if not mark:
        return base
    parts: list[str] = []
    for part in query.split("&"):
        name, equals, value = part.partition("=")
        pairs = parse_qsl(part)
        plain = pairs[0][1] if pairs else value
        # The value is kept as it is written in the address, so that the reference stands for the same bytes.
        secret = bool(equals) and _secret(name, plain) and quote(plain, safe="") and "${" not in value
        parts.append(f"{name}={hide(value, f'{prefix}_{name}', origin)}" if secret else part)
    return f"{base}?{'&'.join(parts)}"
