"""Why a connection could not be made, in words, and whether trying again soon can help."""

from typing import cast

from proxy.errors import NarrowWaistError


class ConnectError(NarrowWaistError):
    """Raised while connecting. `permanent`: only the person can mend it (missing command, refused login)."""

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.permanent = permanent


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
    return str(error) or type(error).__name__
