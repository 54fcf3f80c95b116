"""The few errors there are.

    NarrowWaistError
    ├── ConfigError        the configuration cannot be used; the command line prints it and exits 2
    ├── RpcError           an upstream's JSON-RPC error, exactly as it came (code, message, data)
    ├── NotOffered         there is no resource, prompt or reference of that name, for this caller
    ├── Refused            we will not make this call; the text teaches the model what to do instead
    │   ├── RateLimited    the callers of a profile have made too many; nothing was looked up
    │   └── Unreadable     the arguments are no object; whoever knows the tool can show what they should be
    └── UpstreamFailure    an upstream did not answer (down, timed out, crashed, malformed answer)

`server.py` and `dispatch.py` turn all but the first two into what the client sees; nothing else catches them.
"""

from typing import Any

LIMITED = "refused: rate limit"
"""The outcome of a request whose name was never looked up."""


class NarrowWaistError(Exception):
    """Root of every error this package raises on purpose."""


class ConfigError(NarrowWaistError):
    """Raised when a configuration file cannot be used. The text names file, line, key and what was expected."""


class RpcError(NarrowWaistError):
    """Raised when an upstream answered with a JSON-RPC error; carries it unchanged."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message
        self.data = data


class NotOffered(NarrowWaistError):
    """Raised where a caller names a resource, a prompt or a reference that does not exist for them."""


class Refused(NarrowWaistError):
    """Raised when we refuse a call before anything was sent; its text is shown to the model as it is."""


class RateLimited(Refused):
    """Raised when a profile's limit is reached: before any name is looked up, so that it tells of none."""


class Unreadable(Refused):
    """Raised when a call names its tool and its arguments cannot be read; what is wrong is told before any look-up."""

    def __init__(self, name: str, reason: str, form: str) -> None:
        """`name`: of the tool, as sent; `reason`: a sentence; `form`: how any tool is called, for who knows no more."""
        super().__init__(f"{reason} {form}")
        self.name = name
        self.reason = reason


class UpstreamFailure(NarrowWaistError):
    """Raised when an upstream failed to answer a request.

    `may_have_run` is False only where it is certain that the upstream never got the request.
    """

    def __init__(self, server: str, reason: str, *, may_have_run: bool) -> None:
        super().__init__(f"server {server!r}: {reason}")
        self.server = server
        self.reason = reason
        self.may_have_run = may_have_run


def outcome_of(error: BaseException) -> str:
    """What the log and the audit say of a request that ended with this error."""
    match error:
        case RateLimited():
            return LIMITED
        case Refused() | NotOffered():
            return "refused"
        case UpstreamFailure():
            return f"failed: {error.reason}"
        case RpcError():
            return f"error {error.code}"
        case _:
            return "cancelled"
