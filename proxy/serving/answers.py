"""The answer of a call over HTTP: one JSON object, or an event stream where the call takes long."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from starlette.types import Send

from proxy.wire import encode_answer

PATIENCE = 0.5
"""Seconds a call may take before its response begins, as an event stream."""
COMMENT_EVERY = 15.0
"""Seconds between comments on an open stream: clients and proxies cut silent ones (failure report X9)."""


class Work:
    """A call on its way to its answer, in the task that the request has anyway: one of its own would cost 40 us."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._task = asyncio.current_task()
        self._cancelled = self._done = False

    def cancel(self) -> None:
        """End the call, whose client does not want it any more."""
        if self._task is not None and not self._done and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    async def respond(self, calling: Coroutine[Any, Any, dict[str, Any]], *, modern: bool) -> None:
        """Send the frame that `calling` returns; nothing where the call was cancelled."""
        stream = _Stream(self._send)
        frame: dict[str, Any] | None = None
        try:
            frame = await calling
        except asyncio.CancelledError:
            if not self._cancelled or self._task is None:
                raise
            self._task.uncancel()
        finally:
            self._done = True
            begun = await stream.end()
        if begun:
            body = b"" if frame is None else b"event: message\ndata: " + encode_answer(frame) + b"\n\n"
            await self._send({"type": "http.response.body", "body": body})
        elif frame is None:
            await send_json(self._send, 202, None)
        else:
            await send_json(self._send, _status(frame) if modern else 200, frame)


class _Stream:
    """Begins the answer, as an event stream, when it is late, so that the client sees life."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._live())

    async def _live(self) -> None:
        head = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]
        await self._send({"type": "http.response.start", "status": 200, "headers": head})
        self._begun = True
        while True:
            await self._send({"type": "http.response.body", "body": b": still running\n\n", "more_body": True})
            await asyncio.sleep(COMMENT_EVERY)

    async def end(self) -> bool:
        """No more signs of life; whether the answer has begun."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        return self._begun


def _status(answer: Mapping[str, Any]) -> int:
    """The stateless era gives some errors an HTTP status (2026-07-28, Streamable HTTP), the same as the SDK's."""
    return ERROR_CODE_HTTP_STATUS.get(answer["error"].get("code"), 200) if "error" in answer else 200


async def send_json(send: Send, status: int, value: dict[str, Any] | None) -> None:
    """Answer with one JSON object, or with no body."""
    body = encode_answer(value) if value is not None else b""
    headers = [(b"content-length", str(len(body)).encode())]
    if value is not None:
        headers.append((b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
