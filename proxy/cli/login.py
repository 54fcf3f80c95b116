"""`login` and `logout`: what is kept so that a server at an address takes us for the person."""

import argparse
import logging
import os
import sys
import webbrowser
from dataclasses import replace

import anyio
from anyio.to_thread import run_sync

from proxy.cli.common import settings
from proxy.cli.logs import set_up_logging
from proxy.cli.looking import all_tried, looking
from proxy.config import ServerConfig, Settings
from proxy.errors import ConfigError, NarrowWaistError
from proxy.upstream.asking import log_in
from proxy.upstream.kept import LoginFile
from proxy.upstream.login import own_login


def run(options: argparse.Namespace) -> int:
    """0 if the server takes the login (or there is none any more), else 1."""
    config = settings(options)
    set_up_logging(logging.CRITICAL, config, verbose=options.verbose)
    server = _server(config, options.server)
    file = LoginFile(server, os.environ)
    if options.command == "logout":
        return _log_out(server, file)
    if place := own_login(server):
        raise ConfigError(f"{server.key}: its login is in {place} of the configuration, which goes first; take it out")
    return anyio.run(_log_in, config, server, file, options)


def _server(config: Settings, key: str) -> ServerConfig:
    """The server of that key, at an address; raises ConfigError."""
    at_address = [server.key for server in config.servers if server.transport != "stdio"]
    found = next((server for server in config.servers if server.key == key), None)
    if found is None or found.transport == "stdio":
        what = "is started as a program, and has no login" if found is not None else "is no server of the configuration"
        raise ConfigError(f"{key} {what}; at an address are: {', '.join(at_address) or 'none'}")
    if found.problem is not None:
        raise ConfigError(found.problem)
    return found


def _log_out(server: ServerConfig, file: LoginFile) -> int:
    try:
        was = file.remove()
    except OSError as error:
        raise NarrowWaistError(f"{file.path}: cannot be removed: {error.strerror}") from None
    print(f"{server.key}: logged out; this machine has no token of it any more" if was else f"{server.key}: no login")
    return 0


async def _log_in(config: Settings, server: ServerConfig, file: LoginFile, options: argparse.Namespace) -> int:
    async def show(address: str) -> None:
        print(f"Log in to {server.key} in a browser on this machine, within {options.wait:g} s:\n{address}", flush=True)
        if not options.no_browser:
            await run_sync(webbrowser.open, address)

    kept = await log_in(server, show, options.wait)
    try:
        file.write(kept)
    except OSError as error:
        raise NarrowWaistError(f"{file.path}: the login cannot be kept: {error.strerror}") from None
    app = looking(replace(config, servers=(replace(server, enabled=True),)))
    async with app.running():
        await all_tried(app)
        [connection] = app.fleet.connections.values()
        ready, reason, found = connection.state == "ready", connection.reason, connection.lists.found
    if not ready:
        sys.stderr.write(f"narrow-waist: logged in to {server.key}, but it cannot be used: {reason}\n")
        return 1
    tools = len(found.tools) if found is not None else 0
    print(f"Logged in to {server.key}: {tools:,} {'tool' if tools == 1 else 'tools'}.")
    return 0
