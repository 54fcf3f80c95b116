"""Calls: sending requests on whatever session a connection has, and what may be done again.

What may have run is never sent twice. A request that provably did not run is sent once more where that can help:
when there is another session by then (the first was lost, or forgotten), or when it was rejected for its headers.
"""

import time
from collections.abc import Awaitable, Mapping
from typing import Any, cast

import anyio
from mcp_types import LOG_LEVEL_META_KEY

from proxy.caller import Caller, Origin
from proxy.errors import RpcError, UpstreamFailure
from proxy.masking import mask
from proxy.upstream.breaker import Breaker
from proxy.upstream.connection import Connection
from proxy.upstream.failure import with_login
from proxy.upstream.session import Session

HEADER_MISMATCH = -32020
PROTOCOL_META = "io.modelcontextprotocol/"
"""Prefix of the `_meta` keys that describe one hop and never travel on."""
SLOW = 2.0
"""Seconds after which a call that could not be sent has cost a wait, which the breaker is to spare others."""
MAX_ROUNDS = 10
"""How often one call may ask its client for more."""


class _Lost(UpstreamFailure):
    """The connection ended while the call was on its way."""

    def __init__(self, failure: UpstreamFailure, session: Session) -> None:
        super().__init__(failure.server, failure.reason, may_have_run=failure.may_have_run)
        self.session = session


class Calls:
    """The requests of clients to one upstream."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._breaker = Breaker(connection.config.key)
        limit = connection.config.max_concurrency
        self._slots = anyio.Semaphore(limit) if limit > 0 else None

    async def request(
        self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """Send a request and return the result dict as it came.

        `meta` is the caller's `_meta`; what belongs to the caller's own hop is left out. A stateless upstream that
        asks for input of a handshake client gets it by asking that client live.

        Raises:
            RpcError: the upstream answered with a JSON-RPC error.
            UpstreamFailure: it did not answer.
        """
        if meta:
            forwarded = {k: v for k, v in meta.items() if k != "progressToken" and not k.startswith(PROTOCOL_META)}
            params = {**params, "_meta": forwarded} if forwarded else params
        if not self._breaker.closed:
            self._breaker.check(connected=self._connection.session is not None)
        config = self._connection.config
        began = time.monotonic()
        if self._slots is not None:
            await self._slots.acquire()
        try:
            # What the server asks meanwhile is asked of this caller's client.
            async with self._connection.questions.call_of(caller.origin):
                try:
                    result = await self._twice_if_unsent(method, params, caller)
                    if result.get("resultType") == "input_required":
                        result = await self._with_answers(result, method, params, caller)
                finally:
                    # Before the client has read what was said meanwhile: it may never do so.
                    self._connection.used()
                    if self._slots is not None:
                        self._slots.release()
        except UpstreamFailure as failure:
            lost = failure.session if isinstance(failure, _Lost) else None
            # A server that refuses at once needs no breaker, and a call that asks is what finds it up again.
            if failure.may_have_run or time.monotonic() - began > SLOW:
                self._breaker.failed(failure.reason, reached=failure.may_have_run, lost=lost)
            login = with_login(failure.reason, config.key, self._connection.may_want_login)
            reason = mask(login or failure.reason, config.secrets)
            raise UpstreamFailure(config.key, reason, may_have_run=failure.may_have_run) from None
        except RpcError:
            self._breaker.answered()
            raise
        self._breaker.answered()
        return result

    async def _with_answers(
        self, result: dict[str, Any], method: str, params: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """The result once a handshake client has been asked what a stateless server wants to know."""
        origin = caller.origin
        for _ in range(MAX_ROUNDS):
            if result.get("resultType") != "input_required" or origin is None or origin.stateless:
                break
            try:
                answers = await _asked(result, origin)
            except RpcError:
                break  # the client cannot answer; the result says what was asked
            caller = caller._replace(answers=answers)
            result = await self._twice_if_unsent(method, params, caller)
        return result

    async def _twice_if_unsent(self, method: str, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        session = self._connection.trusted or await self._connection.verified()
        try:
            return await self._sent(session, method, params, caller)
        except UpstreamFailure as failure:
            if failure.may_have_run or await self._connection.verified() is session:
                raise _lost(failure, session) from None
        except RpcError as error:
            if error.code != HEADER_MISMATCH:
                raise
            await self._connection.lists.read(session)  # rejected before it ran: the tool's schema has changed
        session = await self._connection.verified()
        try:
            return await self._sent(session, method, params, caller)
        except UpstreamFailure as failure:
            raise _lost(failure, session) from None

    def _sent(
        self, session: Session, method: str, params: Mapping[str, Any], caller: Caller
    ) -> Awaitable[dict[str, Any]]:
        capabilities: dict[str, Any] = {}
        origin = caller.origin
        if session.modern:
            params = {**params, **caller.answers}
            if origin is not None:
                capabilities = self._connection.questions.allowed(origin.capabilities)
                if origin.log_level is not None:
                    params["_meta"] = {**params.get("_meta", {}), LOG_LEVEL_META_KEY: origin.log_level}
        return session.request(
            method,
            params,
            timeout=self._connection.config.timeout,
            on_progress=caller.on_progress,
            capabilities=capabilities,
        )


def _lost(failure: UpstreamFailure, session: Session) -> UpstreamFailure:
    """The failure, with the session where that has ended."""
    return _Lost(failure, session) if session.peer.closed.is_set() else failure


async def _asked(result: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """Ask a handshake client what a stateless upstream wants to know; raises RpcError where it cannot answer."""
    answers: dict[str, Any] = {}
    requests = result.get("inputRequests")
    for key, request in (cast(dict[str, Any], requests) if isinstance(requests, dict) else {}).items():
        answers[key] = await origin.ask(request["method"], request.get("params") or {})
    again: dict[str, Any] = {"inputResponses": answers} if answers else {}
    if "requestState" in result:
        again["requestState"] = result["requestState"]
    return again
