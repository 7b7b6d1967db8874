"""Who may look into this process where Yama's `ptrace_scope` is 1 (prctl(2), PR_SET_PTRACER)."""

import contextlib
from collections.abc import Iterator

_SET_PTRACER = 0x59616D61
_ANYBODY, _NOBODY = -1, 0


def allow(who: int = _ANYBODY) -> None:
    """Any process of the same user may attach from now on; without Yama nothing changes."""
    import ctypes

    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(who), 0, 0, 0)


@contextlib.contextmanager
def allowed_meanwhile(needed: bool) -> Iterator[None]:
    """As long as the body runs, where it is needed."""
    if not needed:
        yield
        return
    allow()
    try:
        yield
    finally:
        allow(_NOBODY)
