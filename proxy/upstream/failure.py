"""Why a connection could not be made, in words, and whether trying again soon can help."""

import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import PurePath
from typing import cast

from proxy.config import ServerConfig
from proxy.errors import NarrowWaistError, UpstreamFailure
from proxy.upstream.ambient import certificates_at_fault, proxy_at_fault, tls_at_fault


class ConnectError(NarrowWaistError):
    """Raised while connecting. `permanent`: only the person can mend it (missing command, refused login)."""

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.permanent = permanent


@contextmanager
def naming_certificates() -> Generator[None]:
    """Around what makes an HTTP client: raises ConnectError where our environment names certificates that are none."""
    try:
        yield
    except OSError as error:
        if (reason := certificates_at_fault(error)) is None:
            raise
        raise ConnectError(reason, permanent=True) from None


NO_STREAM = "no event stream: "
"""What the reason begins with where a server does not speak the older HTTP+SSE."""


class LoginNeeded(ConnectError):
    """Raised where a server wants a login and there is none that it takes; nothing was executed."""

    def __init__(self, key: str, why: str = "") -> None:
        """`key`: of the server; `why`: what is wrong with the login that is kept."""
        super().__init__(f"needs a login: {login_command(key)}" + (f" ({why})" if why else ""), permanent=True)


class ScopeNeeded(ConnectError):
    """Raised where the login does not reach as far as one request; the server takes it for others, and nothing was
    executed.
    """

    def __init__(self, scopes: tuple[str, ...], step: str) -> None:
        """`scopes`: what it lacks, as far as the server says; `step`: what a person can do."""
        lacks = f"the scope {' '.join(scopes)}" if scopes else "a scope that the server does not name"
        super().__init__(f"its login lacks {lacks}: {step}", permanent=True)


def login_command(key: str) -> str:
    """What a person types to log in to the server `key`."""
    return f"narrow-waist login {shlex.quote(key)}"


def needs_login(error: Exception | None) -> bool:
    """Whether it is a login that only a person can make."""
    return isinstance(error, LoginNeeded | ScopeNeeded)


def explained(
    error: ConnectError | UpstreamFailure, key: str, has_login: bool, after: Callable[[str], str]
) -> ConnectError:
    """The error of a connection to the server `key` that could not be set up; `after` adds its last words."""
    reason, permanent = error.reason, isinstance(error, ConnectError) and error.permanent
    if told := with_login(reason, key, has_login):
        reason, permanent = told, True
    return ConnectError(after(reason), permanent=permanent)


def with_login(reason: str, key: str, has_login: bool) -> str | None:
    """`reason` with what a person can do where the server `key` refuses its login; None where that is not it."""
    if not reason.startswith(("HTTP 401", "HTTP 403")):
        return None
    how = f"{login_command(key)}, or " if has_login else ""
    return f"{reason} (check the login this server needs: {how}`headers` of server {key!r} in the config)"


FETCHERS = frozenset({"bunx", "docker", "npx", "pipx", "pnpm", "pnpx", "podman", "uv", "uvx", "yarn"})
"""Commands that fetch what they run."""


def late(config: ServerConfig) -> str:
    """That a server was not ready in time. One that is fetched may need more the first time; ended, it starts over."""
    reason = f"not ready within {config.connect_timeout:g} s (connect_timeout)"
    command = PurePath(config.command or "").stem
    if command not in FETCHERS:
        return reason
    return f"{reason}; if {command} was still downloading, run it once by hand or give it more connect_timeout"


def single(error: Exception) -> Exception:
    """What a transport's task group has wrapped: the one error inside, where there is just one."""
    found: Exception = error
    while isinstance(found, ExceptionGroup):
        inside = cast("ExceptionGroup[Exception]", found).exceptions
        if len(inside) != 1:
            return error
        found = inside[0]
    return found


def describe(error: BaseException) -> str:
    """One line for any failure; groups of one are opened."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return "; ".join(dict.fromkeys(describe(e) for e in group.exceptions))
    return proxy_at_fault(error) or tls_at_fault(error) or str(error) or type(error).__name__
