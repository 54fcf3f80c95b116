"""ProxyServer: one MCP server for all clients, transports and protocol eras.

The SDK does handshakes, eras, sessions and transports. Whatever comes from upstreams is answered in a middleware with
raw dicts: the SDK's handler path would re-validate every result and drop what it does not know. What the middleware
then owes is the envelope of the client's era.
"""

import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.connection import Connection
from mcp.server.context import CallNext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from proxy import __version__
from proxy.caller import LOG_LEVELS, Caller, Scope
from proxy.errors import NotOffered, Refused, RpcError, UpstreamFailure
from proxy.offers import Offers
from proxy.server.adapt import adapt
from proxy.server.changes import Changes
from proxy.server.client import Client, Context, access_of, client_name, connection_of, is_modern, request_meta
from proxy.server.door import StdioDoor
from proxy.server.house import House
from proxy.wire import writable

log = logging.getLogger(__name__)

NAME = "narrow-waist"
KNOWN_TTL = 300_000
"""`ttlMs` of lists once every server's list is known."""
PAGE = 1_000
"""Entries of resources and prompts a page; many clients read only the first."""
HANDSHAKE_ONLY = frozenset({"resources/subscribe", "resources/unsubscribe", "logging/setLevel"})
RESOURCE_NOT_FOUND = -32002
"""Of the handshake era; the stateless one says -32602."""
_AS_SENT = frozenset({"tools/call", "resources/read", "prompts/get"})
"""Methods whose result is a server's own. One that cannot be written ends an event stream without an answer."""
_AROUND = 4
"""Levels of a frame around its result, with one to spare."""


class ProxyServer:
    """The server that clients talk to."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.changes = Changes()
        self._listens: dict[Scope | None, ListenHandler] = {}
        self.door: StdioDoor | None = None
        """Set by stdio, before the client is served."""
        self.sessions: dict[str, tuple[Client, str | None]] = {}
        """Sessions of handshake clients over HTTP, by their ids."""
        self.on_session_end: Callable[[str], None] | None = None
        """Told the id of each such session that has ended."""
        self.on_stop: Callable[[], None] | None = None
        """Ends the streams that HTTP holds open."""
        self._levels: weakref.WeakKeyDictionary[Connection, str] = weakref.WeakKeyDictionary()
        hint = CacheHint(ttl_ms=KNOWN_TTL, scope="private")
        server: Server[Any] = Server(
            NAME,
            version=__version__,
            title="Narrow Waist",
            # What is registered is declared; the middleware answers before any of these is reached.
            on_list_tools=_not_reached,
            on_call_tool=_not_reached,
            on_list_resources=_not_reached,
            on_list_resource_templates=_not_reached,
            on_read_resource=_not_reached,
            on_subscribe_resource=_not_reached,
            on_unsubscribe_resource=_not_reached,
            on_list_prompts=_not_reached,
            on_get_prompt=_not_reached,
            on_completion=_not_reached,
            on_subscriptions_listen=self._listen_for,
            # Else each tools/call over modern HTTP runs tools/list to look for x-mcp-header annotations.
            get_tool_input_schema=house.shown_schema,
            cache_hints={"server/discover": hint},
        )
        # The constructor's argument for it warns that the capability is deprecated; old clients need it.
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _not_reached)
        server.middleware.append(self._middleware)
        # The Streamable HTTP manager has no way to be told of changes; the instance is the smallest seam.
        everything = NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True)
        options = partial(server.create_initialization_options, everything)

        def with_changes(*_: object, **__: object) -> InitializationOptions:
            return options()

        server.create_initialization_options = with_changes
        self.sdk = server
        self._answers = {
            "tools/list": self._list_tools,
            "tools/call": self._call,
            "resources/list": partial(self._list, "resources", "resources"),
            "resources/templates/list": partial(self._list, "resources", "resourceTemplates"),
            "resources/read": self._read,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": partial(self._list, "prompts", "prompts"),
            "prompts/get": self._prompt,
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
        }

    async def _middleware(self, ctx: Context, call_next: CallNext) -> Any:
        method = ctx.method
        if method in ("initialize", "server/discover"):
            result = await call_next(ctx)
            if method == "server/discover":
                self._is_there(ctx)
            if isinstance(result, dict) and (text := self._house.instructions(client_name(ctx), self._scope(ctx))):
                result = {**result, "instructions": text}
            return result
        connection = connection_of(ctx)
        if method == "notifications/initialized":
            self.changes.client(connection, self._house.row(client_name(ctx)), self._scope(ctx))
            self._is_there(ctx)
        answer = None if is_modern(ctx) and method in HANDSHAKE_ONLY else self._answers.get(method)
        if answer is None or ctx.request_id is None or not connection.initialize_accepted:
            return await call_next(ctx)
        if is_modern(ctx):
            self._is_there(ctx)
        result = await self._answered(answer(ctx), method, modern=is_modern(ctx))
        if method in _AS_SENT and not writable(result, _AROUND):
            raise MCPError(types.INTERNAL_ERROR, "the answer is nested too deeply")
        return result

    async def _answered(self, answer: Awaitable[dict[str, Any]], method: str, *, modern: bool) -> dict[str, Any]:
        """The result in the envelope of the client's era; every failure as the error that the client gets."""
        try:
            result = await answer
            if method == "tools/call":
                result = adapt(result, modern=modern)
        except RpcError as error:
            raise MCPError(error.code, error.message, error.data) from None
        except UpstreamFailure as failure:
            raise MCPError(types.INTERNAL_ERROR, str(failure), {"server": failure.server}) from None
        except Refused as refusal:
            raise MCPError(types.INVALID_REQUEST, str(refusal)) from None
        except MCPError:
            raise
        except Exception:
            log.exception("%s failed inside the proxy", method)
            raise MCPError(types.INTERNAL_ERROR, "the proxy failed on this request; its log says why") from None
        if modern:
            return self._enveloped(result)
        result.pop("resultType", None)
        return result

    def _enveloped(self, result: dict[str, Any]) -> dict[str, Any]:
        """The 2026-07-28 envelope: a result type, and who answered where the upstream did not say."""
        given = result.get("_meta")
        meta: dict[str, Any] = cast(dict[str, Any], given) if isinstance(given, dict) else {}
        if types.SERVER_INFO_META_KEY not in meta:
            meta = {**meta, types.SERVER_INFO_META_KEY: self.sdk.server_info_stamp}
        return {**result, "resultType": result.get("resultType") or "complete", "_meta": meta}

    def _is_there(self, context: Context) -> None:
        """A client has said who it is: what waited for that goes on."""
        door = self.door
        if self._house.wants_client or (door is not None and not door.is_open):
            client = Client.of(context, self._levels, standing=True)
            self._house.client_is_there(client)
            if door is not None and not door.is_open:
                door.open(client, client_name(context))
        connection = connection_of(context)
        if (session := connection.session_id) is not None and session not in self.sessions:
            client = Client.of(context, self._levels, standing=True)
            self.sessions[session] = (client, client_name(context))
            connection.exit_stack.callback(self._session_ended, session)

    def _session_ended(self, session: str) -> None:
        del self.sessions[session]
        if self.on_session_end is not None:
            self.on_session_end(session)

    def _caller(self, context: Context) -> Caller:
        return Client.of(context, self._levels).caller(client_name(context), context.params or {})

    def _scope(self, context: Context) -> Scope | None:
        """None of a caller that has shown nothing: its scope may be another one with the next configuration."""
        access = access_of(context)
        return None if access is None else access.scope

    def _offers(self, context: Context) -> Offers:
        return self._house.offers(self._scope(context))

    # Tools.

    async def _list_tools(self, context: Context) -> dict[str, Any]:
        await self._house.first_list()
        name, scope = client_name(context), self._scope(context)
        tools = await self._house.tools(name, scope)
        self.changes.served(("tools", self._house.row(name), scope), tools, partial(self._house.tools, name, scope))
        return self._cacheable(context, {"tools": tools})

    async def _call(self, context: Context) -> dict[str, Any]:
        _text(context, "name")
        params = context.params or {}
        return await self._house.call(
            params["name"], params.get("arguments"), request_meta(params), self._caller(context)
        )

    def call(
        self, params: Mapping[str, Any], meta: Mapping[str, Any], caller: Caller, *, modern: bool
    ) -> Awaitable[dict[str, Any]]:
        """Answer a `tools/call` that came through a door; raises MCPError."""
        # No coroutine itself: it would be one more that every call is resumed through.
        called = self._house.call(params["name"], params.get("arguments"), meta, caller)
        return self._answered(called, "tools/call", modern=modern)

    # Resources and prompts.

    async def _list(self, kind: str, key: str, context: Context) -> dict[str, Any]:
        scope = self._scope(context)

        async def current() -> Sequence[Any]:
            offers = self._house.offers(scope)
            return [offers.prompts] if kind == "prompts" else [offers.resources, offers.templates]

        await self._house.first_list()
        self.changes.served((kind, "", scope), await current(), current)
        offers = self._house.offers(scope)
        entries = {"resources": offers.resources, "resourceTemplates": offers.templates, "prompts": offers.prompts}[key]
        start = _cursor(context)
        result: dict[str, Any] = {key: list(entries[start : start + PAGE])}
        if start + PAGE < len(entries):
            result["nextCursor"] = str(start + PAGE)
        return self._cacheable(context, result)

    async def _read(self, context: Context) -> dict[str, Any]:
        uri = _text(context, "uri")
        try:
            result = await self._forward(context)
        except NotOffered:
            raise _no_resource(context, uri) from None
        return {"ttlMs": 0, "cacheScope": "private", **result} if is_modern(context) else result

    async def _prompt(self, context: Context) -> dict[str, Any]:
        name = _text(context, "name")
        try:
            return await self._forward(context)
        except NotOffered:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}") from None

    async def _complete(self, context: Context) -> dict[str, Any]:
        try:
            return await self._forward(context)
        except NotOffered as unknown:
            raise MCPError(types.INVALID_PARAMS, f"Unknown reference: {unknown}") from None

    async def _forward(self, context: Context) -> dict[str, Any]:
        params = context.params or {}
        result = await self._house.forward(context.method, params, request_meta(params), self._caller(context))
        if result.get("resultType") == "input_required" and not is_modern(context):
            raise MCPError(types.INVALID_REQUEST, "the server asks for input that this client cannot give")
        return result

    def _owner(self, context: Context) -> tuple[str, str]:
        uri = _text(context, "uri")
        if (found := self._offers(context).owner(uri)) is None:
            raise _no_resource(context, uri)
        return found

    # Subscriptions and logging.

    async def _subscribe(self, context: Context) -> dict[str, Any]:
        connection, uri = connection_of(context), _text(context, "uri")
        uris = self.changes.subscribed(connection)
        if uri not in uris:
            owner = self._offers(context).owner(uri)
            try:
                await self._forward(context)
            except NotOffered:
                raise _no_resource(context, uri) from None
            if not uris:
                connection.exit_stack.push_async_callback(self._forget, connection)
            if owner is not None:
                uris[uri] = owner
        return {}

    async def _unsubscribe(self, context: Context) -> dict[str, Any]:
        uris, uri = self.changes.subscribed(connection_of(context)), _text(context, "uri")
        if (owner := uris.pop(uri, None)) is not None:  # also of one that is not there any more
            await self._house.upstreams.unsubscribe(*owner)
        else:
            self._owner(context)
        return {}

    async def _forget(self, connection: Connection) -> None:
        uris = self.changes.subscribed(connection)
        while uris:
            await self._house.upstreams.unsubscribe(*uris.popitem()[1])

    async def _listen_for(self, context: Context, params: types.SubscriptionsListenRequestParams) -> Any:
        """A stateless client's stream of changes; the resources it names are subscribed to while it is open."""
        scope, caller = self._scope(context), self._caller(context)
        held: list[tuple[str, str]] = []
        try:
            for uri in map(str, params.notifications.resource_subscriptions or ()):
                owner = self._offers(context).owner(uri)
                with suppress(NotOffered):  # the others are followed
                    await self._house.forward("resources/subscribe", {"uri": uri}, {}, caller)
                    held += [owner] if owner is not None else []
            if (listen := self._listens.get(scope)) is None:
                listen = self._listens[scope] = ListenHandler(self.changes.bus(scope))
            return await listen(context, params)
        except Refused as refusal:
            raise MCPError(types.INVALID_REQUEST, str(refusal)) from None
        except (RpcError, UpstreamFailure) as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None
        finally:
            with anyio.move_on_after(1, shield=True):
                for server, uri in held:
                    await self._house.upstreams.unsubscribe(server, uri)

    async def _set_level(self, context: Context) -> dict[str, Any]:
        level = _text(context, "level")
        if level not in LOG_LEVELS:
            raise MCPError(types.INVALID_PARAMS, f"expected `level` to be one of {', '.join(LOG_LEVELS)}")
        self._levels[connection_of(context)] = level
        await self._house.upstreams.set_log_level(min(self._levels.values(), key=LOG_LEVELS.index))
        return {}

    # Changes.

    def _cacheable(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        if not is_modern(context):
            return result
        settled = self._house.settled(self._scope(context))
        return {**result, "ttlMs": KNOWN_TTL if settled else 0, "cacheScope": "private"}

    def catalog_changed(self) -> None:
        """Say that what clients see may have changed."""
        self.changes.dirty()

    async def announce(self) -> None:
        """Tell clients of changes to what they see; runs until cancelled."""
        await self.changes.announce(quiet=lambda: not self._house.announce_changes)

    def close_streams(self) -> None:
        """End the streams that clients hold open, `subscriptions/listen` and GET; they would hold up a shutdown."""
        for listen in self._listens.values():
            listen.close()
        if self.on_stop is not None:
            self.on_stop()


def _text(context: Context, key: str) -> str:
    value = (context.params or {}).get(key)
    if not isinstance(value, str):
        raise MCPError(types.INVALID_PARAMS, f"{context.method} needs `{key}`, a string")
    return value


def _no_resource(context: Context, uri: str) -> MCPError:
    code = types.INVALID_PARAMS if is_modern(context) else RESOURCE_NOT_FOUND
    return MCPError(code, f"Resource not found: {uri}", {"uri": uri})


def _cursor(context: Context) -> int:
    cursor = (context.params or {}).get("cursor")
    if cursor is None:
        return 0
    if not isinstance(cursor, str) or not cursor.isdecimal():
        raise MCPError(types.INVALID_PARAMS, "Invalid cursor")
    return int(cursor)


async def _not_reached(_context: Context, _params: Any) -> Any:
    raise MCPError(types.INVALID_REQUEST, "the connection is not initialized")
