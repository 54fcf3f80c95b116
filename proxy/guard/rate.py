"""Rate limits: how many calls a minute the callers of a profile make together."""

import math
import time
from collections.abc import Callable

from proxy.config import Profile
from proxy.errors import RateLimited


class Rates:
    """One bucket per profile: full at the start, refilled evenly."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """Profile -> (calls left, when)."""

    def take(self, profiles: tuple[Profile, ...]) -> None:
        """Count one call.

        Raises:
            RateLimited: one of the profiles has none left; nothing is counted then. Says nothing of any tool.
        """
        now = self._clock()
        left: dict[str, float] = {}
        for profile in profiles:
            if limit := profile.rate_limit:
                before, when = self._buckets.get(profile.name, (float(limit), now))
                left[profile.name] = min(float(limit), before + (now - when) * limit / 60)
                if left[profile.name] < 1:
                    wait = math.ceil((1 - left[profile.name]) * 60 / limit)
                    raise RateLimited(
                        f"The call was not made: the limit of {limit} calls a minute is reached. "
                        f"Try again in {wait} s; fewer, larger calls help."
                    )
        for name, calls in left.items():
            self._buckets[name] = (calls - 1, now)
