"""Environment variables and the keyring: `${VAR}` and `${keyring:NAME}` in strings, and what upstreams inherit."""

import importlib
import re
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase

from proxy.config.settings import ServerConfig

OWN_TOKEN = "NARROW_WAIST_TOKEN"
"""The variable that holds the token of our own front door; no upstream ever gets it."""

OWN_PYTHON = "NARROW_WAIST_PYTHON"
"""`${NARROW_WAIST_PYTHON}` is the interpreter that runs us unless it is set, for servers installed next to us."""

INHERITED = (
    "PATH", "HOME", "USER", "LANG", "LC_*", "TZ", "TMPDIR", "SHELL", "TERM", "XDG_*", "*_PROXY", "*_proxy",
    "SSL_CERT_*", "NODE_EXTRA_CA_CERTS", "SSH_AUTH_SOCK",
)  # fmt: skip
"""What every stdio upstream inherits: enough to find programs, homes, proxies and certificates, and no secrets."""

_WINDOWS = (
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAM*", "SYSTEM*", "TEMP", "TMP",
)  # fmt: skip
"""Without these most programs do not even start on Windows."""

_REFERENCE = re.compile(
    r"\$\$\{"  # $${ is an escaped ${
    r"|\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:[^{}]|\$\{[^{}]*\})*))?\}"
    r"|\$\{(?P<other>[a-z]+:[^{}]*)\}"
)

_BARE = re.compile(r"\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)")

KEYRING = "keyring:"
KEYRING_SERVICE = "narrow-waist"
"""The service under which a person stores values: `keyring set narrow-waist NAME`."""

NOT_SECRET = frozenset({"HOME", "USER", "PATH", "LANG", "TZ", "TMPDIR", "SHELL", "TERM", "PWD", OWN_PYTHON})
"""Variables whose values would only make our own log lines unreadable when masked."""


class Expansion:
    """What happened while the strings of one block were expanded."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        """Why a reference could not be replaced, one sentence each."""
        self.values: set[str] = set()
        """Values that came from references and count as secrets."""


def expand(text: str, environ: Mapping[str, str], outcome: Expansion) -> str:
    """`text` with `${VAR}`, `${VAR:-default}`, `${env:VAR}` and `${keyring:NAME}` replaced.

    `$${` stands for a literal `${`.
    As in a shell, `:-` also replaces a variable that is set but empty. A variable that is not set becomes ""
    and is told in `outcome.missing`.
    """
    if "${" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        name, default, other = match["name"], match["default"], match["other"]
        if other is not None and other.startswith(KEYRING):
            secret, reason = from_keyring(other.removeprefix(KEYRING))
            if reason:
                outcome.missing.append(reason)
            outcome.values.add(secret)
            return secret
        if other is not None:
            outcome.missing.append(
                f"${{{other}}} asks another client for a value; set an environment variable and write ${{VARIABLE}}"
            )
            return ""
        if name is None:
            return "${"
        if name == OWN_TOKEN:
            outcome.missing.append(f"{name} is this proxy's own token and is never given to a server")
            return ""
        found = environ.get(name)
        if default is not None and not found:
            found = expand(default, environ, outcome)
        if found is None:
            outcome.missing.append(
                f"the environment variable {name} is not set; set it, or write ${{{name}:-a default}}"
            )
            return ""
        if name not in NOT_SECRET:
            outcome.values.add(found)
        return found

    return _REFERENCE.sub(value, text)


def doubt(text: str, environ: Mapping[str, str]) -> str:
    """Why a value that stays as it is written may have been meant as a reference; "" where nothing speaks for it.

    The value itself may be a secret (`$ecret`), so a name is shown only where it reads like that of a variable.
    """
    bare = _BARE.fullmatch(text)
    if bare is not None and (bare["name"].isupper() or bare["name"] in environ):
        return f"{text} stays as it is written; for the variable's value write ${{{bare['name']}}}"
    _, opened, rest = _REFERENCE.sub("", text).rpartition("${")
    if opened and "}" not in rest:
        return "has a `${` without its `}` and stays as it is written; close it, or write `$${` for a plain `${`"
    return ""


def from_keyring(name: str) -> tuple[str, str]:
    """The value that the system's keyring holds for `name`, and why there is none ("" where there is)."""
    try:
        # An optional dependency, and a slow import: only for those who use it.
        value: object = importlib.import_module("keyring").get_password(KEYRING_SERVICE, name)
    except ImportError:
        return "", f"${{keyring:{name}}} needs the package keyring; install narrow-waist[keyring]"
    except Exception as error:  # every backend has errors of its own
        return "", f"${{keyring:{name}}}: the keyring cannot be read ({type(error).__name__})"
    if not isinstance(value, str):
        return "", f"the keyring has no {name!r}; store it with: keyring set {KEYRING_SERVICE} {name}"
    return value, ""


def child_environment(server: ServerConfig, environ: Mapping[str, str], platform: str = sys.platform) -> dict[str, str]:
    """The whole environment of a stdio upstream's process: what it may inherit from `environ`, then its own `env`.

    `inherit_env: true` inherits everything, a list adds names (globs are understood); our own token never passes.
    """
    if server.inherit_env is True:
        allowed: tuple[str, ...] = ("*",)
    else:
        allowed = INHERITED + (_WINDOWS if platform == "win32" else ()) + tuple(server.inherit_env or ())
    inherited = {
        name: value
        for name, value in environ.items()
        # A value that starts with "()" is an exported shell function, which no program needs and some shells run.
        if name != OWN_TOKEN and not value.startswith("()") and any(fnmatchcase(name, glob) for glob in allowed)
    }
    own = {k: v for k, v in server.env.items() if k != OWN_TOKEN or v != environ.get(OWN_TOKEN)}
    return inherited | own
