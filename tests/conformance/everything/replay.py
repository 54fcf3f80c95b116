"""An event store in memory: what a client missed while it was away (2025-11-25, SEP-1699)."""

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage

KEPT = 10_000


class Replay(EventStore):
    """The last events of all streams, numbered."""

    def __init__(self) -> None:
        self._events: dict[int, tuple[StreamId, JSONRPCMessage | None]] = {}
        self._next = 0

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self._next += 1
        self._events[self._next] = stream_id, message
        self._events.pop(self._next - KEPT, None)
        return str(self._next)

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        last = int(last_event_id) if last_event_id.isdecimal() else -1
        if last not in self._events:
            return None
        stream, _ = self._events[last]
        for number, (of_stream, message) in sorted(self._events.items()):
            if number > last and of_stream == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream
