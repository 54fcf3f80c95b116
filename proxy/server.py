"""The downstream MCP server, both protocol eras.

The SDK does handshakes, eras, sessions and transports. `tools/list` and `tools/call` are answered in a middleware
with raw dicts: the SDK's handler path would re-validate every result and drop what it does not know. What the
middleware then owes (the envelope of the client's era) is `adapt` and `_enveloped`.
"""

import hashlib
import json
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, cast

import anyio
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.connection import Connection
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from proxy import __version__
from proxy.dispatch import Caller
from proxy.errors import RpcError

log = logging.getLogger(__name__)

NAME = "narrow-waist"
COALESCE = 2.0
"""Seconds over which changes of our tool list are announced as one: each one costs the client a prompt cache."""
KNOWN_TTL = 300_000
"""`ttlMs` of `tools/list` once every server's list is known."""

Context = ServerRequestContext[Any, Any]


class House(Protocol):
    """What the server needs of the rest; `app.py` is it."""

    announce_changes: bool

    async def tools(self, client: str | None) -> list[dict[str, Any]]:
        """The tools shown to a client of that name, as raw dicts."""
        ...

    def row(self, client: str | None) -> str:
        """What the texts depend on: two clients of one row see the same bytes."""
        ...

    def instructions(self, client: str | None) -> str:
        """The server instructions for a client of that name."""
        ...

    @property
    def settled(self) -> bool:
        """Whether every server's list is known."""
        ...

    async def first_list(self) -> None:
        """Wait, within `first_list_wait`, for servers never seen before."""
        ...

    async def call(self, name: str, arguments: Any, meta: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Answer one `tools/call`; raises RpcError where an upstream's error is passed on."""
        ...


class ProxyServer:
    """One MCP server for all clients and transports."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._clients: weakref.WeakKeyDictionary[Connection, str] = weakref.WeakKeyDictionary()
        """Handshake-era connections, which are told of changes one by one, and the row each belongs to."""
        self._served: dict[str, tuple[str | None, str]] = {}
        """Row -> (a client of it, hash of the tool list it was last given or told of)."""
        self._changed = anyio.Event()
        server: Server[Any] = Server(
            NAME,
            version=__version__,
            title="Narrow Waist",
            on_list_tools=_answered_before,
            on_call_tool=_answered_before,
            on_list_resources=_no_resources,
            on_list_resource_templates=_no_templates,
            on_list_prompts=_no_prompts,
            on_subscriptions_listen=self._listen,
            # Else each tools/call over modern HTTP runs tools/list to look for x-mcp-header annotations.
            get_tool_input_schema=lambda _name: None,
            cache_hints={
                "server/discover": CacheHint(ttl_ms=KNOWN_TTL, scope="private"),
                "resources/list": CacheHint(ttl_ms=KNOWN_TTL, scope="private"),
                "resources/templates/list": CacheHint(ttl_ms=KNOWN_TTL, scope="private"),
                "prompts/list": CacheHint(ttl_ms=KNOWN_TTL, scope="private"),
            },
        )
        # Clients call it whatever we declare, and some give a server up that does not answer; the constructor's
        # argument would also declare the capability, with a warning that it is deprecated.
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)
        server.middleware.append(self._middleware)
        # The Streamable HTTP manager has no way to be told `tools_changed=True`; the instance is the smallest seam.
        options = partial(server.create_initialization_options, NotificationOptions(tools_changed=True))

        def with_changes(*_: object, **__: object) -> InitializationOptions:
            return options()

        server.create_initialization_options = with_changes
        self.sdk = server

    # Requests.

    async def _middleware(self, ctx: Context, call_next: CallNext) -> Any:
        context, method = ctx, ctx.method
        if method in ("initialize", "server/discover"):
            result = await call_next(context)
            if isinstance(result, dict) and (text := self._house.instructions(_client(context))):
                result = {**result, "instructions": text}
            return result
        connection = _connection(context)
        if method == "notifications/initialized":
            self._clients[connection] = self._house.row(_client(context))
        if context.request_id is None or not connection.initialize_accepted:
            return await call_next(context)
        if method == "tools/list":
            return await self._list(context)
        if method == "tools/call":
            return await self._call(context)
        return await call_next(context)

    async def _list(self, context: Context) -> dict[str, Any]:
        await self._house.first_list()
        client = _client(context)
        tools = await self._house.tools(client)
        self._served[self._house.row(client)] = (client, _hash(tools))
        result: dict[str, Any] = {"tools": tools}
        if _modern(context):
            ttl = KNOWN_TTL if self._house.settled else 0
            return self._enveloped({**result, "ttlMs": ttl, "cacheScope": "private"})
        return result

    async def _call(self, context: Context) -> dict[str, Any]:
        params = context.params or {}
        name = params.get("name")
        if not isinstance(name, str):
            raise MCPError(types.INVALID_PARAMS, "tools/call needs `name`, a string")
        given = params.get("_meta")
        meta: Mapping[str, Any] = cast(Mapping[str, Any], given) if isinstance(given, Mapping) else {}
        caller = Caller(client=_client(context), on_progress=_progress(context, meta))
        try:
            result = await self._house.call(name, params.get("arguments"), meta, caller)
        except RpcError as error:
            raise MCPError(error.code, error.message, error.data) from None
        except Exception:
            log.exception("tools/call %r failed inside the proxy", name)
            raise MCPError(types.INTERNAL_ERROR, "the proxy failed on this call; its log says why") from None
        modern = _modern(context)
        result = adapt(result, modern=modern)
        return self._enveloped(result) if modern else result

    def _enveloped(self, result: dict[str, Any]) -> dict[str, Any]:
        """The 2026-07-28 envelope: a result type, and who answered where the upstream did not say."""
        given = result.get("_meta")
        meta: dict[str, Any] = cast(dict[str, Any], given) if isinstance(given, dict) else {}
        if types.SERVER_INFO_META_KEY not in meta:
            meta = {**meta, types.SERVER_INFO_META_KEY: self.sdk.server_info_stamp}
        return {**result, "resultType": result.get("resultType") or "complete", "_meta": meta}

    # Changes.

    def close_streams(self) -> None:
        """End the open `subscriptions/listen` streams, which would hold up a shutdown."""
        self._listen.close()

    def catalog_changed(self) -> None:
        """Say that what clients see may have changed; `announce` finds out whether it has."""
        self._changed.set()

    async def announce(self) -> None:
        """Tell clients of changes to what they see, coalesced over `COALESCE` seconds; runs until cancelled."""
        while True:
            await self._changed.wait()
            await anyio.sleep(COALESCE)
            self._changed = anyio.Event()
            rows: set[str] = set()
            for row, (client, served) in self._served.items():
                now = _hash(await self._house.tools(client))
                if now != served:
                    self._served[row] = (client, now)
                    rows.add(row)
            if rows and self._house.announce_changes:
                log.info("the tool list has changed; telling the clients")
                await self._bus.publish(ToolsListChanged())
                for connection, row in list(self._clients.items()):
                    if row in rows:
                        await connection.notify("notifications/tools/list_changed", None)


def adapt(result: Mapping[str, Any], *, modern: bool) -> dict[str, Any]:
    """A shallow copy of an upstream's result as the client's era allows it on the wire; unknown fields stay.

    A handshake client gets no `resultType` and no `structuredContent` that is not an object. Where there is no
    content block, `structuredContent` is added as text first, because most hosts show a model nothing else. Blocks
    that no client could read (not an object, or text without a string) become text, so that the others arrive.
    """
    adapted: dict[str, Any] = dict(result)
    if adapted.get("resultType") == "input_required":
        asked = json.dumps(adapted.get("inputRequests") or {}, ensure_ascii=False)
        text = f"The tool asks for input that cannot be given through this proxy yet: {asked}"
        adapted = dict[str, Any]({"content": [{"type": "text", "text": text}], "isError": True})
    structured = adapted.get("structuredContent")
    content = adapted.get("content")
    if not isinstance(content, list):
        adapted["content"] = []
    if not adapted["content"] and structured is not None:
        adapted["content"] = [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}]
    elif any(map(_unreadable, cast(list[object], adapted["content"]))):
        adapted["content"] = [_readable(b) if _unreadable(b) else b for b in cast(list[object], adapted["content"])]
    if not modern:
        adapted.pop("resultType", None)
        if "structuredContent" in adapted and not isinstance(structured, dict):
            del adapted["structuredContent"]
    return adapted


def _unreadable(block: object) -> bool:
    if not isinstance(block, dict):
        return True
    fields = cast(dict[str, Any], block)
    return fields.get("type") == "text" and not isinstance(fields.get("text"), str)


def _readable(block: object) -> dict[str, Any]:
    """A block that no client could read, as text (failure report R6: one such block cost the whole result)."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, dict):
        fields = cast(dict[str, Any], block)
        text = fields.get("text")
        return {**fields, "text": "" if text is None else json.dumps(text, ensure_ascii=False)}
    return {"type": "text", "text": json.dumps(block, ensure_ascii=False)}


def _modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _connection(context: Context) -> Connection:
    """The connection behind a request: the SDK shows it to nobody, and changes can be announced on nothing else."""
    return context.session._connection  # pyright: ignore[reportPrivateUsage]


def _client(context: Context) -> str | None:
    """`clientInfo.name`: of the handshake, of the request's own envelope, or of the `initialize` now under way."""
    if (params := context.session.client_params) is not None:
        return params.client_info.name
    info = (context.params or {}).get("clientInfo")
    name = cast(Mapping[str, Any], info).get("name") if isinstance(info, Mapping) else None
    return name if isinstance(name, str) else None


def _progress(context: Context, meta: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Awaitable[None]] | None:
    """Passes an upstream's progress on under the client's own token; None where the client gave none."""
    token = meta.get("progressToken")
    if isinstance(token, bool) or not isinstance(token, str | int):
        return None
    channel = context.session._request_outbound  # pyright: ignore[reportPrivateUsage] - `report_progress` drops fields

    async def forward(params: Mapping[str, Any]) -> None:
        await channel.notify("notifications/progress", {**params, "progressToken": token})

    return forward


def _hash(tools: list[dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(tools).encode()).hexdigest()


async def _answered_before(_context: Context, _params: Any) -> Any:
    raise MCPError(types.INVALID_REQUEST, "the connection is not initialized")


async def _set_level(_context: Context, _params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


async def _no_resources(_context: Context, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[])


async def _no_templates(_context: Context, _params: Any) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=[])


async def _no_prompts(_context: Context, _params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[])
