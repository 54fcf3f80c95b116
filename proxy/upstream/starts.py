"""How many servers start at the same time.

Dozens of programs that start together share the processor, and then none is ready within its time, though each alone
would be: 24 of 60 real servers on a machine of two cores. So they take turns, and a server's time begins with its turn.
"""

import asyncio
import os

AT_ONCE = max(8, 4 * (os.cpu_count() or 1))
"""Turns at the same time. Whoever has no more servers than this has none that waits."""
TIME = 15.0
"""Seconds after which a turn passes on in any case: a server that hangs or is being downloaded needs no processor."""


class Turn:
    """One server's turn to start; without `starts` it is over, and keeps nobody waiting."""

    def __init__(self, starts: "Starts | None" = None) -> None:
        self._starts = starts
        self._timer = None if starts is None else asyncio.get_running_loop().call_later(TIME, self.over)

    def over(self) -> None:
        """The next one may start: this one is ready, or has failed. Does nothing the second time."""
        if self._timer is not None:
            self._timer.cancel()
        starts, self._starts = self._starts, None
        if starts is not None:
            starts.passed_on()


class Starts:
    """The turns of all servers, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._free = AT_ONCE
        """Below zero after some were in a hurry."""
        self._waiting: dict[object, asyncio.Future[None]] = {}

    async def turn(self, server: object) -> Turn:
        """Wait until `server` may start."""
        if self._free > 0:
            self._free -= 1
            return Turn(self)
        called = self._waiting[server] = asyncio.get_running_loop().create_future()
        try:
            await called
        except asyncio.CancelledError:
            if not called.cancelled():
                self.passed_on()
            raise
        finally:
            del self._waiting[server]
        return Turn(self)

    def hurry(self, server: object) -> None:
        """A call waits for this one, which need not wait for the others."""
        if (called := self._waiting.get(server)) is not None:
            self._call(called)

    def passed_on(self) -> None:
        """A turn is over."""
        self._free += 1
        for called in self._waiting.values():
            if self._free > 0:
                self._call(called)

    def _call(self, called: "asyncio.Future[None]") -> None:
        if not called.done():
            self._free -= 1
            called.set_result(None)
