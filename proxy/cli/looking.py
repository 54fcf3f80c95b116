"""The app of the commands that show or approve what clients may come to see, and call nothing."""

import os
from collections.abc import Mapping, Sequence

from proxy.app import App
from proxy.config import Settings


def looking(config: Settings, profiles: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> App:
    """An app whose servers list all that any client may be shown; `environ` is by default our own.

    Some servers have tools only for clients that can be asked something. What a lock approves and `check` counts must
    have those too, or a client is shown (or the lock withholds) what no command ever saw.
    """
    app = App(config, os.environ if environ is None else environ, profiles=profiles)
    app.fleet.clients.looking = True
    return app


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
