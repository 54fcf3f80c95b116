"""Forward: the path of a request that is not a call of a tool: reading or following a resource, getting a prompt,
completing.

    admit -> find -> deny -> ask -> send -> audit

The same stages as `dispatch` has for calls, asked of the same gate. Where nothing is guarded there is no gate.
"""

import logging
import time
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, cast

from proxy.caller import Caller
from proxy.errors import LIMITED, NotOffered, outcome_of
from proxy.guard import Gate
from proxy.offers import KINDS, Offers, Target

log = logging.getLogger(__name__)


class Upstreams(Protocol):
    """Whoever can send a request to a server."""

    def request(
        self, server: str, method: str, params: Mapping[str, Any], meta: Mapping[str, Any], caller: Caller
    ) -> Awaitable[dict[str, Any]]:
        """The server's result as it came; raises RpcError or UpstreamFailure."""
        ...

    async def subscribe(self, server: str, uri: str) -> None:
        """One more client follows a resource; raises what `request` raises."""
        ...


class Forwarder:
    """Takes such requests to the servers whose they are."""

    def __init__(self, upstreams: Upstreams, gate: Gate | None = None) -> None:
        self._upstreams, self._gate = upstreams, gate

    async def request(
        self, offers: Offers, method: str, params: Mapping[str, Any], meta: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """Send a request of one of `KINDS` to the server that offers what it names; `offers` are the caller's.

        Raises:
            NotOffered: the caller's offers have no such thing.
            Refused: it will not be sent.
            RpcError, UpstreamFailure: as the server answered, or did not.
        """
        started = time.perf_counter()
        gate, permit = self._gate, None
        target: Target | None = None
        result: dict[str, Any] | None = None
        outcome = "ok"
        try:
            if gate is not None:
                gate.admit(caller)
            target = self._find(offers, method, params, caller)
            if target.kind == "subscription":
                # Clients share the server's one, and nobody is asked: it tells when to read, and nothing of what.
                await self._upstreams.subscribe(target.server, target.name)
                result = {}
                return result
            if gate is not None:
                permit = await gate.ask_offer(target, caller)
                if permit.question is not None:
                    outcome = "asked"
                    return permit.question
                caller = permit.caller
            result = await self._upstreams.request(target.server, method, target.params, meta, caller)
            return result if gate is None or permit is None else gate.carried(target, result, permit)
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            seconds = time.perf_counter() - started
            kind = KINDS[method]
            unknown = "of a name" if outcome == LIMITED else "of an unknown name"
            real = f"{target.server} {target.name}" if target is not None else unknown
            log.info("%s %s by %s: %s, %.0f ms", kind, real, caller.client, outcome, seconds * 1e3)
            if gate is not None:
                gate.record_offer(kind, target, _named(params), caller, result, outcome, seconds)

    def _find(self, offers: Offers, method: str, params: Mapping[str, Any], caller: Caller) -> Target:
        target = offers.target(method, params)
        # Asked again of the scope itself, so that no way of making offers can ever let one through.
        if target is None or (self._gate is not None and self._gate.denies_offer(target, caller)):
            raise NotOffered(_named(params))
        return target


def _named(params: Mapping[str, Any]) -> str:
    """What the client has named."""
    given = params.get("ref", params)
    ref: Mapping[str, Any] = cast(Mapping[str, Any], given) if isinstance(given, Mapping) else {}
    return str(ref.get("name") if ref.get("type") == "ref/prompt" else ref.get("uri", ref.get("name")))
