"""Calls: sending requests on whatever session a connection has, and what may be done again.

What may have run is never sent twice. A request that provably did not run is sent once more where that can help:
when there is another session by then (the first was lost, or forgotten), or when it was rejected for its headers.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import anyio

from proxy.errors import RpcError, UpstreamFailure
from proxy.masking import mask
from proxy.upstream.breaker import Breaker
from proxy.upstream.connection import Connection
from proxy.upstream.peer import OnProgress

HEADER_MISMATCH = -32020
PROTOCOL_META = "io.modelcontextprotocol/"
"""Prefix of the `_meta` keys that describe one hop and never travel on."""


class Calls:
    """The calls of one upstream."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._breaker = Breaker(connection.config.key)
        limit = connection.config.max_concurrency
        self._slots: Any = anyio.Semaphore(limit) if limit > 0 else nullcontext()

    async def tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        *,
        meta: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        """Call the tool `name` (raw) and return the result dict as it came.

        `meta` is the caller's `_meta`; what belongs to the caller's own hop is left out.

        Raises:
            RpcError: the upstream answered with a JSON-RPC error.
            UpstreamFailure: it did not answer.
        """
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        forwarded = {k: v for k, v in (meta or {}).items() if k != "progressToken" and not k.startswith(PROTOCOL_META)}
        if forwarded:
            params["_meta"] = forwarded
        return await self._request("tools/call", params, on_progress)

    async def _request(self, method: str, params: dict[str, Any], on_progress: OnProgress | None) -> dict[str, Any]:
        self._breaker.check()
        config = self._connection.config
        try:
            async with self._slots:
                with self._connection.in_use():
                    result = await self._twice_if_unsent(method, params, on_progress)
        except UpstreamFailure as failure:
            self._breaker.failed(failure.reason)
            reason = mask(failure.reason, config.secrets)
            raise UpstreamFailure(config.key, reason, may_have_run=failure.may_have_run) from None
        except RpcError:
            self._breaker.answered()
            raise
        self._breaker.answered()
        return result

    async def _twice_if_unsent(
        self, method: str, params: dict[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        session = await self._connection.ready()
        try:
            return await self._send(method, params, on_progress)
        except UpstreamFailure as failure:
            if failure.may_have_run or await self._connection.verified(await self._connection.ready()) is session:
                raise
        except RpcError as error:
            if error.code != HEADER_MISMATCH:
                raise
            await self._connection.relist(session)  # rejected before it ran: the tool's schema has changed
        return await self._send(method, params, on_progress)

    async def _send(self, method: str, params: dict[str, Any], on_progress: OnProgress | None) -> dict[str, Any]:
        session = await self._connection.verified(await self._connection.ready())
        return await session.request(method, params, timeout=self._connection.config.timeout, on_progress=on_progress)
