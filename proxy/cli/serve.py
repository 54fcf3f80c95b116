"""`narrow-waist`: serve over stdio, or over HTTP with `--http`."""

import argparse
import logging
import os

import anyio

from proxy.app import App
from proxy.cli.common import read_token, settings, token_file
from proxy.cli.logs import set_up_logging
from proxy.config import OWN_TOKEN, GuardConfig
from proxy.guard.tokens import TokenFile


def run(options: argparse.Namespace) -> int:
    """Serve until the client is gone, or a signal; raises ConfigError."""
    config = settings(options)
    token = read_token("--token-file", options.token_file) if options.token_file else os.environ.get(OWN_TOKEN) or None
    set_up_logging(logging.INFO, config, verbose=options.verbose, own=[token or ""])
    profiles = tuple(options.profile or ())
    if options.http is None:
        anyio.run(_stdio, App(config, os.environ, clients=1, profiles=profiles))
        return 0
    from proxy.serving.access import Doorkeeper
    from proxy.serving.http import DEFAULT, address, listener

    tokens = TokenFile(token_file(os.environ))
    tokens.look()
    host, port = address(options.http or DEFAULT, token=token or tokens.exists, allowed_hosts=config.allowed_hosts)
    app = App(config, os.environ, clients=None, profiles=profiles)
    keeper = Doorkeeper(token, tokens, config.profiles, app.narrowed)
    anyio.run(_http, app, listener(host, port), keeper)
    return 0


async def _stdio(app: App) -> None:
    from proxy.serving.stdio import serve_stdio

    await serve_stdio(app.server, app.run)


async def _http(app: App, sock: object, keeper: object) -> None:
    import socket

    from proxy.serving.access import Doorkeeper
    from proxy.serving.http import serve_http

    assert isinstance(sock, socket.socket) and isinstance(keeper, Doorkeeper)
    await serve_http(
        app.server,
        sock,
        keeper=keeper,
        allowed_hosts=app.settings.allowed_hosts,
        status=app.status,
        session_idle_timeout=app.settings.session_idle_timeout,
        limits=app.settings.guard or GuardConfig(),
        background=[app.run],
    )
