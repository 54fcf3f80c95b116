"""Configured: everything that follows from one configuration, made whole and swapped whole when the file has changed.

The fleet with its connections, the server with its clients and what is kept on disk outlive it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import anyio

from proxy.caller import Access, Scope
from proxy.catalog import Catalog
from proxy.config import Settings
from proxy.dispatch import Dispatcher
from proxy.errors import ConfigError
from proxy.forward import Forwarder
from proxy.guard import Base, Gate, needed
from proxy.guard.unmatched import GlobWatch, has_globs
from proxy.offers import Offers
from proxy.semantics import Semantics
from proxy.tokens import Counts
from proxy.upkeep import Upkeep
from proxy.upstream.fleet import Fleet
from proxy.upstream.snapshot import Snapshot
from proxy.view import Shared, View

log = logging.getLogger(__name__)

STARTING = 2.0
"""Seconds that the first index of a start may wait for servers to be ready."""
GATHERING = 0.5
"""Seconds that lists which were never seen may take to come before what is there is counted without them: each count
costs a child that needs as long."""
LOCK_POLL = 2.0
"""Seconds between looks at the lock file, so that an approval needs no restart."""


class Configured:
    """The rules of one configuration, what each scope of callers is shown by them, and what keeps that up to date."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        snapshot: Snapshot,
        profiles: Sequence[str] | None,
        told: Callable[[], None],
        *,
        many: bool,
        before: "Configured | None" = None,
    ) -> None:
        """`fleet` is given the servers. `told` is called when the texts of a changed catalog have their counts.

        `many`: whether callers can differ in what they may see; else what `profiles` leave out is not even started.
        `before`: the configuration that this one follows; what waits in its guard goes on waiting.

        Raises:
            ConfigError: one of `profiles` does not exist, or the lock file cannot be read. Nothing has changed then.
        """
        search = settings.tool_search
        if search.enabled == "off":
            settings = replace(settings, servers=tuple(replace(s, lazy=False) for s in settings.servers))
        for name in profiles or ():
            if name not in settings.profiles:
                there = ", ".join(settings.profiles) or "none"
                raise ConfigError(f"there is no profile {name!r} in the configuration; there are: {there}")
        gate_before = before.gate if before is not None else None
        self.gate = Gate(settings, search.call_name, gate_before) if needed(settings) else None
        """None where nothing is configured to be guarded: a call then passes no stage that could cost anything."""
        self._always = tuple(profiles or ())
        self.scope: Scope = self.gate.scopes.scope(*profiles) if self.gate is not None and profiles is not None else ()
        """Of callers that show nothing else."""
        self.access = Access(self.scope)
        if self.gate is not None and not many and profiles is not None:
            scopes = self.gate.scopes
            kept = tuple(s for s in settings.servers if scopes.may_hold(s.key, self.scope))
            settings = replace(settings, servers=kept)
        self.settings = settings
        self._fleet = fleet
        self._last: tuple[Catalog, Offers] | None = None
        """What the fleet had when another configuration followed this one."""
        if before is not None:
            before.end()
        fleet.take(settings)
        configs = {s.key: s for s in settings.servers}
        if self.gate is not None:
            configs |= self.gate.servers()
        self.base = self.gate.base if self.gate is not None else Base(settings)
        """Makes what exists for anyone: its texts are clean also where nothing is guarded."""
        if before is not None:
            self.base.follow(before.base)
        self.dispatcher = Dispatcher(fleet, configs, search, self.gate)
        self.forwarder = Forwarder(fleet, self.gate)
        exact = search.tokenizer == "o200k"
        if before is not None and before.settings.tool_search.tokenizer == search.tokenizer:
            counts = before.shared.counts
        else:
            counts = Counts(snapshot.load_counts() if exact else None)
        self.semantics: Semantics | None = None
        """What gives the index its meaning; None where search goes by words alone."""
        if search.semantic == "on" and search.enabled != "off":
            self.semantics = Semantics(lambda: self.everything().tools, snapshot.load_vectors, snapshot.save_vectors)
        base = self.base
        self.shared = Shared(
            settings,
            self.everything,
            lambda: base.offers(self._last[1] if self._last is not None else fleet.offers),
            self.gate.scopes if self.gate is not None else None,
            counts,
            self.semantics,
        )
        if before is not None:
            self.shared.texts = before.shared.texts
        # Of the views before nothing else: through each of them all configurations since the start would be kept.
        self._indexes = {scope: view.indexed for scope, view in before.views.items()} if before is not None else {}
        self.views: dict[Scope, View] = {}
        self.upkeep = Upkeep(
            self.shared,
            lambda: list(self.views.values()),
            counts=counts if exact and search.enabled != "off" else None,
            save=snapshot.save_counts,
            told=told,
        )
        for name in settings.profiles if many else ():
            self.view(self.narrowed(name))
        self.view(self.scope)
        self._globs = GlobWatch(settings, fleet.names)
        if before is not None:
            self._globs.follow(before._globs)

    async def run(self) -> None:
        """Keep everything up to date in the background, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.upkeep.run, self._gathered, partial(self._fleet.wait_tried, STARTING))
            if self.semantics is not None:
                tasks.start_soon(self.semantics.run)
            if has_globs(self.settings):
                tasks.start_soon(self._globs.run)
            if self.gate is not None and self.gate.locks:
                tasks.start_soon(self._watch_lock, self.gate)

    async def _gathered(self) -> None:
        await self._fleet.wait_known(min(GATHERING, self.settings.first_list_wait))

    def catalog_changed(self) -> None:
        """Another catalog, or another lock: what was made of the old one is made anew."""
        self._globs.changed()
        self.upkeep.changed()
        if self.semantics is not None:
            self.semantics.changed()

    async def _watch_lock(self, gate: Gate) -> None:
        """Take up what is approved while we run; a lock that cannot be read changes nothing."""
        while True:
            await anyio.sleep(LOCK_POLL)
            try:
                if gate.look_at_lock():
                    log.warning("the lock has changed and is read again")
                    self.catalog_changed()
            except ConfigError as error:
                log.warning("%s", error)

    def everything(self) -> Catalog:
        """The tools that exist for anyone."""
        return self.base.catalog(self._last[0] if self._last is not None else self._fleet.catalog)

    def end(self) -> None:
        """Another configuration follows: what is still answered by this one sees nothing of what comes with that.

        Its rules say nothing of a server that is new, and so would leave it to everybody.
        """
        self._last = self._fleet.catalog, self._fleet.offers

    def view(self, scope: Scope | None = None) -> View:
        """What the callers of a scope are shown; None: of those that show nothing else."""
        key = self.scope if scope is None else scope
        found = self.views.get(key)
        if found is None:
            found = self.views[key] = View(self.shared, key, self._indexes.pop(key, None))
            self.upkeep.added()
        return found

    def narrowed(self, *names: str) -> Scope:
        """The scope of a caller with these profiles, beside those that apply to everybody."""
        if self.gate is None:
            return tuple(sorted(set(names)))  # of a token, whose profile is gone with all others
        return self.gate.scopes.scope(*self._always, *names)
