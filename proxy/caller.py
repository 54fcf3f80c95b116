"""Who a call comes from: what a call carries of its caller, and what may be asked of them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

OnProgress = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Gets the params of a `notifications/progress` as the upstream sent them."""


LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of MCP's log messages, the least first."""
CLIENT_REQUESTS = ("elicitation", "sampling", "roots")
"""Capabilities of clients that a server may make use of in the middle of a call."""

Scope = tuple[str, ...]
"""Sorted names of the profiles that all apply to a caller; () where none does."""


@dataclass(frozen=True)
class Access:
    """What a caller has shown of themselves, and what they may see because of it."""

    scope: Scope = ()
    name: str | None = None
    """The name of the caller's token; None where no token of its own was shown."""


class Origin(Protocol):
    """The client behind a call, as an upstream may reach it."""

    @property
    def key(self) -> object:
        """Identity of the client's connection: calls over one connection share it. None for a stateless request."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared that it can do."""
        ...

    @property
    def stateless(self) -> bool:
        """2026-07-28: nothing can be asked during a call; questions travel in results (`input_required`)."""
        ...

    @property
    def log_level(self) -> str | None:
        """The least level of log messages that the client wants; None where it did not say."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send the client a request and return its result.

        Raises:
            RpcError: the client's own error, or it cannot be asked this: it has not declared that it can answer, or
                speaks the stateless protocol.
        """
        ...

    async def say(self, method: str, params: Mapping[str, Any]) -> None:
        """Send the client a notification that belongs to its call."""
        ...


NO_ANSWERS: Mapping[str, Any] = MappingProxyType({})


class Caller(NamedTuple):
    """Who calls, and how. A named tuple, because two are made for each call: a frozen dataclass costs 3 us more."""

    client: str | None = None
    """`clientInfo.name`."""
    bridge: bool = False
    """Through `tool_call`: an upstream's JSON-RPC error becomes a result that the model can read."""
    on_progress: OnProgress | None = None
    origin: Origin | None = None
    """None: nobody can be asked (the command line)."""
    answers: Mapping[str, Any] = NO_ANSWERS
    """`inputResponses` and `requestState` of a call that goes on after `input_required` (2026-07-28)."""
    access: Access | None = None
    """None: nothing was shown, and what applies to everybody applies."""
    reads_only: bool = False
    """Through the second call tool, which runs only tools that read."""
