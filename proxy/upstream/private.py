"""Private: sessions of their own for clients of servers that cannot be shared (`session: per_client`).

A browser or a shell has state that two clients must not see of each other. Each client connection gets a connection
of its own, started at its first call and ended with the client.
"""

import asyncio
import weakref
from collections.abc import Callable, Mapping

import anyio
from anyio.abc import TaskGroup

from proxy.caller import Origin
from proxy.errors import UpstreamFailure
from proxy.upstream.calls import Calls
from proxy.upstream.connection import Connection


class PrivateSessions:
    """The private connections of all clients."""

    def __init__(self, make: Callable[[str], Connection]) -> None:
        """`make` gives a new connection to the server with a key."""
        self._make = make
        self._calls: dict[tuple[str, int], Calls] = {}
        self.tasks: TaskGroup | None = None
        """Where the connections run; set by the fleet."""

    def calls(self, server: str, origin: Origin | None) -> Calls:
        """The calls of the client's own session.

        Raises:
            UpstreamFailure: the client has no connection that a session could belong to.
        """
        key = origin.key if origin is not None else self
        if key is None:
            reason = (
                "it keeps a session for each client (`session: per_client`), and stateless HTTP requests have no "
                "session; connect over stdio, or set `session: shared` for this server"
            )
            raise UpstreamFailure(server, reason, may_have_run=False)
        found = self._calls.get((server, id(key)))
        if found is None:
            assert self.tasks is not None
            connection, scope = self._make(server), anyio.CancelScope()
            found = self._calls[server, id(key)] = Calls(connection)
            self.tasks.start_soon(_run, connection, scope)
            if key is not self:
                loop = asyncio.get_running_loop()
                weakref.finalize(key, loop.call_soon_threadsafe, self._end, server, id(key), scope).atexit = False
        return found

    def _end(self, server: str, key: int, scope: anyio.CancelScope) -> None:
        self._calls.pop((server, key), None)
        scope.cancel()

    @property
    def count(self) -> Mapping[str, int]:
        """Server key -> how many private sessions there are."""
        counts: dict[str, int] = {}
        for server, _ in self._calls:
            counts[server] = counts.get(server, 0) + 1
        return counts


async def _run(connection: Connection, scope: anyio.CancelScope) -> None:
    with scope:
        await connection.run()
