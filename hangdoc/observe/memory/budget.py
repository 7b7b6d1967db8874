"""How much of hangdoc's time and memory one process may take.

A process decides what hangdoc finds in its memory and in its source: dicts that never end, a symbol table of 4 GB, a file of
200,000 statements. Each process therefore has a budget in each look. When it is spent, reading that process ends, and only its
own evidence is missing.
"""

import time

_SECONDS = 1.5
"""CPU time. A rank takes 0.02 to 0.1 s, and the first one, whose source the others share, up to 0.5 s."""
_BYTES = 64 << 20
"""A rank takes 2 to 6 MiB."""


class Budget:
    """What reading one process may still take: seconds of CPU, and bytes."""

    def __init__(self, seconds: float = _SECONDS, size: int = _BYTES) -> None:
        self._seconds, self._bytes = seconds, size

    def charge(self, began: float, size: int = 0) -> float:
        """Charge the CPU time of this thread since `began` (time.thread_time), and `size` bytes. Returns the time now, which is
        the `began` of the next charge. A busy machine takes longer for the same work, so it is CPU time."""
        now = time.thread_time()
        self._seconds -= now - began
        self._bytes -= size
        return now

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return self._seconds < 0 or self._bytes < 0
