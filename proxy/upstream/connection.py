"""Connection: one supervisor task per upstream, which alone enters and leaves everything the connection owns.

    starting -> ready -> (closed, lost) -> failed -> (back-off, or a call that wakes it) -> starting ...

The last good list survives every disconnect. `calls.py` sends on the session that `ready` gives. `end` ends it all.
"""

import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal

import anyio

from proxy.config import ServerConfig, child_environment
from proxy.errors import UpstreamFailure
from proxy.masking import mask
from proxy.text import one_line, shorten
from proxy.upstream.approach import Approach
from proxy.upstream.credentials import login_of
from proxy.upstream.doubt import Doubt
from proxy.upstream.failure import ConnectError, describe, explained, late, needs_login, single
from proxy.upstream.http import open_http
from proxy.upstream.lists import Lists
from proxy.upstream.peer import Peer
from proxy.upstream.questions import Clients, Questions
from proxy.upstream.reaper import Reaper
from proxy.upstream.session import Session, negotiate
from proxy.upstream.snapshot import Snapshot
from proxy.upstream.sse import open_sse
from proxy.upstream.starts import Starts, Turn
from proxy.upstream.stdio import LastWords, open_stdio

log = logging.getLogger(__name__)

State = Literal["known", "starting", "ready", "failed", "stopped"]

BACKOFF_BASE, BACKOFF_CAP, PERMANENT_DELAY = 0.5, 60.0, 300.0
PROVEN = 30.0
"""Seconds a connection must have lasted to count as good, so that a crash loop keeps backing off."""
START_DELAY = 2.0
"""Seconds in which the first client is answered before servers known from disk take the processor to start."""
MIN_RETRY = 1.0
"""Seconds between attempts that calls may ask for."""
LOST_GRACE = 10.0
"""Seconds that calls in flight keep a connection whose session is lost, or that is to end."""
TIDY = 0.5
"""Seconds the error of a call may wait for the last words of a server that has just failed."""


@dataclass(eq=False)
class Connection:
    """One upstream: its process or HTTP session, its list, its state."""

    config: ServerConfig
    environ: Mapping[str, str]
    snapshot: Snapshot
    reaper: Reaper
    clients: Clients
    on_change: Callable[["Connection"], None]
    on_updated: Callable[["Connection", str], None]
    """Called with the URI of a resource that has changed."""
    starts: Starts
    state: State = "stopped"
    reason: str = ""
    """Why it is not ready, in words; "" while it is."""
    needs_login: bool = False
    """Whether that is a login which only a person can make."""
    next_try: float | None = None
    """`time.time()` of the next attempt."""
    log_level: str | None = None
    """The least level of log messages that any client asked for."""
    connect_seconds: float | None = None
    """How long the last successful connect took."""

    def __post_init__(self) -> None:
        self.last_words = LastWords(self.config.key, self._mask)
        self._login = login_of(self.config, self.environ)
        self._session: Session | None = None
        self._approach = Approach(self.config)
        self._turn = Turn()
        self._attempts = self._refused = 0
        """Attempts that are over, and those of them that never got ready: losing a good connection is no refusal."""
        self._tried_at = -math.inf
        self._changed = anyio.Event()
        self._wake = anyio.Event()
        self._lost = anyio.Event()
        self._doubt = Doubt()
        self._closing = self._idle = False
        self._life: anyio.CancelScope | None = None
        self._end = "the proxy is stopping"
        """Why it ends when it does."""
        self._last_used = -math.inf
        self.questions = Questions(self.config, self.clients, self._mask)
        self.lists = Lists(self.config, self.snapshot, lambda: self.on_change(self))
        if self.lists.found is not None:
            self.state = "known"
            if self.lists.modern is not None:
                self._approach.agreed(modern=self.lists.modern)

    @property
    def may_want_login(self) -> bool:
        """Whether it is at an address, and nothing that is configured goes in the place of a login."""
        return self._login is not None

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for: its list is known, an attempt or the wait was in vain, or it ends."""
        tried = self._attempts > 0 and self.state == "failed"
        return self.lists.waited or self.lists.found is not None or tried or self._closing

    @property
    def trouble(self) -> str:
        """Why it is not ready, in words, and when the next attempt follows."""
        if self.next_try is not None and not self.clients.once:
            return f"{self.reason} (next try in {max(0.0, self.next_try - time.time()):.0f} s)"
        return self.reason or {"starting": "still starting", "known": "not started yet"}.get(self.state, self.state)

    async def wait_tried(self) -> None:
        """Wait until it is ready, an attempt to connect has failed, or it ends."""
        while self.state != "ready" and not (self._attempts and self.state == "failed") and not self._closing:
            await self._changed.wait()

    async def wait_settled(self) -> None:
        """Wait until `settled`."""
        while not self.settled:
            await self._changed.wait()

    # Supervision: everything below runs in the one supervisor task.

    async def run(self) -> None:
        """Connect, serve, reconnect, until cancelled or ended. Never raises for anything an upstream does."""
        with anyio.CancelScope() as self._life:
            if not self._closing:
                await self._run()

    async def _run(self) -> None:
        try:
            if self.config.problem is not None:
                self._attempts += 1
                self._set("failed", self.config.problem)
                await anyio.sleep_forever()
            await self._until_wanted()
            failures = 0
            while True:
                self._set("starting", self.reason, needs_login=self.needs_login)
                self._wake, self._lost = anyio.Event(), anyio.Event()
                self._approach.begun()
                self._turn = await self.starts.turn(self) if self.config.transport == "stdio" else Turn()
                self._tried_at = started = anyio.current_time()
                attempts, error = self._attempts, None
                try:
                    await self._serve()
                except Exception as caught:
                    error = single(caught)
                finally:
                    self._turn.over()
                was_ready = self._session is not None
                self._session = None
                if self._lost.is_set() and was_ready:
                    continue
                if self._idle:
                    self._idle, self._wake = False, anyio.Event()
                    self._set("stopped", "")
                    await self._wake.wait()
                    continue
                if not was_ready:
                    if self._approach.again:
                        continue
                    error = self._approach.failed(error)
                if self._attempts == attempts:
                    self._attempts += 1  # it failed before there was anything to talk to
                    self._refused += 1
                failures = 1 if anyio.current_time() - started > PROVEN else failures + 1
                await self._pause(error, failures)
        finally:
            self._session, self._closing = None, True
            self._set("stopped", self._end)

    def end(self) -> None:
        """End it now, whatever is in flight."""
        self._closing = True
        self._set(self.state, self._end)  # nobody has to wait for it any more
        if self._life is not None:
            self._life.cancel()

    async def leave(self, reason: str) -> None:
        """End it for a reason; the calls in flight get their answers first, if they take no longer than 10 s."""
        self._end = reason
        if self._session is not None:
            with anyio.move_on_after(LOST_GRACE):
                await self._session.peer.idle()
        self.end()

    def take(self, config: ServerConfig) -> None:
        """Go on under another configuration of the same server; its part of the catalog is made anew."""
        self.config = config
        self.lists.take(config)
        self._set(self.state, self.reason)  # what waits may have to wait for another time

    async def _until_wanted(self) -> None:
        """A server seen before need not start before the client has been answered, a lazy one before a call.

        But for a few servers, which the fleet wakes at once.
        """
        if self.lists.waited:
            lazy = self.config.start == "lazy" and self.lists.found is not None
            with anyio.move_on_after(math.inf if lazy else START_DELAY):
                await self._wake.wait()

    async def _pause(self, error: Exception | None, failures: int) -> None:
        # Its name stands before the reason wherever that is told.
        said = error.reason if isinstance(error, UpstreamFailure) else describe(error) if error else self.reason
        reason = self._mask(shorten(one_line(said), 500))
        permanent = isinstance(error, ConnectError) and error.permanent
        cap = PERMANENT_DELAY if permanent else min(BACKOFF_CAP, BACKOFF_BASE * 2**failures)
        delay = cap if permanent else random.uniform(0, cap)  # full jitter
        self.next_try = time.time() + delay
        log.warning("server %r is unavailable: %s (next try in %.0f s)", self.config.key, reason, delay)
        self._set("failed", reason, needs_login=needs_login(error))
        with anyio.move_on_after(delay):
            await (self._login.awaited(self._wake) if self._login is not None else self._wake.wait())
            wait = self._tried_at + MIN_RETRY - anyio.current_time()
            if wait > 0:
                await anyio.sleep(wait)
        self.next_try = None

    async def _serve(self) -> None:
        peer = Peer(self.config.key, self._on_notification, self.questions.answer)
        began = anyio.current_time()
        reason, login = "connection lost", False
        # One scope for the whole connection, its deadline lifted once ready: leaving a scope early with the
        # transport's task group still open would break the nesting of scopes.
        with anyio.CancelScope(deadline=began + self.config.connect_timeout) as budget:
            async with self._open(peer):
                try:
                    session = await self._negotiate(peer)
                    await self.lists.read(session)
                    budget.deadline = math.inf
                    self.connect_seconds = anyio.current_time() - began
                    self._session, self._doubt.raised = session, False
                    self.last_words.stray = ""
                    await session.send_log_level(self.log_level)
                    self._turn.over()
                    self._set("ready", "")
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self.lists.keep, session)
                        await self._until_ended(peer)
                        tasks.cancel_scope.cancel()
                    reason = peer.reason
                except ConnectError as error:
                    reason, login = error.reason, needs_login(error)
                    raise
                except BaseException:
                    words = self.last_words
                    reason = words.after(late(self.config)) if budget.cancel_called else peer.reason or self._end
                    raise
                finally:
                    # Told before the process has been tidied away, which takes seconds with a stubborn one: no new
                    # call takes this session, and nobody waits for it.
                    self._attempts += 1
                    self._refused += self._session is None
                    again = self._lost.is_set() or self._idle or (self._session is None and self._approach.again)
                    self._set("starting" if again else "failed", reason, needs_login=login)
                    peer.close(self._end if self._session else "the connection could not be set up")
        if budget.cancelled_caught:
            self._approach.late()
            raise ConnectError(self.last_words.after(late(self.config)))
        raise ConnectError(self.last_words.after(reason))

    async def _until_ended(self, peer: Peer) -> None:
        async with anyio.create_task_group() as tasks:

            async def lost() -> None:
                await self._lost.wait()
                self._set("starting", "the server has forgotten our session; reconnecting")
                with anyio.move_on_after(LOST_GRACE):
                    await peer.idle()
                peer.close("the server has forgotten our session")

            tasks.start_soon(lost)
            if self.config.start == "lazy":
                tasks.start_soon(self._stop_when_idle, peer)
            await peer.closed.wait()
            tasks.cancel_scope.cancel()

    async def _stop_when_idle(self, peer: Peer) -> None:
        self._last_used = max(self._last_used, time.monotonic())
        while (left := self._idle_left()) > 0 or self.questions.busy:
            with anyio.move_on_after(max(left, 0.05)):
                await self._changed.wait()
        self._idle = True
        peer.close(f"stopped: no call for {self.config.idle_timeout:g} s")

    def _idle_left(self) -> float:
        after = self.config.idle_timeout
        return self._last_used + after - time.monotonic() if after > 0 else math.inf

    async def _negotiate(self, peer: Peer) -> Session:
        try:
            session = await negotiate(peer, self._approach.era, self.questions.declared)
        except (ConnectError, UpstreamFailure) as error:
            if isinstance(error.__cause__, ConnectError):  # its login failed, which says nothing of the era
                raise error.__cause__ from None
            self._approach.refused(error)
            raise explained(error, self.config.key, self.may_want_login, self.last_words.after) from None
        self._approach.agreed(modern=session.modern)
        return session

    def _open(self, peer: Peer) -> AbstractAsyncContextManager[None]:
        if self.config.transport == "stdio":
            self.last_words = LastWords(self.config.key, self._mask)
            environment = child_environment(self.config, self.environ)
            return open_stdio(self.config, environment, peer, self.last_words, self.reaper)
        if self._approach.transport == "sse":
            return open_sse(self.config, peer, self._login)
        return open_http(self.config, peer, self._lost.set, self._doubt.arise, self._login)

    def _set(self, state: State, reason: str, *, needs_login: bool = False) -> None:
        self.state, self.reason, self.needs_login = state, self._mask(reason), needs_login
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _mask(self, text: str) -> str:
        return mask(text, self.config.secrets)

    def _on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if method.endswith("/list_changed"):
            self.lists.stale()
        elif method == "notifications/message":
            self.questions.log_message(params)
        elif method == "notifications/resources/updated" and isinstance(uri := params.get("uri"), str):
            self.on_updated(self, uri)

    # What calls need: any task, concurrently.

    async def ready(self) -> Session:
        """A session to send on, waking a sleeping reconnect; waits at most `connect_timeout`.

        Raises:
            UpstreamFailure: there is none, and why.
        """
        if (session := self.session) is not None:
            return session
        refused = self._refused
        with anyio.move_on_after(self.config.connect_timeout):
            while not self._usable():
                if self.state == "failed" and (self.config.problem or self._refused > refused):
                    break
                if self._closing:
                    break
                self._wake.set()
                self.starts.hurry(self)
                await self._changed.wait()
        if not self._usable():
            if self.config.problem is None and not self._closing:
                # A process may be being tidied away: its last words and the next attempt are known after that.
                with anyio.move_on_after(TIDY):
                    while not self._usable() and self.next_try is None:
                        await self._changed.wait()
            raise UpstreamFailure(self.config.key, self.trouble, may_have_run=False)
        assert self._session is not None
        return self._session

    @property
    def session(self) -> Session | None:
        """The session, if it is usable now."""
        return self._session if self._usable() else None

    @property
    def trusted(self) -> Session | None:
        """The session, if it is usable now and there is nothing to be verified."""
        return self._session if not self._doubt.raised and self._usable() else None

    def wake(self) -> None:
        """Connect now rather than later."""
        self._wake.set()

    def used(self) -> None:
        """A call has ended: the idle time starts anew."""
        self._last_used = time.monotonic()

    def _usable(self) -> bool:
        return self._session is not None and self._session.peer.attached and not self._lost.is_set()

    async def verified(self) -> Session:
        """What `ready` gives, or a new session where an earlier answer may have meant that it is lost.

        Asked once, by all callers together, before the next call is risked; raises what `ready` raises.
        """
        session = await self.ready()
        if session.modern or not self._doubt.raised:
            return session
        if await self._doubt.confirmed(session) and self._session is session:
            self._lost.set()
        return await self.ready()
