"""Upkeep: what follows from a change of the catalog. Its new texts are counted, clients are told, the index is made.

In that order, because hosts wait little for their first `tools/list` (Codex 1.2 s), which needs no index.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
import anyio.to_thread

from proxy.counter import Counter
from proxy.memory import LARGE, settle
from proxy.tokens import Counts
from proxy.view import Shared, View

log = logging.getLogger(__name__)


class Upkeep:
    """Keeps the views of one proxy up to date, in the background."""

    def __init__(
        self,
        shared: Shared,
        views: Callable[[], Sequence[View]],
        *,
        counts: Counts | None,
        save: Callable[[Mapping[str, int]], None],
        told: Callable[[], None],
    ) -> None:
        """`counts`: what is counted exactly, None where nothing is; `save` keeps it, in a worker thread.

        `told` is called when the texts of a change have their counts.
        """
        self._shared, self._views, self._counts, self._save, self._told = shared, views, counts, save, told
        self._counter = Counter()
        self._dirty = anyio.Event()
        self._dirty.set()
        self._counted = anyio.Event()
        """Set while every text of the current catalog has its exact count, or never will."""

    def changed(self) -> None:
        """The catalog is another one: what was kept of the old one goes."""
        views = self._views()
        for view in views:
            view.weigh()
        self._shared.texts.keep(server for view in views for server in view.catalog.servers.values())
        self._shared.counts.aged()
        self._counted = anyio.Event()
        self._dirty.set()

    def added(self) -> None:
        """There is one more view, whose texts are to be counted."""
        self._dirty.set()

    async def counted(self) -> None:
        """Wait until the texts of the current catalog have exact counts, or never will."""
        await self._counted.wait()

    async def run(self, gathered: Callable[[], Awaitable[None]], tried: Callable[[], Awaitable[None]]) -> None:
        """Follow the changes until cancelled.

        `gathered` waits for the lists that the first count is to include, `tried` for the servers that are starting:
        beside the making of the first index, which a search asks for itself if it is early, their start takes longer.
        """
        async with self._counter:
            if self._counts is not None and not self._shared.catalog().complete:
                await self._counter.start()
                await gathered()
            started = False
            while True:
                await self._dirty.wait()
                self._dirty = anyio.Event()
                await self._count()
                self._told()
                if not started:
                    started = True
                    await tried()
                for view in self._views():
                    await view.index()
                if len(self._shared.catalog().tools) >= LARGE:
                    await anyio.to_thread.run_sync(settle)

    async def _count(self) -> None:
        """Have a short-lived child count the texts that are new, so that this process never loads the vocabulary."""
        counted, views = self._counted, self._views()
        if self._counts is not None:
            async with self._shared.making:
                wanted = await anyio.to_thread.run_sync(_wanted, views)
            missing = self._counts.missing(wanted)
            if missing:
                try:
                    self._counts.add(missing, await self._counter.count(missing))
                except (OSError, ValueError) as error:
                    log.warning("tokens are estimated: the exact counter failed (%s)", error)
                else:
                    self._counts.keep(wanted)
                    await anyio.to_thread.run_sync(self._save, dict(self._counts.known))
            else:
                await self._counter.dismiss()
        if counted is self._counted:  # else the catalog has changed meanwhile
            for view in views:
                view.counted = True
        counted.set()


def _wanted(views: Sequence[View]) -> list[str]:
    """The lines that any of `views` may count."""
    return list(dict.fromkeys(line for view in views for line in view.wanted()))
