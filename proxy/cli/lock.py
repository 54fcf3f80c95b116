"""`lock`: approve the tools as their servers describe them now, or show what has changed since they were approved.

narrow-waist lock              the first time: approve everything; later: as --diff
narrow-waist lock --diff       what is new, changed or gone; exit code 1 where anything is
narrow-waist lock --approve    approve what has changed, or only the servers and tools that are named
"""

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio

from proxy.app import App
from proxy.catalog import Catalog
from proxy.cli.common import settings
from proxy.cli.logs import set_up_logging
from proxy.cli.looking import all_tried, looking
from proxy.config import Settings
from proxy.errors import ConfigError
from proxy.guard.lock import Difference, Lock, LockedServer, about_hash, read_lock, write_lock
from proxy.text import one_line, shorten

FILE = "upstreams.lock"
_DESCRIPTION = 300


def run(options: argparse.Namespace) -> int:
    """0: everything is as approved (now); 1: something is not, or a server could not be asked. Raises ConfigError."""
    config = settings(options)
    set_up_logging(logging.ERROR, config, verbose=options.verbose)
    return anyio.run(_run, config, options)


async def _run(config: Settings, options: argparse.Namespace) -> int:
    path = _path(config, options.file)
    lock = read_lock(path)
    # Everything is looked at, also what the lock withholds; and as it is sent, not as it is cleaned.
    app = looking(replace(config, guard=None, profiles={}))
    async with app.running():
        await all_tried(app)
        # What is remembered of a server that could not be asked is not approved.
        asked = app.fleet.connections.items()
        failed = {key: c.reason or "it did not answer in time" for key, c in asked if c.state != "ready"}
        catalog = app.fleet.catalog
        hidden = {key: _hidden(app, key) for key in catalog.servers}
    known = [key for key in catalog.servers if key not in failed]
    for key, reason in failed.items():
        print(f"{key}: could not be asked, and stays as it was approved: {shorten(one_line(reason), 200)}")
    if options.approve or not (lock.exists or options.diff):
        lock, count = _approved(lock, catalog, known, options.tool, hidden)
        if not known:
            # An empty lock would be the first one, after which `lock` only shows what is new.
            print("no server could be asked: nothing is written")
            return 1 if failed else 0
        write_lock(path, lock)
        print(f"{count} tools of {len(lock.servers)} servers are approved in {path}")
        if config.guard is None or config.guard.lock == "off":
            print("nothing reads it yet: say `guard: {lock: strict}` (or `warn`) in the configuration")
        return 1 if failed else 0
    found = [difference for key in known if (difference := _difference(lock, catalog, key, hidden[key]))]
    for difference in found:
        _print(difference, catalog)
    if found:
        print("approve with: narrow-waist lock --approve [SERVER | SERVER/TOOL ...]")
    elif not failed:
        print("everything is as approved")
    return 1 if found or failed else 0


def _path(config: Settings, given: str | None) -> Path:
    if given:
        return Path(given)
    if config.guard is not None and config.guard.lock_file is not None:
        return config.guard.lock_file
    if config.path is None:
        raise ConfigError("there is no configuration file to put the lock beside; name one with --file")
    return config.path.absolute().parent / FILE


def _hidden(app: App, key: str) -> Sequence[str]:
    """The raw names that a server has, and `tools` or `deny` of this configuration leave out."""
    found, server = app.fleet.connections[key].lists.found, app.fleet.catalog.servers[key]
    return [tool["name"] for tool in found.tools if tool["name"] not in server.by_name] if found is not None else []


def _approved(
    lock: Lock, catalog: Catalog, keys: Sequence[str], named: Sequence[str], hidden: Mapping[str, Sequence[str]]
) -> tuple[Lock, int]:
    """The lock with what is there now; raises ConfigError for a name that is none."""
    only: dict[str, list[str] | None] = dict.fromkeys(keys) if not named else {}
    for name in named:
        if name in keys:
            only[name] = None
            continue
        key = next((k for k in keys if name.startswith(f"{k}/")), None)
        tool = name[len(key) + 1 :] if key is not None else ""
        if key is None or (
            tool not in catalog.servers[key].by_name and tool not in lock.servers.get(key, LockedServer()).tools
        ):
            raise ConfigError(f"{name!r} is no server and no server/tool that could be asked now")
        chosen = only.setdefault(key, [])
        if chosen is not None:
            chosen.append(tool)
    for key, tools in only.items():
        server = catalog.servers[key]
        lock = lock.approved(key, server.tools, about_hash(*server.about), tools, hidden[key])
    return lock, sum(len(server.tools) for server in lock.servers.values())


def _difference(lock: Lock, catalog: Catalog, key: str, hidden: Sequence[str]) -> Difference:
    server = catalog.servers[key]
    return lock.difference(key, server.tools, about_hash(*server.about), hidden)


def _print(difference: Difference, catalog: Catalog) -> None:
    """One line a tool, with its text as it is now, made harmless for a terminal."""
    server = catalog.servers[difference.server]
    if difference.about:
        said = " / ".join(text for text in server.about if text) or "nothing"
        print(f"! {difference.server}: says of itself now: {shorten(one_line(said), _DESCRIPTION)}")
    for sign, names in (("+", difference.new), ("~", difference.changed), ("-", difference.gone)):
        for name in names:
            tool = server.by_name.get(name)
            text = f": {shorten(one_line(tool.description), _DESCRIPTION)}" if tool is not None else ""
            print(f"{sign} {difference.server}/{one_line(name)}{text}")
