"""App: wires everything; the only place that knows everyone. It is the `House` that `server.py` serves.

What depends on the catalog (index, listing, tool lists) is pure and kept by the catalog's hash: made in a worker
thread when the catalog has changed, or at the first need, and never on the path of a call.
"""

import asyncio
import logging
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from proxy import __version__, bridge
from proxy.arguments import direct, unwrap
from proxy.caller import Caller, Origin
from proxy.catalog import Catalog, NotFound, Server
from proxy.config import Settings
from proxy.dispatch import Dispatcher, error_result, failed
from proxy.eager import fits_below, shown
from proxy.errors import Refused, UpstreamFailure
from proxy.hosts import HostRow
from proxy.listing import Listing, TextCache, lines
from proxy.offers import Offers
from proxy.search import Index
from proxy.semantics import Semantics
from proxy.server import ProxyServer
from proxy.tokens import Counts, child_argv, decode_answer, encode_request
from proxy.upstream.fleet import Fleet
from proxy.upstream.questions import Clients
from proxy.upstream.snapshot import Snapshot, default_folder

log = logging.getLogger(__name__)

ANSWERING = 0.2
"""Seconds that the first list takes to be made and sent, before starting many processes delays it."""


class App:
    """One proxy: a fleet of upstreams, what is known of their tools, and the server that shows them."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], clients: int | None = 0) -> None:
        """`clients`: how many there can be, 0 for the command line, 1 over stdio, None for a daemon.

        Raises:
            ConfigError: `host_row` does not exist.
        """
        search = settings.tool_search
        if search.enabled == "off":
            settings = replace(settings, servers=tuple(replace(s, lazy=False) for s in settings.servers))
        self.settings = settings
        self.announce_changes = search.announce_changes != "never"
        settings.hosts.row_for(None, search.host_row)
        self._snapshot = Snapshot(default_folder(environ))
        self._clients = Clients(clients)
        self.fleet = Fleet(settings, environ, self._snapshot, self._clients)
        self.dispatcher = Dispatcher(
            self.fleet,
            {s.key: s for s in settings.servers},
            search,
        )
        self.server = ProxyServer(self)
        self._counts = Counts(self._snapshot.load_counts() if search.tokenizer == "o200k" else None)
        self._texts = TextCache()
        configured = Catalog(Server(s.key, topic=s.description) for s in settings.servers if s.enabled)
        self._configured = configured
        self._small = False
        """Whether all schemas together are small enough to be shown without the bridge."""
        self._weigh()
        self._making, self._indexing = anyio.Lock(), anyio.Lock()
        self._index: tuple[str, Index] | None = None
        self._listings: dict[tuple[str, str, bool], Listing] = {}
        self._tools: dict[tuple[str, str, bool], list[dict[str, Any]]] = {}
        self.semantics: Semantics | None = None
        """What gives the index its meaning; None where search goes by words alone."""
        if search.semantic == "on" and search.enabled != "off":
            keep = self._snapshot
            self.semantics = Semantics(lambda: self.catalog.tools, keep.load_vectors, keep.save_vectors)
        self._dirty = anyio.Event()
        self._dirty.set()
        self._counted = anyio.Event()
        """Set while every text of the current catalog has its exact count, or never will."""
        self._listed_once = self._waited = False
        self._updated: deque[str] = deque()
        self._news = anyio.Event()
        self.fleet.on_change(self._catalog_changed)
        self.fleet.on_updated(self._resource_updated)

    # Life.

    async def run(self) -> None:
        """Run the upstreams and everything in the background until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.fleet.run)
            tasks.start_soon(self.server.announce)
            tasks.start_soon(self._keep_up)
            tasks.start_soon(self._pass_on_updates)
            if self.semantics is not None:
                tasks.start_soon(self.semantics.run)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["App"]:
        """`run` in the background of a block, for the command line and for tests."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.run)
            yield self
            tasks.cancel_scope.cancel()

    def _weigh(self) -> None:
        """Judge the size of what is known; within 20 % above the limit the last judgement holds."""
        below = self.settings.tool_search.eager_below_tokens
        self._small = fits_below(self.catalog.tools, below, before=self._small)

    def _catalog_changed(self) -> None:
        self._weigh()
        self._counted = anyio.Event()
        self._dirty.set()
        if self.semantics is not None:
            self.semantics.changed()

    def _resource_updated(self, uri: str) -> None:
        self._updated.append(uri)
        self._news.set()

    async def _pass_on_updates(self) -> None:
        """Tell the clients that have subscribed to a resource that it has changed."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._updated:
                await self.server.changes.updated(self._updated.popleft())

    async def _keep_up(self) -> None:
        """After each change: count exactly what is new, say so, and prepare the index.

        In that order, because hosts wait little for their first `tools/list` (Codex 1.2 s), which needs no index.
        """
        while True:
            await self._dirty.wait()
            self._dirty = anyio.Event()
            await self._count()
            self.server.catalog_changed()
            await self.index()

    async def counted(self) -> None:
        """Wait until the texts of the current catalog have exact counts, or never will."""
        await self._counted.wait()

    async def _count(self) -> None:
        """Have a short-lived child count the texts that are new, so that this process never loads the vocabulary."""
        if self.settings.tool_search.tokenizer == "o200k" and self.settings.tool_search.enabled != "off":
            counted = self._counted
            async with self._making:
                wanted = await anyio.to_thread.run_sync(partial(self._wanted, self.catalog))
            missing = self._counts.missing(wanted)
            if missing:
                try:
                    done = await anyio.run_process(
                        child_argv(), input=encode_request(missing), stderr=subprocess.DEVNULL
                    )
                    self._counts.add(missing, decode_answer(done.stdout, missing))
                except (OSError, ValueError, subprocess.CalledProcessError) as error:
                    log.warning("tokens are estimated: the exact counter failed (%s)", error)
                else:
                    self._counts.keep(wanted)
                    await anyio.to_thread.run_sync(self._snapshot.save_counts, dict(self._counts.known))
            counted.set()
        else:
            self._counted.set()

    def _wanted(self, catalog: Catalog) -> list[str]:
        return list(dict.fromkeys(lines(catalog, self._texts)))

    # What clients see.

    @property
    def catalog(self) -> Catalog:
        """What a caller may see and call."""
        return self.fleet.catalog

    @property
    def settled(self) -> bool:
        """Whether every server's list is known."""
        return self.catalog.complete

    async def first_list(self) -> None:
        """Wait, the first time and within `first_list_wait`, for unknown lists and for exact counts."""
        if not self._listed_once:
            with anyio.move_on_after(self.settings.first_list_wait):
                await self._first_lists()
                await self._counted.wait()
            self._listed_once = True
            asyncio.get_running_loop().call_later(ANSWERING, self.fleet.start)

    async def _first_lists(self) -> None:
        """Wait, the first time and within `first_list_wait`, for lists that were never seen."""
        if not self._waited:
            await self.fleet.wait_known(self.settings.first_list_wait)
            self._waited = True

    def shown_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of an eager tool, whose `x-mcp-header` marks the client's headers must agree with."""
        tool = self.catalog.public(name)
        return tool.input_schema if tool is not None and tool.eager else None

    def row(self, client: str | None) -> str:
        """The name of the host row that a client's texts depend on."""
        return self._row(client).name

    def _row(self, client: str | None) -> HostRow:
        return self.settings.hosts.row_for(client, self.settings.tool_search.host_row)

    @property
    def bridged(self) -> bool:
        """Whether the three tools are shown."""
        search = self.settings.tool_search
        if search.enabled != "auto":
            return search.enabled == "on"
        configs = [s for s in self.settings.servers if s.enabled]
        if all(not s.lazy for s in configs):
            return False
        return not self._small

    def instructions(self, client: str | None) -> str:
        """The server's instructions: from the config alone, so that they are the same whatever is up.

        The topics of the servers are in them only for hosts that may show no description at the start.
        """
        if not self.bridged:
            return ""
        row = self._row(client)
        return bridge.instructions(
            self.settings.tool_search, self._configured, limit=row.instructions, topics=row.deferred
        )

    async def tools(self, client: str | None) -> list[dict[str, Any]]:
        """The tools shown to a client: the bridge, then eager tools by public name."""
        row = self._row(client)
        key = (self.catalog.hash, row.name, self._counted.is_set())
        if key not in self._tools:
            async with self._making:
                tools = await anyio.to_thread.run_sync(partial(self._make_tools, self.catalog, row, key))
            self._tools = {k: v for k, v in self._tools.items() if k[0] == key[0]} | {key: tools}
        return self._tools[key]

    def _make_tools(self, catalog: Catalog, row: HostRow, key: tuple[str, str, bool]) -> list[dict[str, Any]]:
        bridged = self.bridged
        eager = catalog.eager if bridged or self.settings.tool_search.enabled != "auto" else catalog.tools
        listed = [t for tool in sorted(eager, key=lambda t: t.public_name) if (t := shown(tool).tool) is not None]
        if not bridged:
            return listed
        search = self.settings.tool_search
        count, _ = self._counts.counter(self._wanted(catalog), exact=search.tokenizer == "o200k")
        tools, self._listings[key] = bridge.placed_tools(search, row, catalog, count, self._texts)
        return [*tools, *listed]

    async def listing(self, client: str | None = None) -> Listing | None:
        """What the descriptions say to a client of that name; None where there is no bridge."""
        await self.tools(client)
        return self._listings.get((self.catalog.hash, self._row(client).name, self._counted.is_set()))

    async def index(self) -> Index:
        """The search index of the current catalog."""
        catalog = self.catalog
        if self._index is None or self._index[0] != catalog.hash:
            async with self._indexing:
                if self._index is None or self._index[0] != catalog.hash:
                    words = self._index[1].words if self._index is not None else None
                    index = await anyio.to_thread.run_sync(partial(Index, catalog, words))
                    self._index = (catalog.hash, index)
        return self._index[1] if self.semantics is None else await self.semantics.enrich(self._index[1])

    @property
    def offers(self) -> Offers:
        """Resources and prompts of all servers."""
        return self.fleet.offers

    @property
    def wants_client(self) -> bool:
        """Whether a stdio client is still expected to say who it is."""
        return self._clients.number == 1 and not self._clients.seen.is_set()

    def client_is_there(self, origin: Origin) -> None:
        """A client has said who it is, so that servers can be told what it can do."""
        self._clients.is_there(origin)

    # Requests other than calls.

    async def request(
        self, server: str, method: str, params: Mapping[str, Any], meta: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """Send a request for a resource, a prompt or a completion to its server."""
        return await self.fleet.request(server, method, params, meta, caller)

    async def subscribe(self, server: str, uri: str) -> None:
        """One more client wants to know of changes of a resource."""
        await self.fleet.subscribe(server, uri)

    async def unsubscribe(self, server: str, uri: str) -> None:
        """One client less."""
        await self.fleet.unsubscribe(server, uri)

    async def set_log_level(self, level: str) -> None:
        """The least level of log messages that any client wants."""
        await self.fleet.set_log_level(level)

    # Calls.

    async def call(self, name: str, arguments: Any, meta: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Answer one `tools/call`, be it of the bridge, of an eager tool or of a hidden one by its name."""
        search = self.settings.tool_search
        try:
            if name == search.call_name:
                request = unwrap(arguments, search)
                name, arguments = request.name, request.candidates[0]
                caller = replace(caller, bridge=True)
            else:
                request = direct(name, arguments)
            if name in (search.search_name, search.describe_name):
                await self._first_lists()
            down, room = self.fleet.unavailable(), bridge.room_in(self._row(caller.client).result)
            if name == search.search_name:
                index = await self.index()
                answer = partial(bridge.search_answer, arguments, self.catalog, index, search)
                answer = partial(answer, unavailable=down, topic_of=bridge.listed_topics(self._texts), room=room)
                # A query's meaning takes 5 ms, its words one.
                return answer() if self.semantics is None else await anyio.to_thread.run_sync(answer)
            if name == search.describe_name:
                return bridge.describe_answer(arguments, self.catalog, search, unavailable=down, room=room)
        except Refused as refusal:
            return error_result(str(refusal))
        try:
            await self._wait_for(request.name)
        except UpstreamFailure as failure:
            return error_result(f"Tool {request.name!r}: {failed(failure)}")
        return await self.dispatcher.call(self.catalog, request, meta, caller)

    async def _wait_for(self, name: str) -> None:
        """Before a name is said not to exist: wait for the lists that were never seen and may hold it.

        For a server that is named in it, as long as any call waits for its server; else as long as a first listing.

        Raises:
            UpstreamFailure: a server that is named in it has not come up.
        """
        if self.catalog.complete or self._resolves(name):
            return
        named = [k for k, server in self.catalog.servers.items() if not server.known and k in name]
        if not named:
            await self.fleet.wait_known(self.settings.first_list_wait)
        for key in named:
            try:
                await self.fleet.connections[key].ready()  # wakes a sleeping reconnect, as any call does
            except UpstreamFailure as failure:
                if not self.catalog.servers[key].known and not self._resolves(name):
                    reason = f"its tools are not known yet: {failure.reason}"
                    raise UpstreamFailure(key, reason, may_have_run=False) from None

    def _resolves(self, name: str) -> bool:
        try:
            self.catalog.resolve(name)
        except NotFound:
            return False
        return True

    def status(self) -> dict[str, Any]:
        """The state of every server, for `/health`; never a secret."""
        servers = {
            key: {
                "state": c.state,
                **({"reason": c.reason} if c.reason and c.state != "ready" else {}),
                "tools": len(self.catalog.servers[key].tools),
                **({"nextTry": round(c.next_try)} if c.next_try else {}),
            }
            for key, c in self.fleet.connections.items()
        }
        return {"version": __version__, "tools": len(self.catalog.tools), "servers": servers}
