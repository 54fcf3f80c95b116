"""Telling: notifications to many handshake clients, of which one that does not read holds up no other."""

import asyncio
import logging

from mcp.server.connection import Connection

log = logging.getLogger(__name__)


class Telling:
    """What is on its way to each client, in order; what waits already is not said twice."""

    def __init__(self) -> None:
        self._waiting: dict[Connection, dict[tuple[str, str | None], None]] = {}
        """Of the clients that are being told something. A client has few lists and follows so many resources."""
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, connection: Connection, method: str, uri: str | None = None) -> None:
        """Send a notification, about the resource `uri` if it is about one; returns at once."""
        if (waiting := self._waiting.get(connection)) is not None:
            waiting[method, uri] = None
            return
        self._waiting[connection] = {(method, uri): None}
        task = asyncio.get_running_loop().create_task(self._send(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, connection: Connection) -> None:
        waiting = self._waiting[connection]
        try:
            while waiting:
                method, uri = first = next(iter(waiting))
                del waiting[first]
                await connection.notify(method, {"uri": uri} if uri is not None else None)
        except Exception as error:
            log.debug("a client could not be told of a change: %s", error)
        finally:
            del self._waiting[connection]
