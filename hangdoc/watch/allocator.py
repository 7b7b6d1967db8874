"""Limits the memory of a watch that runs for weeks: what one look allocated must go back to the system."""

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # <malloc.h>
_THRESHOLD = 128 * 1024
"""Bytes: glibc's first value. glibc raises it to 32 MiB as large blocks are freed, and then keeps them in a fragmented heap."""


def give_back_memory() -> None:
    """Make glibc use one arena and fixed thresholds. Call it before the first thread starts.

    By default glibc gives threads arenas of their own, up to 8 for each core, and each one keeps fragments of what its threads
    have read. Does nothing without glibc. Source: mallopt(3).
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, _THRESHOLD), (_M_TRIM_THRESHOLD, _THRESHOLD)):
            mallopt(parameter, value)
