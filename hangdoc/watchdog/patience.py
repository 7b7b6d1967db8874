"""How long a trainer may go without a beat: a fixed time, or from the duration of its own steps."""

from typing import Literal

_FIRST_SECONDS = 600.0
"""Before the steps have a rhythm: imports, compiles, the first batches."""
_WARM_BEATS = 5
_STEPS = 20
_PAUSES = 3


class Patience:
    """The deadline. With `auto` it is some tens of usual steps and some of the longest pauses seen, never below a floor."""

    def __init__(self, timeout: float | Literal["auto"], floor: float) -> None:
        """Raises ValueError for a timeout that is no positive number and not `auto`."""
        if timeout != "auto" and not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds or 'auto', not {timeout!r}")
        self._fixed = None if timeout == "auto" else float(timeout)
        self._floor = floor
        self._longest = 0.0
        self._beats = 0
        self._seconds = 0.0

    def observe(self, beats: int, elapsed: float, pause: float) -> None:
        """`beats` came in `elapsed` seconds; the longest time without one was about `pause`."""
        self._beats += beats
        self._seconds += elapsed
        if self._beats > _WARM_BEATS:
            self._longest = max(self._longest, pause)

    def allowed(self, phase_seconds: float) -> float:
        """Seconds without a beat; `phase_seconds` is what the current phase asked for, 0 for nothing."""
        if phase_seconds > 0:
            return phase_seconds
        if self._fixed is not None:
            return self._fixed
        if self._beats <= _WARM_BEATS:
            return max(self._floor, _FIRST_SECONDS)
        return max(self._floor, _STEPS * self._seconds / self._beats, _PAUSES * self._longest)
