"""`connect`: a stdio server that passes every message to the daemon and back, for hosts that speak only stdio.

All such hosts then share the daemon's one set of upstreams.
"""

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import httpx2

from proxy.cli.common import own_token
from proxy.config import find
from proxy.errors import ConfigError
from proxy.serving.pipes import client_pipes
from proxy.serving.shim import Shim
from proxy.serving.stdio import stop_on_signal
from proxy.wire import decode

UP_WITHIN = 20.0
"""Seconds that a daemon that we start has to listen."""


def run(options: argparse.Namespace) -> int:
    """Until the client is gone; raises ConfigError where the daemon cannot be reached."""
    token = own_token(options.connect_token)
    url = "/".join([endpoint(options.url), *(options.profile or ())])
    anyio.run(_run, url, token, options)
    return 0


def endpoint(text: str) -> str:
    """Where the daemon takes messages: `text` as a URL, with what its `--http` does not ask for either put in."""
    text = f"127.0.0.1:{text}" if text.isdecimal() else text
    url = (text if "://" in text else f"http://{text}").rstrip("/")
    return url if urlsplit(url).path else f"{url}/mcp"


async def _run(url: str, token: str | None, options: argparse.Namespace) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    timeout = httpx2.Timeout(30, read=None)
    # One connection for each call in flight, and none through a proxy: the daemon is here.
    async with httpx2.AsyncClient(headers=headers, timeout=timeout, limits=httpx2.Limits(), trust_env=False) as http:
        if not await _up(http, url):
            if not options.start:
                raise ConfigError(f"no daemon at {url}; start one with: narrow-waist --http, or add --start")
            _start(url, options)
            with anyio.move_on_after(UP_WITHIN):
                while not await _up(http, url):  # noqa: ASYNC110 - nothing tells when a port opens
                    await anyio.sleep(0.1)
            if not await _up(http, url):
                raise ConfigError(f"the daemon at {url} did not come up; see: narrow-waist --http")
        await _pass(http, url)


async def _pass(http: httpx2.AsyncClient, url: str) -> None:
    """Join the client's pipes and the daemon until one of them is gone, or a signal comes."""
    send, frames = anyio.create_memory_object_stream[dict[str, Any]](math.inf)

    def take(line: bytes) -> bool:
        """Sees each line of the client; what is no message is left to the reader, which answers it."""
        try:
            value: object = decode(line)
        except (ValueError, RecursionError):
            return False
        batch: list[object] = cast(list[object], value) if isinstance(value, list) and value else [value]
        if not all(isinstance(frame, dict) for frame in batch):
            return False
        for frame in batch:
            send.send_nowait(cast(dict[str, Any], frame))
        return True

    async with client_pipes() as (reader, writer), anyio.create_task_group() as tasks:
        reader.door = take

        async def until_the_end() -> None:
            async for frame in reader.frames():  # what could be saved of a batch with something else in it
                send.send_nowait(frame)
            send.close()

        async def until_nobody_reads() -> None:
            await writer.gone.wait()
            tasks.cancel_scope.cancel()

        for each in (until_the_end, until_nobody_reads):
            tasks.start_soon(each)
        tasks.start_soon(stop_on_signal, tasks.cancel_scope.cancel)
        with frames:
            await Shim(http, url, writer.send_frame).serve(frames)
        tasks.cancel_scope.cancel()


async def _up(http: httpx2.AsyncClient, url: str) -> bool:
    parts = urlsplit(url)
    try:
        return (await http.get(f"{parts.scheme}://{parts.netloc}/health", timeout=5)).status_code == 200
    except httpx2.HTTPError:
        return False


def _start(url: str, options: argparse.Namespace) -> None:
    """Start the daemon for good: it outlives us, and the host that started us."""
    served = ["--demo"] if options.demo else ["--config", str(find(options.config, os.environ, Path.cwd()).absolute())]
    words = [sys.executable, "-P", "-m", "proxy", "--http", urlsplit(url).netloc, *served]
    if options.connect_token:
        words += ["--token-file", str(Path(options.connect_token).expanduser().absolute())]
    nothing = subprocess.DEVNULL
    daemon = subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    sys.stderr.write(f"narrow-waist: started a daemon at {url}; it stays, until: kill {daemon.pid}\n")
