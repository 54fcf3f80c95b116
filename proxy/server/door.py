"""The short way in for `tools/call`: frames that need nothing of the SDK are answered before it sees them.

Both ways lead to `ProxyServer.call`, where every rule is; a door only knows framing. It takes a frame when the
connection's era is known and the frame is plain; everything else (handshakes, lists, odd or malformed frames) goes to
the SDK, which costs about 1 ms of processor time a call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json

from proxy.caller import Caller
from proxy.server.client import Client
from proxy.step import start


class Server(Protocol):
    """Where a call goes."""

    def call(
        self, params: Mapping[str, Any], meta: Mapping[str, Any], caller: Caller, *, modern: bool
    ) -> Awaitable[dict[str, Any]]:
        """The result for the wire; raises MCPError."""
        ...


_IDS = (int, str)
_NO_META: Mapping[str, Any] = {}


class Call(NamedTuple):
    """A `tools/call` frame."""

    ident: int | str
    params: Mapping[str, Any]
    meta: Mapping[str, Any]

    @property
    def version(self) -> object:
        """The protocol version of its own envelope; None in the handshake era."""
        return self.meta.get(PROTOCOL_VERSION_META_KEY)

    @property
    def modern(self) -> bool:
        """Whether it has the whole envelope of the stateless era."""
        return self.version in MODERN_PROTOCOL_VERSIONS and isinstance(
            self.meta.get(CLIENT_CAPABILITIES_META_KEY), dict
        )


def frame(data: bytes) -> dict[str, Any] | None:
    """One JSON object, or None where anything about it is for the SDK to judge."""
    try:
        value: object = from_json(data, allow_inf_nan=False)
    except ValueError:
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def tool_call(message: Mapping[str, Any]) -> Call | None:
    """The plain `tools/call` that a frame is, or None."""
    ident: Any = message.get("id")
    params = message.get("params")
    if message.get("method") != "tools/call" or message.get("jsonrpc") != "2.0" or type(ident) not in _IDS:
        return None
    if not isinstance(params, dict):
        return None
    fields = cast(dict[str, Any], params)
    meta = fields.get("_meta", _NO_META)
    return Call(ident, fields, meta) if isinstance(fields.get("name"), str) and isinstance(meta, dict) else None


async def answer(server: Server, call: Call, client: Client, name: str | None, *, modern: bool) -> dict[str, Any]:
    """The response frame of a call."""
    try:
        result = await server.call(call.params, call.meta, client.caller(name, call.params), modern=modern)
    except MCPError as error:
        fields: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            fields["data"] = error.data
        return {"jsonrpc": "2.0", "id": call.ident, "error": fields}
    return {"jsonrpc": "2.0", "id": call.ident, "result": result}


class StdioDoor:
    """The door of a stdio connection. It opens once the SDK has agreed with the client on an era."""

    def __init__(self, server: Server, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        """`send` writes a frame to the client."""
        self._server, self._send = server, send
        self._client: Client | None = None
        self._name: str | None = None
        self._tasks: dict[int | str, asyncio.Task[None]] = {}

    @property
    def is_open(self) -> bool:
        """Whether the era is known."""
        return self._client is not None

    def open(self, client: Client, name: str | None) -> None:
        """The client has said who it is."""
        self._client, self._name = client.with_meta({}), name

    def take(self, line: bytes) -> bool:
        """See a line before the SDK does; True if it was dealt with here."""
        if self._client is None:
            return False
        if b'"tools/call"' in line:
            return self._take_call(line, self._client)
        return bool(self._tasks) and b'"notifications/cancelled"' in line and self._take_cancel(line)

    def _take_call(self, line: bytes, client: Client) -> bool:
        message = frame(line)
        call = tool_call(message) if message is not None else None
        if call is None or call.ident in self._tasks:
            return False
        if client.stateless or call.meta:
            if not (call.modern if client.stateless else call.version is None):
                return False
            client = client.with_meta(call.meta)
        task = start(self._answer(call, client))
        if not task.done():
            self._tasks[call.ident] = task
        return True

    async def _answer(self, call: Call, client: Client) -> None:
        try:
            await self._send(await answer(self._server, call, client, self._name, modern=client.stateless))
        except anyio.BrokenResourceError:
            pass  # the client is gone
        finally:
            # A client may use the id again right behind its cancel, while this one is still ending.
            if self._tasks.get(call.ident) is asyncio.current_task():
                del self._tasks[call.ident]

    def _take_cancel(self, line: bytes) -> bool:
        message = frame(line) or {}
        params = message.get("params")
        ident = cast(dict[str, Any], params).get("requestId") if isinstance(params, dict) else None
        task = self._tasks.get(ident) if isinstance(ident, int | str) else None
        if message.get("method") != "notifications/cancelled" or task is None:
            return False
        self._tasks = {k: t for k, t in self._tasks.items() if t is not task}  # one that never began would stay
        task.cancel()
        return True

    async def close(self) -> None:
        """The client is gone: its calls are cancelled, which tells the upstreams."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
