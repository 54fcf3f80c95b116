"""`narrow-waist`: serve over stdio, or over HTTP with `--http`."""

import argparse
import logging
import os
from functools import partial
from pathlib import Path
from typing import cast

import anyio

from proxy.app import App
from proxy.cli.common import own_token, settings, token_file
from proxy.cli.logs import set_up_logging
from proxy.config import GuardConfig, Settings, load
from proxy.guard.tokens import TokenFile
from proxy.memory import keep_at_hand
from proxy.reload import Reload

log = logging.getLogger(__name__)


def run(options: argparse.Namespace) -> int:
    """Serve until the client is gone, or a signal; raises ConfigError."""
    keep_at_hand()
    config = settings(options)
    token = own_token(options.token_file)
    set_up_logging(logging.INFO, config, verbose=options.verbose, own=[token or ""])
    source = config.path or "the demo"  # told once nothing can refuse the command any more, whose error is one line
    profiles = tuple(options.profile or ())
    if options.http is None:
        from proxy.serving.stdio import serve_stdio

        app = App(config, os.environ, clients=1, profiles=profiles)
        log.info("serving the servers of %s", source)
        anyio.run(serve_stdio, app.server, app.run, _reload(config, app, listens=False).run)
        return 0
    from proxy.serving.access import Doorkeeper
    from proxy.serving.http import DEFAULT, address, listener, serve_http

    tokens = TokenFile(token_file(os.environ))
    tokens.look()
    host, port = address(options.http or DEFAULT, token=token or tokens.exists, allowed_hosts=config.allowed_hosts)
    app = App(config, os.environ, clients=None, profiles=profiles)
    serve = partial(
        serve_http,
        app.server,
        listener(host, port),
        keeper=Doorkeeper(token, tokens, lambda: app.settings.profiles, app.narrowed),
        allowed_hosts=config.allowed_hosts,
        status=app.status,
        session_idle_timeout=config.session_idle_timeout,
        limits=config.guard or GuardConfig(),
        background=[app.run, _reload(config, app, listens=True).run],
    )
    log.info("serving the servers of %s", source)
    anyio.run(serve)
    return 0


def _reload(config: Settings, app: App, *, listens: bool) -> Reload:
    """What takes up changes of the file that was found at the start."""
    return Reload(config, lambda: load(cast(Path, config.path), os.environ), app.take, listens=listens)
