"""One bound on the whole observation, handed to everything that may take time."""

import time


class Deadline:
    """Ends `seconds` from its making; monotonic."""

    def __init__(self, seconds: float) -> None:
        self.started = time.monotonic()
        self._end = self.started + seconds

    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.started

    def remaining(self, at_most: float = float("inf")) -> float:
        """Seconds left, never negative, at most `at_most`."""
        return max(0.0, min(at_most, self._end - time.monotonic()))
