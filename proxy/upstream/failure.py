"""Why a connection could not be made, in words, and whether trying again soon can help."""

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from proxy.config import ServerConfig
from proxy.errors import NarrowWaistError, UpstreamFailure
from proxy.upstream.ambient import certificates_at_fault, proxy_at_fault


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


NEEDS_LOGIN = "needs a login: "
"""What the reason of a LoginNeeded begins with."""


class LoginNeeded(ConnectError):
    """Raised where a server wants a login and there is none that it takes; nothing was executed."""

    def __init__(self, key: str, why: str = "") -> None:
        """`key`: of the server; `why`: what is wrong with the login that is kept."""
        command = f"narrow-waist login {shlex.quote(key)}"
        super().__init__(f"{NEEDS_LOGIN}{command}" + (f" ({why})" if why else ""), permanent=True)


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
    return proxy_at_fault(error) or str(error) or type(error).__name__


def explained(error: ConnectError | UpstreamFailure, config: ServerConfig, *, login: bool) -> tuple[str, bool]:
    """Why a server could not be spoken to, with what to do about it, and whether only the person can mend it.

    `login`: whether `narrow-waist login` could be what it needs.
    """
    reason = error.reason
    permanent = (isinstance(error, ConnectError) and error.permanent) or reason.startswith(NEEDS_LOGIN)
    if reason.startswith(("HTTP 401", "HTTP 403")):
        permanent = True
        how = f"narrow-waist login {shlex.quote(config.key)}, or " if login else ""
        reason += f" (check the login this server needs: {how}`headers` of server {config.key!r} in the config)"
    return reason, permanent
