"""The apps of the commands, of those that show or approve what clients may come to see and of the one that calls; and
what both wait for.
"""

import math
import os
from collections.abc import Mapping, Sequence

from proxy.app import App
from proxy.cli.wording import for_people
from proxy.config import ServerConfig, Settings
from proxy.upstream.snapshot import Entry, Snapshot, default_folder


def looking(config: Settings, profiles: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> App:
    """An app whose servers list all that any client may be shown; `environ` is by default our own.

    Some servers have tools only for clients that can be asked something. What a lock approves and `check` counts must
    have those too, or a client is shown (or the lock withholds) what no command ever saw.
    """
    app = App(config, os.environ if environ is None else environ, profiles=profiles)
    app.fleet.clients.looking = True
    return app


def calling(config: Settings, profiles: Sequence[str]) -> App:
    """An app that calls, with advice for people: its servers may not believe that they could ask somebody."""
    return App(for_people(config), os.environ, profiles=profiles, snapshot=_Fuller(default_folder(os.environ)))


async def all_known(app: App) -> None:
    """Wait until each server's list is known, or one attempt has failed, which `connect_timeout` ends.

    On the command line people would rather wait than get half of it.
    """
    await app.fleet.wait_known(math.inf)


async def named_known(app: App, names: Sequence[str]) -> None:
    """Wait until it is known what these names of tools mean.

    A public name means the same whatever other servers have, so one that never comes up costs it no time; for any
    other name all must be known.
    """
    for key in {key for name in names for key in app.catalog.unknown_in(name)}:
        await app.fleet.connections[key].wait_settled()
    if any(app.catalog.public(name) is None for name in names):
        await all_known(app)


async def all_tried(app: App, *, with_login: bool = False) -> None:
    """Wait until each server is ready, or one attempt to connect it has failed; lazy ones are started too.

    `with_login`: only those that may want a login, which is known by trying alone.
    """
    wanted = [c for c in app.fleet.connections.values() if c.may_want_login or not with_login]
    for connection in wanted:
        connection.wake()
    for connection in wanted:
        await connection.wait_tried()


def withheld_note(app: App) -> str:
    """That the lock withholds tools which these callers would otherwise have, and what to do; "" where it does not."""
    tools = app.base.withheld(app.fleet.catalog)
    if app.gate is not None:
        scopes = app.gate.scopes
        tools = [tool for tool in tools if not scopes.denies(tool, app.scope)]
    if not tools:
        return ""
    what = "1 tool is" if len(tools) == 1 else f"{len(tools):,} tools are"
    return f"{what} withheld by the lock; see: narrow-waist lock --diff"


class _Fuller(Snapshot):
    """A snapshot in which a list that merely lacks tools does not replace another.

    That is what servers give to a command which cannot be asked; the next client would be shown it, and `list` too.
    """

    def save(self, config: ServerConfig, entry: Entry) -> None:
        kept = self.load(config)
        if kept is None or not _names(entry) < _names(kept):
            super().save(config, entry)


def _names(entry: Entry) -> set[str]:
    return {tool["name"] for tool in entry.found.tools}
