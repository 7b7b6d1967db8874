"""One time limit for the whole observation. Every slow step gets it."""

import time


class Deadline:
    """Ends `seconds` after its creation, on the monotonic clock. It records what was skipped for lack of time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.started = time.monotonic()
        self._end = self.started + seconds
        self._missed: dict[str, list[int]] = {}

    def elapsed(self) -> float:
        """Seconds since the creation."""
        return time.monotonic() - self.started

    def remaining(self, at_most: float = float("inf")) -> float:
        """The seconds left: never negative, and at most `at_most`."""
        return max(0.0, min(at_most, self._end - time.monotonic()))

    def miss(self, what: str, pid: int) -> None:
        """Record that `what` of a process was not read for lack of time."""
        self._missed.setdefault(what, []).append(pid)

    def missed(self) -> list[str]:
        """What was skipped: one clause for each kind."""
        return [
            f"the {what} of {len(set(pids))} process{'es' * (len(set(pids)) > 1)} could not be read in time: pid "
            + ", ".join(map(str, sorted(set(pids))[:_SHOWN]))
            + (", ..." if len(set(pids)) > _SHOWN else "")
            for what, pids in sorted(self._missed.items())
        ]


_SHOWN = 8
