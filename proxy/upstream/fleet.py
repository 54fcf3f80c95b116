"""Fleet: all upstreams together, and the catalog of what they list."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio

from proxy.catalog import Catalog, Server, make_server
from proxy.config import Settings
from proxy.errors import UpstreamFailure
from proxy.tool import Tool
from proxy.upstream.calls import Calls
from proxy.upstream.connection import Connection
from proxy.upstream.peer import OnProgress
from proxy.upstream.reaper import Reaper
from proxy.upstream.snapshot import Snapshot

log = logging.getLogger(__name__)


class Fleet:
    """Connects every enabled server in the background and keeps the current catalog, swapped whole."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], snapshot: Snapshot) -> None:
        self._reaper = Reaper()
        self._parts: dict[str, Server] = {}
        self._listeners: list[Callable[[], None]] = []
        self.connections: Mapping[str, Connection] = {
            config.key: Connection(config, environ, snapshot, self._reaper, self._on_change)
            for config in settings.servers
            if config.enabled
        }
        self._calls = {key: Calls(connection) for key, connection in self.connections.items()}
        for connection in self.connections.values():
            self._take(connection)
        self.catalog = Catalog(self._parts.values())

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each swap of the catalog."""
        self._listeners.append(listener)

    def _take(self, connection: Connection) -> None:
        topic = connection.info.get("description")
        self._parts[connection.config.key] = make_server(
            connection.config, connection.tools, topic if isinstance(topic, str) else None
        )

    def _on_change(self, connection: Connection) -> None:
        before = self.catalog.hash
        self._take(connection)
        self.catalog = Catalog(self._parts.values())
        if self.catalog.hash != before:
            for listener in self._listeners:
                listener()

    async def run(self) -> None:
        """Supervise all connections until cancelled; then all are closed in parallel."""
        try:
            async with anyio.create_task_group() as tasks:
                for connection in self.connections.values():
                    tasks.start_soon(connection.run, name=f"upstream {connection.config.key}")
                await anyio.sleep_forever()
        finally:
            self._reaper.close()

    def start(self) -> None:
        """The first client has been answered: servers known from disk need not wait any longer."""
        for connection in self.connections.values():
            if connection.config.start != "lazy":
                connection.wake()

    async def wait_known(self, timeout: float) -> None:
        """Wait, at most `timeout` seconds, until each server's list is known or one attempt has failed."""
        with anyio.move_on_after(timeout):
            for connection in self.connections.values():
                await connection.wait_settled()

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any] | None,
        *,
        meta: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        """Call one tool of the catalog; raises what `Calls.tool` raises."""
        calls = self._calls.get(tool.server)
        if calls is None:
            raise UpstreamFailure(tool.server, "not configured", may_have_run=False)
        return await calls.tool(tool.name, arguments, meta=meta, on_progress=on_progress)

    def unavailable(self, keys: Iterable[str] | None = None) -> dict[str, str]:
        """Server key -> why it is not usable now, for those that have failed or were never ready yet."""
        reasons: dict[str, str] = {}
        for key in keys if keys is not None else self.connections:
            connection = self.connections.get(key)
            if connection is not None and connection.state == "failed":
                reasons[key] = connection.trouble
            elif connection is not None and connection.tools is None:
                reasons[key] = connection.reason or "still starting; its tools are not known yet"
        return reasons
