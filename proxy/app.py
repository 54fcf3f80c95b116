"""App: wires everything; the only place that knows everyone. It is the `House` that `server.py` serves.

Each scope of callers has a `View`, from which everything that they are shown or told is computed.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from proxy import __version__, bridge
from proxy.arguments import direct, unwrap
from proxy.caller import Caller, Origin, Scope
from proxy.catalog import Catalog, NotFound
from proxy.config import Settings
from proxy.configured import Configured
from proxy.dispatch import error_result, failed
from proxy.errors import Refused, UpstreamFailure
from proxy.guard import Base, Gate
from proxy.hosts import HostRow
from proxy.listing import Listing
from proxy.offers import Offers
from proxy.search import Index
from proxy.semantics import Semantics
from proxy.server import ProxyServer
from proxy.upstream.fleet import Fleet
from proxy.upstream.questions import Clients
from proxy.upstream.snapshot import Snapshot, default_folder
from proxy.view import READS_ONLY, View

ANSWERING = 0.2
"""Seconds that the first list takes to be made and sent, before starting many processes delays it."""


class App:
    """One proxy: a fleet of upstreams, what is known of their tools, and the server that shows them."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        clients: int | None = 0,
        profiles: Sequence[str] | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        """`clients`: how many there can be, 0 for the command line, 1 over stdio, None for a daemon.

        `profiles`: which apply to every caller; () is the default profile where there is one, and None is nobody's
        scope: everything, for those who run the proxy. `snapshot`: where lists are kept, by default the usual folder.

        Raises:
            ConfigError: one of `profiles` does not exist, or the lock file cannot be read.
        """
        snapshot = snapshot or Snapshot(default_folder(environ))
        self._clients = Clients(clients)
        self.fleet = self.upstreams = Fleet(Settings(), environ, snapshot, self._clients)
        self.server = ProxyServer(self)
        self._configured = partial(
            Configured,
            fleet=self.fleet,
            snapshot=snapshot,
            profiles=profiles,
            told=self.server.catalog_changed,
            many=clients is None,
        )
        self._now = self._configured(settings)
        self._replaced = anyio.Event()
        self._listed_once = self._waited = False
        self._updated: dict[str, None] = {}
        """Resources that have changed, each once however often it was said while clients were slow to read."""
        self._news = anyio.Event()
        self.fleet.on_change(self._catalog_changed)
        self.fleet.on_updated(self._resource_updated)

    def take(self, settings: Settings) -> None:
        """Serve by another configuration from now on; calls that are under way end by the rules they began with.

        Raises:
            ConfigError: what the constructor raises; nothing has changed then.
        """
        self._now = self._configured(settings, before=self._now)
        self._replaced.set()
        self._replaced = anyio.Event()

    @property
    def settings(self) -> Settings:
        """The configuration as it is served: without the servers that nobody may see."""
        return self._now.settings

    @property
    def gate(self) -> Gate | None:
        """The guard; None where nothing is configured to be guarded."""
        return self._now.gate

    @property
    def semantics(self) -> Semantics | None:
        """What gives the index its meaning; None where search goes by words alone."""
        return self._now.semantics

    @property
    def base(self) -> Base:
        """Makes what exists for anyone."""
        return self._now.base

    @property
    def scope(self) -> Scope:
        """Of callers that show nothing else."""
        return self._now.scope

    @property
    def announce_changes(self) -> bool:
        """Whether clients are told when what they are shown has changed."""
        return self.settings.tool_search.announce_changes != "never"

    # Life.

    async def run(self) -> None:
        """Run the upstreams and everything in the background until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.fleet.run)
            tasks.start_soon(self.server.announce)
            tasks.start_soon(self._pass_on_updates)
            while True:
                replaced = self._replaced
                async with anyio.create_task_group() as these:
                    these.start_soon(self._now.run)
                    await replaced.wait()
                    these.cancel_scope.cancel()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["App"]:
        """`run` in the background of a block, for the command line and for tests."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.run)
            yield self
            tasks.cancel_scope.cancel()

    def _catalog_changed(self) -> None:
        self._now.catalog_changed()

    def _resource_updated(self, uri: str) -> None:
        self._updated[uri] = None
        self._news.set()

    async def _pass_on_updates(self) -> None:
        """Tell the clients that have subscribed to a resource that it has changed."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._updated:
                del self._updated[uri := next(iter(self._updated))]
                if (owner := self.fleet.offers.owner(uri)) is None:
                    continue
                for scope in self.server.changes.seats:
                    if (known := self.view(scope).offers.known_as(*owner)) is not None:
                        await self.server.changes.updated(known, scope)

    async def counted(self) -> None:
        """Wait until the texts of the current catalog have exact counts, or never will."""
        await self._now.upkeep.counted()

    # What clients see.

    def view(self, scope: Scope | None = None) -> View:
        """What the callers of a scope are shown; None: of those that show nothing else."""
        return self._now.view(scope)

    def narrowed(self, *names: str) -> Scope:
        """The scope of a caller with these profiles, beside those that apply to everybody."""
        return self._now.narrowed(*names)

    @property
    def catalog(self) -> Catalog:
        """What a caller that shows nothing else may see and call."""
        return self.view().catalog

    def settled(self, scope: Scope | None = None) -> bool:
        """Whether every server's list is known."""
        return self.view(scope).catalog.complete

    async def first_list(self) -> None:
        """Wait, the first time and within `first_list_wait`, for unknown lists and for exact counts."""
        if not self._listed_once:
            with anyio.move_on_after(self.settings.first_list_wait):
                await self._first_lists()
                await self._now.upkeep.counted()
            self._listed_once = True
            asyncio.get_running_loop().call_later(ANSWERING, self.fleet.start)

    async def _first_lists(self) -> None:
        """Wait, the first time and within `first_list_wait`, for lists that were never seen."""
        if not self._waited:
            await self.fleet.wait_known(self.settings.first_list_wait)
            self._waited = True

    def shown_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of an eager tool, whose `x-mcp-header` marks the client's headers must agree with."""
        # Whose headers they are is not known here: only what everybody may see can be told of.
        tools = [view.catalog.public(name) for view in self._now.views.values()]
        tool = tools[0] if all(tools) else None
        return tool.input_schema if tool is not None and tool.eager else None

    def row(self, client: str | None) -> str:
        """The name of the host row that a client's texts depend on."""
        return self._row(client).name

    def _row(self, client: str | None) -> HostRow:
        return self.settings.hosts.row_for(client, self.settings.tool_search.host_row)

    @property
    def bridged(self) -> bool:
        """Whether the three tools are shown."""
        return self.view().bridged

    def instructions(self, client: str | None, scope: Scope | None = None) -> str:
        """The server's instructions for a client of that name."""
        return self.view(scope).instructions(self._row(client))

    async def tools(self, client: str | None, scope: Scope | None = None) -> list[dict[str, Any]]:
        """The tools shown to a client: the bridge, then eager tools by public name."""
        return await self.view(scope).tools(self._row(client))

    async def listing(self, client: str | None = None) -> Listing | None:
        """What the descriptions say to a client of that name; None where there is no bridge."""
        return await self.view().listing(self._row(client))

    async def index(self) -> Index:
        """The search index of the current catalog."""
        return await self.view().index()

    def offers(self, scope: Scope | None = None) -> Offers:
        """Resources and prompts that the callers of a scope may use."""
        return self.view(scope).offers

    @property
    def wants_client(self) -> bool:
        """Whether a stdio client is still expected to say who it is."""
        return self._clients.number == 1 and not self._clients.seen.is_set()

    def client_is_there(self, origin: Origin) -> None:
        """A client has said who it is, so that servers can be told what it can do."""
        self._clients.is_there(origin)

    # Calls.

    async def call(self, name: str, arguments: Any, meta: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Answer one `tools/call`, be it of the bridge, of an eager tool or of a hidden one by its name."""
        now, named = self._now, caller.access is not None
        search, access = now.settings.tool_search, caller.access or now.access
        view = now.view(access.scope)
        through = name == search.call_name or self._reads_only(name)
        if through or caller.access is None:
            reads_only = through and name != search.call_name
            caller = Caller(
                caller.client, through, caller.on_progress, caller.origin, caller.answers, access, reads_only
            )
        try:
            request = unwrap(arguments, search) if through else direct(name, arguments)
            if request.name in (search.search_name, search.describe_name):
                describes = request.name == search.describe_name
                given = request.candidates[0] if through else arguments
                return await self._found(given, caller, named=named, describes=describes)
        except Refused as refusal:
            return error_result(now.dispatcher.refusal(view.catalog, refusal, caller, bridged=view.bridged))
        if not view.catalog.complete:
            try:
                await self._wait_for(request.name, view)
            except UpstreamFailure as failure:
                return error_result(f"Tool {request.name!r}: {failed(failure)}")
            now, caller, view = self._newest(caller, named=named)
        return await now.dispatcher.call(view.catalog, request, meta, caller, bridged=view.bridged)

    def _newest(self, caller: Caller, *, named: bool) -> tuple[Configured, Caller, View]:
        """What a call that has waited goes on by: the configuration may be another one, and with it the scope of a
        caller that has shown nothing (`named`: one that has).
        """
        now = self._now
        access = caller.access if named and caller.access is not None else now.access
        return now, caller._replace(access=access), now.view(access.scope)

    async def forward(
        self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """Read a resource, get a prompt or complete a reference, as `server` is asked to."""
        caller = caller if caller.access is not None else caller._replace(access=self._now.access)
        offers = self.view(caller.access.scope if caller.access is not None else None).offers
        return await self._now.forwarder.request(offers, method, params, meta, caller)

    async def _found(self, arguments: Any, caller: Caller, *, named: bool, describes: bool) -> dict[str, Any]:
        """The answer of search or describe, which need the lists that were never seen."""
        await self._first_lists()
        now, caller, view = self._newest(caller, named=named)
        search, catalog = now.settings.tool_search, view.catalog
        down = self.fleet.unavailable(catalog.servers)
        room = bridge.room_in(self._row(caller.client).result)
        if describes:
            return bridge.describe_answer(arguments, catalog, search, unavailable=down, room=room)
        destructive = now.gate.policy.destructive if now.gate is not None else bridge.says_destructive
        answer = partial(
            bridge.search_answer, arguments, catalog, await view.index(), search,
            unavailable=down, topic_of=bridge.listed_topics(now.shared.texts), room=room, destructive=destructive,
        )  # fmt: skip
        # A query's meaning takes 5 ms, its words one.
        return answer() if now.semantics is None else await anyio.to_thread.run_sync(answer)

    def _reads_only(self, name: str) -> bool:
        guard = self.settings.guard
        return guard is not None and guard.read_call and name == self.settings.tool_search.call_name + READS_ONLY

    async def _wait_for(self, name: str, view: View) -> None:
        """Before a name is said not to exist: wait for the lists that were never seen and may hold it.

        For a server that is named in it, as long as any call waits for its server; else as long as a first listing.
        Only what the view holds is waited for, so that the time tells nothing of the rest either.

        Raises:
            UpstreamFailure: a server that is named in it has not come up.
        """
        if _resolves(view, name):
            return
        connections = self.fleet.connections
        named = view.catalog.unknown_in(name)
        if not named:
            with anyio.move_on_after(self.settings.first_list_wait):
                for key, server in view.catalog.servers.items():
                    if not server.known:
                        await connections[key].wait_settled()
        for key in named:
            try:
                await connections[key].ready()  # wakes a sleeping reconnect, as any call does
            except UpstreamFailure as failure:
                server = view.catalog.servers.get(key)
                # Where known tools have the name, the refusal says which full name works now.
                if server is not None and not server.known and not _resolves(view, name, or_has_candidates=True):
                    reason = f"its tools are not known yet: {failure.reason}"
                    raise UpstreamFailure(key, reason, may_have_run=False) from None

    def status(self, scope: Scope | None = None) -> dict[str, Any]:
        """The state of every server in the scope, for `/health`; never a secret."""
        catalog = self.view(scope).catalog
        servers = {
            key: {
                "state": c.state,
                **({"reason": c.reason} if c.reason and c.state != "ready" else {}),
                "tools": len(catalog.servers[key].tools),
                **({"nextTry": round(c.next_try)} if c.next_try else {}),
            }
            for key, c in self.fleet.connections.items()
            if key in catalog.servers
        }
        return {"version": __version__, "tools": len(catalog.tools), "servers": servers}


def _resolves(view: View, name: str, *, or_has_candidates: bool = False) -> bool:
    try:
        view.catalog.resolve(name)
    except NotFound as miss:
        return or_has_candidates and bool(miss.candidates)
    return True
