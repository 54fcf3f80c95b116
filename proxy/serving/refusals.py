"""Log lines about callers who were turned away: for each reason one a minute, so that a flood of them is no flood here.

Called by `guard.py`. Nothing that a caller has sent stands in a line.
"""

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between two lines of one reason."""


class Refusals:
    """Tells the first refusal of each reason, and counts those that follow until the next line."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[str, tuple[float, int]] = {}
        """Reason -> when its last line was, and how many have followed."""

    def tell(self, reason: str, address: str) -> None:
        """A request from `address` was refused; there are only a few reasons, which are ours."""
        now = self._clock()
        last, more = self._told.get(reason, (None, 0))
        if last is not None and now - last < EVERY:
            self._told[reason] = (last, more + 1)
            return
        self._told[reason] = (now, 0)
        counted = f", and {more:,} more since the last such line" if more else ""
        log.warning("a request from %s was refused: %s%s", address, reason, counted)
