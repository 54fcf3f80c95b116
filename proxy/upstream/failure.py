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
    while isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        if len(group.exceptions) != 1:
            break
        error = group.exceptions[0]
    return error


def describe(error: BaseException) -> str:
    """One line for any failure; groups of one are opened."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return "; ".join(dict.fromkeys(describe(e) for e in group.exceptions))
    return str(error) or type(error).__name__
