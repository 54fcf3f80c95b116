"""House: what the server needs of the rest; `app.py` is it."""

from collections.abc import Mapping
from typing import Any, Protocol

from proxy.caller import Caller, Origin, Scope
from proxy.offers import Offers


class Upstreams(Protocol):
    """What clients may want to be told of by the servers behind us."""

    async def unsubscribe(self, server: str, uri: str) -> None:
        """One client less that wants to know of changes of a resource."""
        ...

    async def set_log_level(self, level: str) -> None:
        """The least level of log messages that any client wants."""
        ...


class House(Protocol):
    """Everything that a client can see or ask for, by who asks."""

    @property
    def announce_changes(self) -> bool:
        """Whether clients are told when what they are shown has changed."""
        ...

    @property
    def upstreams(self) -> Upstreams:
        """The servers behind us."""
        ...

    async def tools(self, client: str | None, scope: Scope | None) -> list[dict[str, Any]]:
        """The tools shown to a client of that name, as raw dicts."""
        ...

    def shown_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool that is shown to clients directly."""
        ...

    def row(self, client: str | None) -> str:
        """What the texts depend on: two clients of one row see the same bytes."""
        ...

    def instructions(self, client: str | None, scope: Scope | None) -> str:
        """The server instructions for a client of that name."""
        ...

    def settled(self, scope: Scope | None) -> bool:
        """Whether every server's list is known."""
        ...

    def offers(self, scope: Scope | None) -> Offers:
        """Resources and prompts."""
        ...

    async def first_list(self) -> None:
        """Wait, within `first_list_wait`, for servers never seen before."""
        ...

    async def call(self, name: str, arguments: Any, meta: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Answer one `tools/call`; raises RpcError where an upstream's error is passed on."""
        ...

    async def forward(
        self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """Answer one of `offers.KINDS`; raises NotOffered, Refused, RpcError or UpstreamFailure."""
        ...

    @property
    def wants_client(self) -> bool:
        """Whether `client_is_there` still matters."""
        ...

    def client_is_there(self, origin: Origin) -> None:
        """A client has said who it is."""
        ...
