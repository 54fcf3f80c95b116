"""Breaker: after several failures of the connection in a row, calls fail at once for a while instead of waiting.

It counts what the transport did (no answer, crash, time-out), never what a tool said: `isError` results and JSON-RPC
errors are answers, and an answer closes the breaker.
"""

import anyio

from proxy.errors import UpstreamFailure

THRESHOLD = 5
"""Failures in a row that open it: two or three happen to a healthy server that restarts under load."""
COOL_DOWN, COOL_DOWN_CAP = 10.0, 120.0
"""Seconds it stays open the first time, and at most; doubled each time the trial call fails too."""


class Breaker:
    """One per upstream."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._failures = 0
        self._open_until = 0.0
        self._cool_down = COOL_DOWN
        self._last = ""
        self._reached = False
        self._lost: object = None

    @property
    def closed(self) -> bool:
        """Whether nothing has failed since the last answer."""
        return not self._failures

    def check(self, *, connected: bool = False) -> None:
        """Let a call pass, or raise UpstreamFailure. After the cool-down one call passes as a trial.

        `connected`: there is a usable connection now, so failures to get one say nothing any more.
        """
        if connected and not self._reached:
            self.answered()
        if self._failures < THRESHOLD:
            return
        left = self._open_until - anyio.current_time()
        if left > 0:
            reason = (
                f"its last {self._failures} calls failed ({self._last}); calls are held back, next try in {left:.0f} s"
            )
            raise UpstreamFailure(self._server, reason, may_have_run=False)
        self._open_until = anyio.current_time() + self._cool_down

    def answered(self) -> None:
        """The upstream has answered a call, whatever the answer."""
        self._failures = 0
        self._cool_down = COOL_DOWN
        self._reached = False

    def failed(self, reason: str, *, reached: bool = True, lost: object = None) -> None:
        """The upstream has not answered a call, which may have `reached` it.

        `lost`: the connection that ended, if one did. All calls in flight on it fail together, which is one failure.
        """
        if lost is not None and lost is self._lost:
            return
        self._lost = lost
        self._failures += 1
        self._reached = self._reached or reached
        self._last = reason
        if self._failures >= THRESHOLD:
            if self._failures > THRESHOLD:
                self._cool_down = min(COOL_DOWN_CAP, self._cool_down * 2)
            self._open_until = anyio.current_time() + self._cool_down
