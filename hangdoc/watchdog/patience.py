"""How long a trainer may be silent: a fixed time, or computed from the duration of its steps."""

from typing import Literal

_FIRST_SECONDS = 600.0
"""The timeout until there are enough steps: for imports, compilation and the first batches."""
_WARM_BEATS = 5
_STEPS = 20
_PAUSES = 3


class Patience:
    """The timeout. With `auto` it is a multiple of the mean step and of the longest pause, and never below `floor` seconds."""

    def __init__(self, timeout: float | Literal["auto"], floor: float) -> None:
        """Raises ValueError for a timeout that is neither a positive number nor `auto`."""
        if timeout != "auto" and not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds or 'auto', not {timeout!r}")
        self._fixed = None if timeout == "auto" else float(timeout)
        self._floor = floor
        self._longest = 0.0
        self._beats = 0
        self._seconds = 0.0

    def observe(self, beats: int, elapsed: float, pause: float) -> None:
        """Add `beats` in `elapsed` seconds, with at most about `pause` seconds between two."""
        self._beats += beats
        self._seconds += elapsed
        if self._beats > _WARM_BEATS:
            self._longest = max(self._longest, pause)

    def allowed(self, phase_seconds: float) -> float:
        """Allowed seconds without a beat. `phase_seconds`: the timeout of the current phase, 0 for none."""
        if phase_seconds > 0:
            return phase_seconds
        if self._fixed is not None:
            return self._fixed
        if self._beats <= _WARM_BEATS:
            return max(self._floor, _FIRST_SECONDS)
        return max(self._floor, _STEPS * self._seconds / self._beats, _PAUSES * self._longest)
