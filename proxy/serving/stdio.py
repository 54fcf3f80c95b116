"""One client over stdio: ends with the end of stdin, the client's death, or a signal."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from proxy.server import ProxyServer, StdioDoor
from proxy.serving.pipes import client_pipes

log = logging.getLogger(__name__)

PARENT_POLL = 0.25
"""Seconds between looks at who our parent is: a second net, should somebody else hold our stdin open."""


async def serve_stdio(server: ProxyServer, *background: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Serve until the client is gone. `background` runs beside it and is cancelled, and awaited, at the end."""
    async with anyio.create_task_group() as tasks:
        for each in background:
            tasks.start_soon(each)
        tasks.start_soon(stop_on_signal, tasks.cancel_scope.cancel)
        tasks.start_soon(_stop_without_parent, tasks.cancel_scope)
        async with client_pipes() as (reader, writer):

            async def stop_without_reader() -> None:
                await writer.gone.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(stop_without_reader)
            server.door = StdioDoor(server, writer.send_frame)
            reader.door = server.door.take
            try:
                await server.sdk.run(reader, writer, server.sdk.create_initialization_options())
            finally:
                with anyio.CancelScope(shield=True):
                    await server.door.close()
        tasks.cancel_scope.cancel()


async def stop_on_signal(stop: Callable[[], object]) -> None:
    """Call `stop` at the first SIGINT, SIGTERM or SIGHUP; the last one not where it is ignored, as under `nohup`."""
    wanted = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.append(signal.SIGHUP)
    with anyio.open_signal_receiver(*wanted) as signals:
        async for received in signals:
            log.info("stopping on %s", received.name)
            stop()
            return


async def _stop_without_parent(scope: anyio.CancelScope) -> None:
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 - nothing tells of a parent's death
        await anyio.sleep(PARENT_POLL)
    log.info("stopping: the client's process is gone")
    scope.cancel()
