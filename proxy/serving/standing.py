"""One standing GET stream for each session: a new one replaces the old.

A client whose stream was cut somewhere on the way opens another while the first still looks alive to us. The SDK alone
answers that with 409, and the client gives the server up (failure report X9).
"""

from dataclasses import dataclass, field

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(eq=False)
class _Stream:
    replaced: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)

    async def receive(self, receive: Receive) -> Message:
        """The next message of the client; that it has hung up, once the stream is replaced."""
        message: Message = {"type": "http.disconnect"}
        async with anyio.create_task_group() as tasks:

            async def until_replaced() -> None:
                await self.replaced.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(until_replaced)
            message = await receive()
            tasks.cancel_scope.cancel()
        return message


class OneStream:
    """An ASGI layer in front of what is served over HTTP: it knows the streams that stay open, those of GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open: dict[object, _Stream] = {}
        """By session id; those of the SSE transport, which have none, each by itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on; of a second GET of a session, after the first has ended."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        session: object = dict(scope["headers"]).get(b"mcp-session-id", object())
        while (before := self._open.get(session)) is not None:
            before.replaced.set()
            await before.ended.wait()
        stream = self._open[session] = _Stream()
        under_way = False

        async def answer(message: Message) -> None:
            nonlocal under_way
            await send(message)
            under_way = message["type"] == "http.response.start" or message.get("more_body", False)

        try:
            await self._app(scope, lambda: stream.receive(receive), answer)
            if under_way:  # who was told that the client has hung up leaves the end of the response out
                await send({"type": "http.response.body", "body": b""})
        finally:
            del self._open[session]
            stream.ended.set()

    def end(self) -> None:
        """End every stream: the daemon stops, and whoever is cancelled later would be logged as an error."""
        for stream in self._open.values():
            stream.replaced.set()
