"""Memory: what was built to stay, and what building it has left behind. Called after large catalogs have changed."""

import contextlib
import ctypes
import gc

LARGE = 1_000
"""Tools from which on it matters."""


def settle() -> None:
    """Take what is alive out of the garbage collector's sight, and give free memory back to the system.

    A full collection looks at every object, holds up every thread, and comes of itself every few minutes: 110 to 170 ms
    at 9,000 tools, which a call would wait. What is frozen is still freed when nothing refers to it any more; only
    cycles that are garbage at this moment are lost. glibc keeps what a build has freed: 16 MB at 3,300 tools.
    """
    gc.collect(1)
    gc.freeze()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
