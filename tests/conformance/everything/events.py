"""What the server says unasked: that a list or a resource has changed, in the way of each era."""

import weakref
from collections import Counter
from typing import Any, get_args

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

LEVELS = get_args(types.LoggingLevel)
"""From the least to the most severe."""
_LISTS: dict[str, tuple[Any, Any]] = {
    "tools": (ToolsListChanged, types.ToolListChangedNotification),
    "prompts": (PromptsListChanged, types.PromptListChangedNotification),
    "resources": (ResourcesListChanged, types.ResourceListChangedNotification),
}


class Events:
    """The clients that want to hear of changes, and how often each list has changed."""

    def __init__(self) -> None:
        self.revisions: Counter[str] = Counter()
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        # The SDK has no public name for "this client, also outside a request".
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._subscribers: dict[str, weakref.WeakSet[Any]] = {}
        self._levels: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def met(self, context: ServerRequestContext[Any, Any]) -> None:
        """Remember a client of the handshake era."""
        self._clients.add(context.session._connection)

    async def subscribe(
        self, context: ServerRequestContext[Any, Any], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        self._subscribers.setdefault(str(params.uri), weakref.WeakSet()).add(context.session._connection)
        return types.EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any, Any], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._subscribers.get(str(params.uri), weakref.WeakSet()).discard(context.session._connection)
        return types.EmptyResult()

    async def set_level(
        self, context: ServerRequestContext[Any, Any], params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        self._levels[context.session._connection] = params.level
        return types.EmptyResult()

    async def log(self, context: ServerRequestContext[Any, Any], level: types.LoggingLevel, data: str) -> None:
        """Log to the client whose request this is, if it wants that level (in the stateless era the SDK sees to it)."""
        least = self._levels.get(context.session._connection, "debug")
        if LEVELS.index(level) >= LEVELS.index(least):
            await context.session.send_log_message(level, data, "everything", related_request_id=context.request_id)

    async def list_changed(self, kind: str) -> None:
        """Change the list of `kind` (a description in it counts the changes) and tell everyone."""
        self.revisions[kind] += 1
        event, notification = _LISTS[kind]
        await self._bus.publish(event())
        for client in list(self._clients):
            await client.notify(notification().method, None)

    async def resource_updated(self, uri: str) -> None:
        """Tell the subscribers of `uri`."""
        await self._bus.publish(ResourceUpdated(uri=uri))
        for client in list(self._subscribers.get(uri, ())):
            await client.notify("notifications/resources/updated", {"uri": uri})
