"""The client behind a request, as the rest of the proxy sees it (`proxy.caller.Origin`)."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, cast

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.dispatcher import CallOptions, Outbound
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY, METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from proxy.caller import CLIENT_REQUESTS, NO_ANSWERS, Access, Caller
from proxy.errors import RpcError

Context = ServerRequestContext[Any, Any]
ACCESS = "narrow_waist.access"
"""Key of an HTTP request's ASGI scope under which `serving` says what the caller may see (`proxy.caller.Access`)."""
Levels = MutableMapping[Connection, str]


class _Nowhere:
    """The channel of a client that nothing can be sent to but the answer."""

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        pass


_NOWHERE = _Nowhere()


def is_modern(context: Context) -> bool:
    """Whether the request is of the stateless era."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def connection_of(context: Context) -> Connection:
    """The connection behind a request: the SDK shows it to nobody, and changes can be announced on nothing else."""
    return context.session._connection  # pyright: ignore[reportPrivateUsage]


def access_of(context: Context) -> Access | None:
    """What the caller of an HTTP request has shown; None where nothing is guarded, and over stdio."""
    given: Any = context.request.scope.get(ACCESS) if context.request is not None else None
    return given if isinstance(given, Access) else None


def client_name(context: Context) -> str | None:
    """`clientInfo.name`: of the handshake, of the request's own envelope, or of the `initialize` now under way."""
    if (params := context.session.client_params) is not None:
        return params.client_info.name
    info = (context.params or {}).get("clientInfo")
    name = cast(Mapping[str, Any], info).get("name") if isinstance(info, Mapping) else None
    return name if isinstance(name, str) else None


class Client:
    """The client of one request; what is asked and said travels on the channel it was made with."""

    def __init__(
        self,
        channel: Outbound,
        key: object,
        meta: Mapping[str, Any],
        *,
        stateless: bool,
        declared: Callable[[], Mapping[str, Any]],
        level: Callable[[], str | None],
        access: Access | None = None,
    ) -> None:
        """`key`: the connection's own channel, shared by all its requests; None for a stateless request over HTTP.

        `declared` and `level` give what the handshake, or `logging/setLevel`, said of the connection.
        """
        self.key, self.stateless, self.access = key, stateless, access
        self._channel, self._meta, self._declared, self._level = channel, meta, declared, level

    @classmethod
    def of(cls, context: Context, levels: Levels, *, standing: bool = False) -> "Client":
        """The client behind a request of the SDK; `standing`: on the channel that outlives the request."""
        connection, session = connection_of(context), context.session

        def declared() -> Mapping[str, Any]:
            typed = session.client_capabilities
            return typed.model_dump(by_alias=True, mode="json", exclude_none=True) if typed is not None else {}

        # The public helpers of the session re-model what they send and drop what they do not know.
        request = session._request_outbound  # pyright: ignore[reportPrivateUsage]
        return cls(
            connection.outbound if standing else request,
            connection.outbound if connection.has_standalone_channel else None,
            request_meta(context.params),
            stateless=is_modern(context),
            declared=declared,
            level=lambda: levels.get(connection),
            access=access_of(context),
        )

    @classmethod
    def stateless_request(cls, meta: Mapping[str, Any], access: Access | None) -> "Client":
        """The client of a stateless request that can be answered with one object: nothing can be said or asked."""
        return cls(_NOWHERE, None, meta, stateless=True, declared=dict[str, Any], level=lambda: None, access=access)

    def with_meta(self, meta: Mapping[str, Any]) -> "Client":
        """The same client, behind another request."""
        if not meta and not self._meta:
            return self
        return Client(
            self._channel,
            self.key,
            meta,
            stateless=self.stateless,
            declared=self._declared,
            level=self._level,
            access=self.access,
        )

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared, in the handshake or with this request."""
        declared = self._meta.get(CLIENT_CAPABILITIES_META_KEY)
        return cast(Mapping[str, Any], declared) if isinstance(declared, Mapping) else self._declared()

    @property
    def log_level(self) -> str | None:
        """The level in the request's `_meta`, or the one set for the connection."""
        if self.stateless:
            level = self._meta.get(LOG_LEVEL_META_KEY)
            return level if isinstance(level, str) else None
        return self._level()

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send the client a request; raises RpcError for its error, or where it cannot be asked.

        What it has not declared it is not asked: it might never answer, and over HTTP no stream may be open for it.
        """
        if self.stateless:
            why = "the client of this call speaks the stateless protocol, in which it cannot be asked during a call"
            raise RpcError(METHOD_NOT_FOUND, f"{method}: {why}")
        capability = method.partition("/")[0]
        if capability in CLIENT_REQUESTS and capability not in self.capabilities:
            raise RpcError(METHOD_NOT_FOUND, f"{method}: the client of this call does not support {capability}")
        try:
            return await self._channel.send_raw_request(method, params)
        except NoBackChannelError:
            raise RpcError(METHOD_NOT_FOUND, f"{method}: this client cannot be asked during a call") from None
        except MCPError as error:
            raise RpcError(error.code, error.message, error.data) from None

    async def say(self, method: str, params: Mapping[str, Any]) -> None:
        """Send the client a notification."""
        await self._channel.notify(method, params)

    def caller(self, name: str | None, params: Mapping[str, Any]) -> Caller:
        """The client as the caller of a request with these params."""
        answers = NO_ANSWERS
        if "inputResponses" in params or "requestState" in params:
            answers = {key: params[key] for key in ("inputResponses", "requestState") if key in params}
        return Caller(name, on_progress=self.progress(), origin=self, answers=answers, access=self.access)

    def progress(self) -> Callable[[Mapping[str, Any]], Awaitable[None]] | None:
        """Passes an upstream's progress on under the client's own token; None where the client gave none."""
        token = self._meta.get("progressToken")
        if isinstance(token, bool) or not isinstance(token, str | int):
            return None

        async def forward(params: Mapping[str, Any]) -> None:
            await self._channel.notify("notifications/progress", {**params, "progressToken": token})

        return forward


def request_meta(params: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A request's `_meta`, empty where it is missing or not an object."""
    given = (params or {}).get("_meta")
    return cast(Mapping[str, Any], given) if isinstance(given, dict) else {}
