"""The client behind a request, as the rest of the proxy sees it (`proxy.caller.Origin`)."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, cast

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY, METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from proxy.errors import RpcError

Context = ServerRequestContext[Any, Any]
Levels = MutableMapping[Connection, str]


def is_modern(context: Context) -> bool:
    """Whether the request is of the stateless era."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def connection_of(context: Context) -> Connection:
    """The connection behind a request: the SDK shows it to nobody, and changes can be announced on nothing else."""
    return context.session._connection  # pyright: ignore[reportPrivateUsage]


def client_name(context: Context) -> str | None:
    """`clientInfo.name`: of the handshake, of the request's own envelope, or of the `initialize` now under way."""
    if (params := context.session.client_params) is not None:
        return params.client_info.name
    info = (context.params or {}).get("clientInfo")
    name = cast(Mapping[str, Any], info).get("name") if isinstance(info, Mapping) else None
    return name if isinstance(name, str) else None


class Client:
    """The client of one request; what is asked and said travels on that request's own channel."""

    def __init__(self, context: Context, meta: Mapping[str, Any], levels: Levels, *, standing: bool = False) -> None:
        """`standing`: use the connection's own channel, which outlives the request."""
        self._context, self._meta, self._levels = context, meta, levels
        connection = connection_of(context)
        self.stateless = is_modern(context)
        # The public helpers of the session re-model what they send and drop what they do not know.
        request = context.session._request_outbound  # pyright: ignore[reportPrivateUsage]
        self._channel = connection.outbound if standing else request

    @property
    def key(self) -> object:
        """The connection's channel, shared by all its requests; None for a stateless request over HTTP."""
        connection = connection_of(self._context)
        return connection.outbound if connection.has_standalone_channel else None

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared, in the handshake or with this request."""
        declared = self._meta.get(CLIENT_CAPABILITIES_META_KEY)
        if isinstance(declared, Mapping):
            return cast(Mapping[str, Any], declared)
        typed = self._context.session.client_capabilities
        return typed.model_dump(by_alias=True, mode="json", exclude_none=True) if typed is not None else {}

    @property
    def log_level(self) -> str | None:
        """The level in the request's `_meta`, or the one set for the connection."""
        if self.stateless:
            level = self._meta.get(LOG_LEVEL_META_KEY)
            return level if isinstance(level, str) else None
        return self._levels.get(connection_of(self._context))

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send the client a request; raises RpcError for its error, or where it cannot be asked."""
        try:
            return await self._channel.send_raw_request(method, params)
        except NoBackChannelError:
            raise RpcError(METHOD_NOT_FOUND, f"{method}: this client cannot be asked during a call") from None
        except MCPError as error:
            raise RpcError(error.code, error.message, error.data) from None

    async def say(self, method: str, params: Mapping[str, Any]) -> None:
        """Send the client a notification."""
        await self._channel.notify(method, params)

    def progress(self) -> Callable[[Mapping[str, Any]], Awaitable[None]] | None:
        """Passes an upstream's progress on under the client's own token; None where the client gave none."""
        token = self._meta.get("progressToken")
        if isinstance(token, bool) or not isinstance(token, str | int):
            return None

        async def forward(params: Mapping[str, Any]) -> None:
            await self._channel.notify("notifications/progress", {**params, "progressToken": token})

        return forward
