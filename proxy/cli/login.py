"""`login` and `logout`: what is kept so that a server at an address takes us for the person."""

import argparse
import logging
import os
import sys
import webbrowser
from contextlib import suppress
from dataclasses import replace

import anyio
from anyio.to_thread import run_sync

from proxy.cli.common import settings
from proxy.cli.logs import set_up_logging
from proxy.cli.looking import all_tried, looking
from proxy.config import SCOPE, ServerConfig, Settings
from proxy.errors import ConfigError, NarrowWaistError
from proxy.upstream.asking import log_in
from proxy.upstream.authority import MACHINE, fits
from proxy.upstream.kept import Kept, LoginFile
from proxy.upstream.login import own_login
from proxy.upstream.revoking import revoke


def run(options: argparse.Namespace) -> int:
    """0 if the server takes the login (or there is none any more), else 1."""
    config = settings(options)
    set_up_logging(logging.CRITICAL, config, verbose=options.verbose)
    server = _server(config, options.server)
    file = LoginFile(server, os.environ)
    if options.command == "logout":
        return anyio.run(_log_out, server, file)
    if server.problem is not None:
        raise ConfigError(server.problem)
    if place := own_login(server):
        raise ConfigError(f"{server.key}: its login is in {place} of the configuration, which goes first; take it out")
    if server.oauth.grant == MACHINE:
        raise ConfigError(f"{server.key}: logs in by itself, with the client credentials of `oauth`; look: check")
    scopes = [scope for text in options.scope or () for scope in text.split()]
    if wrong := next((scope for scope in scopes if not SCOPE.fullmatch(scope)), None):
        raise ConfigError(f"--scope {wrong!r}: expected names of scopes, of ASCII without quotes and backslashes")
    return anyio.run(_log_in, config, server, file, scopes, options)


def _server(config: Settings, key: str) -> ServerConfig:
    """The server of that key, at an address; raises ConfigError."""
    at_address = [server.key for server in config.servers if server.transport != "stdio"]
    found = next((server for server in config.servers if server.key == key), None)
    if found is None or found.transport == "stdio":
        what = "is started as a program, and has no login" if found is not None else "is no server of the configuration"
        raise ConfigError(f"{key} {what}; at an address are: {', '.join(at_address) or 'none'}")
    return found


async def _log_out(server: ServerConfig, file: LoginFile) -> int:
    kept: Kept | None = None
    why = "it could not be read"
    async with file.locked():  # or a proxy that renews it just now would put it back
        with suppress(ConfigError):
            kept = file.read()
        try:
            was = file.remove()
        except OSError as error:
            raise NarrowWaistError(f"{file.path}: cannot be removed: {error.strerror}") from None
    if not was and server.problem is not None:  # of another address, perhaps
        raise ConfigError(server.problem)
    if not was:
        print(f"{server.key}: no login")
        return 0
    if kept is not None:
        why = await revoke(server, kept)
    done = f"not revoked at its server: {why}" if why else "revoked at its server too"
    print(f"{server.key}: logged out; this machine has no token of it any more ({done})")
    return 0


async def _log_in(
    config: Settings, server: ServerConfig, file: LoginFile, scopes: list[str], options: argparse.Namespace
) -> int:
    async def show(address: str) -> None:
        print(f"Log in to {server.key} in a browser on this machine, within {options.wait:g} s:\n{address}", flush=True)
        if not options.no_browser:
            await run_sync(webbrowser.open, address)

    before: Kept | None = None
    with suppress(ConfigError):  # what cannot be used is replaced
        before = file.read()
    if before is not None and not fits(before, server.oauth):
        before = None
    kept = await log_in(server, show, options.wait, scopes=scopes, before=before)
    try:
        async with file.locked():  # or a proxy that renews the old one just now would put it back
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
