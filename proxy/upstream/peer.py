"""Peer: JSON-RPC 2.0 with one upstream, raw dicts in and out.

A transport (`stdio.py`, `http.py`) attaches a `Link`, feeds every inbound value to `receive`, and says `close` when
the connection has ended. Nothing is validated beyond what correlation needs: the SDK's session would drop unknown
fields and leave a malformed answer waiting for its time-out; here it fails its own request, at once, with a reason.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import anyio

from proxy.errors import RpcError, UpstreamFailure
from proxy.step import settle
from proxy.text import one_line, shorten
from proxy.upstream.backlog import Backlog
from proxy.wire import INTERNAL_ERROR, decode

log = logging.getLogger(__name__)

METHOD_NOT_FOUND = -32601
REASON_GRACE = 1.0
"""Seconds in which the reason for an end that is seen already is waited for."""
MOST_PROGRESS = 1_000
"""Messages of one request that wait for its client; beyond, the oldest go, since each says more than those before."""

UNREAD = 5.0
"""Seconds that an answer waits for its client to read the progress before it. Who reads nothing would hold the request,
and with it a place of `max_concurrency`, for ever."""

OnProgress = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Gets the params of a `notifications/progress` as they came, still under our own token."""


class Link(Protocol):
    """The write side of a connection."""

    takes_headers: bool
    """Whether messages travel with headers (HTTP)."""

    def send(self, message: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Queue one message. Raises OSError when the connection is known to be gone.

        Nobody waits for a long queue to shorten: who sent a request waits for its answer anyway, within its time.
        """
        ...


@dataclass(slots=True)
class _Progress:
    waiting: Backlog = field(default_factory=lambda: Backlog(MOST_PROGRESS))
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when more waits, or the outcome is there."""


@dataclass(slots=True)
class _Pending:
    outcome: "asyncio.Future[dict[str, Any]]"
    progress: _Progress | None
    timeout: float
    deadline: float = math.inf
    """Loop time at which it has had no progress for `timeout` seconds."""
    cancellable: bool = True


@dataclass(eq=False)
class Peer:
    """One connection's requests, notifications and their answers."""

    server: str
    on_notification: Callable[[str, Mapping[str, Any]], None]
    on_request: Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]] | None = None
    """Answers a request of the server with a result, or raises RpcError; None declines all but `ping`."""
    decode: Callable[[bytes], Any] = decode
    """Makes a value of an inbound message, for the transport; raises ValueError or RecursionError."""
    closed: anyio.Event = field(default_factory=anyio.Event)
    reason: str = ""
    """Why the connection ended."""
    _link: Link | None = None
    _pending: dict[int | str, _Pending] = field(default_factory=dict[int | str, _Pending])
    _next: int = 0
    _asked: dict[int | str, asyncio.Task[None]] = field(default_factory=dict[int | str, "asyncio.Task[None]"])
    """Requests of the server that are being answered, by its ids."""
    _held: int = 0
    _told: bool = False
    """Whether it was said that progress was dropped."""
    _alarm: "asyncio.TimerHandle | None" = None
    _alarm_at: float = math.inf

    def attach(self, link: Link) -> None:
        """Say where messages go."""
        self._link = link

    @property
    def attached(self) -> bool:
        """Whether messages can be sent."""
        return self._link is not None

    @property
    def takes_headers(self) -> bool:
        """Whether messages travel with headers."""
        return self._link is not None and self._link.takes_headers

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        return len(self._pending)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout: float = math.inf,
        on_progress: OnProgress | None = None,
        headers: Mapping[str, str] | None = None,
        cancellable: bool = True,
    ) -> dict[str, Any]:
        """Send a request and return its result dict, untouched.

        `timeout` is in seconds without progress. Cancelling the caller, and the time-out, tell the upstream so,
        unless the request is one that must not be cancelled (`initialize`, `server/discover`).

        Raises:
            RpcError: the upstream answered with a JSON-RPC error.
            UpstreamFailure: it did not answer, or with something that is not an answer.
        """
        link = self._link
        if link is None:
            raise UpstreamFailure(self.server, self.reason or "not connected", may_have_run=False)
        self._next += 1
        ident = self._next
        if on_progress is not None:
            params = {**params, "_meta": {**(params.get("_meta") or {}), "progressToken": ident}}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": ident, "method": method}
        if params:
            message["params"] = params
        loop = asyncio.get_running_loop()
        progress = _Progress() if on_progress is not None else None
        pending = self._pending[ident] = _Pending(loop.create_future(), progress, timeout, cancellable=cancellable)
        if timeout < math.inf:
            pending.deadline = loop.time() + timeout
            self._wake_at(pending.deadline)
        try:
            try:
                link.send(message, headers)
            except OSError as error:
                if isinstance(error, BrokenPipeError):  # the connection has ended, and why will be known in a moment
                    with anyio.move_on_after(REASON_GRACE):
                        await self.closed.wait()
                raise UpstreamFailure(
                    self.server, self.reason or f"could not send: {error}", may_have_run=False
                ) from None
            if progress is not None and on_progress is not None:
                await _pass_on(progress, on_progress, pending.outcome)
            return await pending.outcome
        except asyncio.CancelledError:
            if cancellable:
                self.notify("notifications/cancelled", {"requestId": ident, "reason": "cancelled by the client"})
            raise
        finally:
            del self._pending[ident]
            pending.outcome.cancel()

    # One timer for all requests, for the earliest deadline: on the path of a call even a timer of its own would show.

    def _wake_at(self, deadline: float) -> None:
        if deadline < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = deadline
            self._alarm = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail the requests whose time is up; while the server waits for an answer of ours, no time runs."""
        self._alarm, self._alarm_at = None, math.inf
        now = asyncio.get_running_loop().time()
        for ident, pending in list(self._pending.items()):
            if self._held:
                pending.deadline = now + pending.timeout
            if pending.deadline > now:
                self._wake_at(pending.deadline)
            elif not pending.outcome.done():
                reason = f"no answer within {pending.timeout:g} s (timeout)"
                self._settle(pending, UpstreamFailure(self.server, reason, may_have_run=True))
                if pending.cancellable:
                    self.notify("notifications/cancelled", {"requestId": ident, "reason": "timed out"})

    async def settled(self, ident: int | str) -> None:
        """Wait until the request with that id has its outcome, whatever it is."""
        if (pending := self._pending.get(ident)) is not None:
            await asyncio.wait([pending.outcome])

    async def idle(self) -> None:
        """Wait until no request is in flight, or the connection has ended."""
        while self._pending and not self.closed.is_set():
            await asyncio.wait([p.outcome for p in self._pending.values()])
            await asyncio.sleep(0)

    def notify(
        self, method: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a notification; a connection that is gone swallows it."""
        if self._link is not None:
            message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
            if params:
                message["params"] = params
            try:
                self._link.send(message, headers)
            except OSError as error:
                log.debug("server %r: %s not sent: %s", self.server, method, error)

    # What the transport feeds in.

    def receive(self, message: object) -> bool:
        """Take one inbound JSON value; False when it is not JSON-RPC at all. What is odd about one harms no other."""
        try:
            if not isinstance(message, list):
                return self._receive(message)
            # A batch, as 2025-03-26 allows.
            understood = [self._receive(each) for each in cast(list[object], message)]
            return bool(understood) and all(understood)
        except ValueError:  # a number of more digits than Python writes
            return False

    def _receive(self, message: object) -> bool:
        if not isinstance(message, dict):
            return False
        frame = cast(dict[str, Any], message)
        method = frame.get("method")
        if isinstance(method, str):
            params = frame.get("params")
            self._inbound(method, cast(Mapping[str, Any], params) if isinstance(params, dict) else {}, frame)
            return True
        if "result" not in frame and "error" not in frame:
            return False
        pending = self._waiting(frame.get("id"))
        if pending is None:
            log.debug("server %r: answer to an unknown request id %r", self.server, frame.get("id"))
            return True
        error = frame.get("error")
        if error is not None:
            self._settle(pending, self._error(error))
        elif isinstance(frame["result"], dict):
            self._settle(pending, cast(dict[str, Any], frame["result"]))
        else:
            self._settle(pending, self._malformed(frame["result"]))
        return True

    def fail(self, ident: object, reason: str, *, may_have_run: bool = True, cause: Exception | None = None) -> None:
        """Fail the one request with that id, because of `cause` where that says more; unknown ids are ignored."""
        if (pending := self._waiting(ident)) is not None:
            failure = UpstreamFailure(self.server, reason, may_have_run=may_have_run)
            failure.__cause__ = cause
            self._settle(pending, failure)

    def close(self, reason: str) -> None:
        """The connection has ended: every waiting request fails with `reason`. The first reason stays."""
        if self.closed.is_set():
            return
        self.reason, self._link = reason, None
        self.closed.set()
        if self._alarm is not None:
            self._alarm.cancel()
        for pending in list(self._pending.values()):
            self._settle(pending, UpstreamFailure(self.server, reason, may_have_run=True))
        for task in self._asked.values():
            task.cancel()

    def _waiting(self, ident: object) -> _Pending | None:
        if isinstance(ident, str) and ident.isdecimal():
            ident = int(ident)  # servers that turn ids into strings
        elif isinstance(ident, float) and ident.is_integer():
            ident = int(ident)  # or, without integers of their own, into floats
        return self._pending.get(ident) if type(ident) is int else None

    def _error(self, error: object) -> Exception:
        if isinstance(error, dict):
            fields = cast(dict[str, Any], error)
            code, text = fields.get("code"), fields.get("message")
            if isinstance(code, int) and not isinstance(code, bool) and isinstance(text, str):
                return RpcError(code, text, fields.get("data"))
        return self._malformed(cast(object, error))

    def _malformed(self, what: object) -> UpstreamFailure:
        try:
            said = shorten(one_line(repr(what)), 200)
        except ValueError:
            said = "a number of too many digits"
        return UpstreamFailure(self.server, f"malformed answer: {said}", may_have_run=True)

    @staticmethod
    def _settle(pending: _Pending, outcome: dict[str, Any] | Exception) -> None:
        if not pending.outcome.done():
            if isinstance(outcome, Exception):
                pending.outcome.set_exception(outcome)
                # The waiter may be gone; asyncio would log "exception was never retrieved".
                pending.outcome.exception()
            else:
                settle(pending.outcome, outcome)
            if pending.progress is not None:
                pending.progress.news.set()

    def _inbound(self, method: str, params: Mapping[str, Any], frame: dict[str, Any]) -> None:
        if "id" in frame:
            self._asked_for(frame["id"], method, params)
        elif method == "notifications/cancelled":
            ident = params.get("requestId")
            if isinstance(ident, int | str) and (task := self._asked.get(ident)) is not None:
                task.cancel()
        elif method == "notifications/progress":
            pending = self._waiting(params.get("progressToken"))
            if pending is not None:
                pending.deadline = asyncio.get_running_loop().time() + pending.timeout
                if pending.progress is not None and not pending.outcome.done():
                    pending.progress.news.set()
                    if not pending.progress.waiting.put(params) and not self._told:
                        self._told = True
                        log.warning("server %r tells more progress than its client reads: the oldest goes", self.server)
        else:
            self.on_notification(method, params)

    def _asked_for(self, ident: object, method: str, params: Mapping[str, Any]) -> None:
        if not isinstance(ident, int | str) or ident in self._asked:
            log.debug("server %r: a request with the unusable id %r is ignored", self.server, ident)
        elif method == "ping":
            self._reply({"jsonrpc": "2.0", "id": ident, "result": {}})
        elif self.on_request is None:
            self._reply({"jsonrpc": "2.0", "id": ident, "error": _declined(method)})
        else:
            task = asyncio.get_running_loop().create_task(self._answer(ident, method, params, self.on_request))
            self._asked[ident] = task
            task.add_done_callback(lambda _: self._asked.pop(ident, None))

    async def _answer(
        self,
        ident: int | str,
        method: str,
        params: Mapping[str, Any],
        answer: Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]],
    ) -> None:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": ident}
        try:
            with self._hold():
                reply["result"] = await answer(method, params)
        except RpcError as error:
            reply["error"] = {"code": error.code, "message": error.message}
            if error.data is not None:
                reply["error"]["data"] = error.data
        except Exception:
            log.exception("server %r: its request %s could not be answered", self.server, shorten(one_line(method), 60))
            reply["error"] = {"code": INTERNAL_ERROR, "message": "the proxy could not answer this request"}
        self._reply(reply)

    def _reply(self, reply: dict[str, Any]) -> None:
        if self._link is not None:
            try:
                self._link.send(reply)
            except OSError as error:
                log.debug("server %r: answer not sent: %s", self.server, error)

    @contextmanager
    def _hold(self) -> Generator[None]:
        """While the server waits for an answer of ours (a person may have to give it), its own time does not run."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            now = asyncio.get_running_loop().time()
            for pending in self._pending.values():
                pending.deadline = now + pending.timeout


async def _pass_on(progress: _Progress, on_progress: OnProgress, outcome: "asyncio.Future[Any]") -> None:
    """Pass progress on until the outcome is there, and what is left then while the client reads it in time."""
    with anyio.CancelScope() as telling:

        def hurry(answered: "asyncio.Future[Any]") -> None:
            telling.deadline = answered.get_loop().time() + UNREAD

        outcome.add_done_callback(hurry)
        while progress.waiting or not outcome.done():
            if progress.waiting:
                await on_progress(progress.waiting.take())
            else:
                progress.news.clear()
                await progress.news.wait()


def _declined(method: str) -> dict[str, Any]:
    return {"code": METHOD_NOT_FOUND, "message": f"Method not found: {method}"}
