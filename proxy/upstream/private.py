"""Private: sessions of their own for clients of servers that cannot be shared (`session: per_client`).

A browser or a shell has state that two clients must not see of each other. Each client connection gets a connection
of its own, started at its first call and ended with the client.
"""

import asyncio
import weakref
from collections.abc import Callable

from anyio.abc import TaskGroup

from proxy.caller import Origin
from proxy.config import ServerConfig
from proxy.errors import UpstreamFailure
from proxy.upstream.calls import Calls
from proxy.upstream.connection import Connection


class PrivateSessions:
    """The private connections of all clients."""

    def __init__(self, make: Callable[[str], Connection]) -> None:
        """`make` gives a new connection to the server with a key."""
        self._make = make
        self._sessions: dict[tuple[str, int], tuple[Connection, Calls]] = {}
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
        found = self._sessions.get((server, id(key)))
        if found is None:
            assert self.tasks is not None
            connection = self._make(server)
            found = self._sessions[server, id(key)] = connection, Calls(connection)
            self.tasks.start_soon(connection.run)
            if key is not self:
                self._end_with(key, server, connection)
        return found[1]

    def _end_with(self, key: object, server: str, connection: Connection) -> None:
        """Have the session end with its client; until then nothing but the session itself keeps the connection."""
        loop, weak = asyncio.get_running_loop(), weakref.ref(connection)
        weakref.finalize(key, loop.call_soon_threadsafe, self._end, server, id(key), weak).atexit = False

    def _end(self, server: str, key: int, weak: "weakref.ref[Connection]") -> None:
        if (connection := weak()) is None:
            return
        if (found := self._sessions.get((server, key))) is not None and found[0] is connection:
            del self._sessions[server, key]
        connection.end()

    def take(self, config: ServerConfig) -> None:
        """All sessions with a server go on under another configuration of it."""
        for key, (connection, _) in list(self._sessions.items()):
            if key[0] == config.key:
                connection.take(config)
                self._sessions[key] = connection, Calls(connection)

    def leave(self, server: str, reason: str) -> None:
        """All sessions with a server end for that reason, once their calls have; the next call opens a new one."""
        for key in [key for key in self._sessions if key[0] == server]:
            connection, _ = self._sessions.pop(key)
            if self.tasks is not None:
                self.tasks.start_soon(connection.leave, reason)
