"""Memory: what the C library keeps at hand between two large messages, what building a catalog leaves behind, and the
end.
"""

import atexit
import contextlib
import ctypes
import gc

LARGE = 1_000
"""Tools from which on it matters."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt(3)."""


def keep_at_hand() -> None:
    """Have glibc keep 8 MiB of freed memory, where it keeps as little as 128 KiB of its own accord.

    A message of 1 MiB is read, parsed, written and freed. Where that memory went back to the system each time, the
    1,000 page faults of the next message cost as much as all the rest (2 of 4.5 ms). And one place for all threads:
    what a worker thread has freed serves the event loop too.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_TRIM_THRESHOLD, 8 << 20)
        libc.mallopt(_MMAP_THRESHOLD, 4 << 20)
        libc.mallopt(_ARENA_MAX, 1)


def end_at_once() -> None:
    """Have the interpreter end without its last searches for garbage, of what the system takes back anyway.

    They cost 0.3 to 0.7 s of processor time at 900 tools, in every command; and a host that has many servers to stop
    kills whoever is late.
    """
    atexit.register(gc.freeze)


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
