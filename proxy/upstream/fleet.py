"""Fleet: all upstreams together, and what they offer."""

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup

from proxy.caller import Caller
from proxy.catalog import Catalog
from proxy.config import ServerConfig, Settings
from proxy.errors import RpcError, UpstreamFailure
from proxy.offers import Offer, Offers, prefixed
from proxy.tool import Tool
from proxy.upstream.calls import Calls
from proxy.upstream.connection import Connection
from proxy.upstream.discovery import Found
from proxy.upstream.failure import describe
from proxy.upstream.lists import unfollow
from proxy.upstream.private import PrivateSessions
from proxy.upstream.questions import Clients
from proxy.upstream.reaper import Reaper
from proxy.upstream.snapshot import Snapshot
from proxy.upstream.starts import Starts

log = logging.getLogger(__name__)


class Fleet:
    """Connects every enabled server in the background and keeps the current catalog and offers, swapped whole.

    `take` gives it other servers while it runs.
    """

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], snapshot: Snapshot, clients: Clients | None = None
    ) -> None:
        """`clients`: who may be asked what a server wants to know; None: nobody."""
        self._environ, self._snapshot, self._reaper, self._starts = environ, snapshot, Reaper(), Starts()
        self.clients = clients or Clients()
        self._listeners: list[Callable[[], None]] = []
        self._updated: list[Callable[[str], None]] = []
        self._tasks: TaskGroup | None = None
        """Where the connections run."""
        self._log_level: str | None = None
        self._configs: Mapping[str, ServerConfig] = {}
        self.connections: Mapping[str, Connection] = {}
        self._calls: Mapping[str, Calls] = {}
        self._followed: dict[str, dict[str, int]] = {}
        """Server that is no longer configured -> what its clients follow: they do so still when it comes back."""
        self.catalog = Catalog()
        self._private = PrivateSessions(lambda key: self._connection(key, Snapshot(None), lambda _: None))
        self.take(settings)

    def take(self, settings: Settings) -> None:
        """Have these servers from now on.

        What a server's process or session knows nothing of changes without its notice. Of one that is configured
        otherwise, or is gone, the calls in flight get their answers within 10 s; the new one is started beside it.
        """
        before, configs = self.connections, self._configs
        self._configs = {config.key: config for config in settings.servers if config.enabled}
        self.connections = {key: self._taken(before.get(key), config) for key, config in self._configs.items()}
        for key, connection in before.items():
            if (now := self.connections.get(key)) is not connection:
                self._leave(connection, "its configuration has changed" if now else "it is no longer configured")
            if now is None and connection.lists.subscribed:
                self._followed[key] = connection.lists.subscribed
        kept = {key for key, c in self.connections.items() if c is before.get(key) and c.config == configs[key]}
        self._calls = {k: self._calls[k] if k in kept else Calls(c) for k, c in self.connections.items()}
        self._parts = {key: connection.lists.part for key, connection in self.connections.items()}
        self._gathered()

    def _taken(self, connection: Connection | None, config: ServerConfig) -> Connection:
        """The connection to a server under this configuration: the one there is, where that can go on."""
        if connection is not None and connection.config.runs_as(config):
            if connection.config != config:
                connection.take(config)
                self._private.take(config)
            return connection
        new = self._connection(config.key, self._snapshot, self._on_change)
        new.lists.subscribed = self._followed.pop(config.key, {})
        if connection is not None:
            new.lists.follow(connection.lists)
        if self._tasks is not None:
            self._tasks.start_soon(new.run, name=f"upstream {config.key}")
            if config.start != "lazy":
                new.wake()
        return new

    def _leave(self, connection: Connection, reason: str) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(connection.leave, reason)
        self._private.leave(connection.config.key, reason)

    def _connection(self, key: str, snapshot: Snapshot, on_change: Callable[[Connection], None]) -> Connection:
        config, updated = self._configs[key], self._on_updated
        made = Connection(config, self._environ, snapshot, self._reaper, self.clients, on_change, updated, self._starts)
        made.log_level = self._log_level
        return made

    # What they offer.

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each swap of the catalog or the offers."""
        self._listeners.append(listener)

    def on_updated(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the URI of each resource that clients follow and a server says has changed."""
        self._updated.append(listener)

    def _on_change(self, connection: Connection) -> None:
        key = connection.config.key
        if self.connections.get(key) is connection:  # else it is leaving
            self._parts[key] = connection.lists.part
            self._gathered()

    def _gathered(self) -> None:
        """Put together what the servers have."""
        catalog = Catalog(self._parts.values())
        if catalog.hash != self.catalog.hash:
            self.catalog = catalog
        self.offers = self._make_offers()
        for listener in self._listeners:
            listener()

    def names(self) -> dict[str, list[str]]:
        """The raw names of all that each server lists, also of what is excluded; of those whose list is known."""
        known = {key: c.lists.found for key, c in self.connections.items()}
        return {key: [tool["name"] for tool in found.tools] for key, found in known.items() if found is not None}

    def _make_offers(self) -> Offers:
        def offer(key: str, found: Found) -> Offer:
            return Offer(key, tuple(found.resources), tuple(found.templates), tuple(found.prompts))

        return Offers(offer(key, c.lists.found) for key, c in self.connections.items() if c.lists.found is not None)

    def _on_updated(self, connection: Connection, uri: str) -> None:
        server = connection.config.key
        current = self.connections.get(server)
        if current is None or not current.lists.followed(uri):
            return  # nobody wants to know, and a server may say it of any number of them
        shown = uri if self.offers.owner(uri) == (server, uri) else prefixed(server, uri)
        for listener in self._updated:
            listener(shown)

    # Life.

    async def run(self) -> None:
        """Supervise all connections until cancelled; then all are closed in parallel."""
        starting = [c for c in self.connections.values() if c.config.start != "lazy"]
        if len(starting) < (os.cpu_count() or 1):  # so few delay nobody's first list
            for connection in starting:
                connection.wake()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = self._private.tasks = tasks
                for connection in self.connections.values():
                    tasks.start_soon(connection.run, name=f"upstream {connection.config.key}")
                await anyio.sleep_forever()
        finally:
            self._reaper.close()

    def start(self) -> None:
        """The first client has been answered: servers known from disk need not wait any longer.

        A server that let the client wait in vain is not waited for at later starts.
        """
        for connection in self.connections.values():
            if not connection.settled:
                connection.lists.waited_in_vain()
            if connection.config.start != "lazy":
                connection.wake()

    async def wait_known(self, timeout: float) -> None:
        """Wait, at most `timeout` seconds, until each server's list is known or one attempt has failed."""
        with anyio.move_on_after(timeout):
            for connection in self.connections.values():
                await connection.wait_settled()

    async def wait_tried(self, timeout: float) -> None:
        """Wait, at most `timeout` seconds, until each server that starts by itself is ready or has failed once."""
        with anyio.move_on_after(timeout):
            for connection in self.connections.values():
                if connection.config.start != "lazy":
                    await connection.wait_tried()

    def unavailable(self, keys: Iterable[str] | None = None) -> dict[str, str]:
        """Server key -> why it is not usable now, for those that have failed or were never ready yet."""
        reasons: dict[str, str] = {}
        for key in keys if keys is not None else self.connections:
            connection = self.connections.get(key)
            if connection is not None and connection.state == "failed":
                reasons[key] = connection.trouble
            elif connection is not None and connection.lists.found is None:
                reasons[key] = connection.reason or "still starting; its tools are not known yet"
        return reasons

    # Requests of clients.

    # Not coroutines themselves: each would be one more frame that every call is resumed through.

    def call_tool(
        self, tool: Tool, arguments: Mapping[str, Any] | None, meta: Mapping[str, Any], caller: Caller
    ) -> Awaitable[dict[str, Any]]:
        """Call one tool of the catalog; raises what `Calls.request` raises."""
        params: dict[str, Any] = {"name": tool.name}
        if arguments is not None:
            params["arguments"] = arguments
        return self.request(tool.server, "tools/call", params, meta, caller)

    def request(
        self, server: str, method: str, params: Mapping[str, Any], meta: Mapping[str, Any], caller: Caller
    ) -> Awaitable[dict[str, Any]]:
        """Send any request to one server, on the client's own session where the server needs that."""
        if server not in self._configs:
            raise UpstreamFailure(server, "not configured", may_have_run=False)
        private = self._configs[server].session == "per_client"
        calls = self._private.calls(server, caller.origin) if private else self._calls[server]
        return calls.request(method, params, meta, caller)

    async def subscribe(self, server: str, uri: str) -> None:
        """One more client wants to know of changes of a resource; raises what a request raises."""
        connection = None
        while (now := self.connections.get(server)) is not connection or now is None:
            if now is None:
                raise UpstreamFailure(server, "it is no longer configured", may_have_run=False)
            connection = now  # with another configuration it may be another one meanwhile
            await connection.lists.subscribe(await connection.ready(), uri)

    async def unsubscribe(self, server: str, uri: str) -> None:
        """One client less."""
        if (connection := self.connections.get(server)) is None:
            unfollow(self._followed.get(server, {}), uri)
            return
        try:
            await connection.lists.unsubscribe(connection.session, uri)
        except (RpcError, UpstreamFailure) as error:
            log.debug("server %r: could not unsubscribe from %s: %s", server, uri, describe(error))

    async def set_log_level(self, level: str) -> None:
        """Tell every handshake server that logs which messages are wanted from now on."""
        self._log_level = level
        for connection in list(self.connections.values()):
            connection.log_level = level
            if connection.session is not None:
                await connection.session.send_log_level(level)
