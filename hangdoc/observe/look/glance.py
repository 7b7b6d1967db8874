"""Between two polls of many ranks: whether each of them continues to make calls, or whether all still rest. The first costs some
bytes of the memory of each rank, the second a line of the kernel for each thread that matters."""

import time
from collections.abc import Mapping

from hangdoc.observe.access.observation import Observation
from hangdoc.observe.kernel.clocks import Threads
from hangdoc.observe.torch.flight_recorder import FlightRecorders
from hangdoc.observe.torch.recorded_progress import has_counted
from hangdoc.procfs import ProcError
from hangdoc.snapshot import FlightRecorder

_FEWEST_CALLS = 2.0
"""A rank that usually makes fewer calls between two glances may have made none and still continue."""


class Glance:
    """What the last poll has shown, and what has been counted since."""

    def __init__(self, recorders: FlightRecorders) -> None:
        self._recorders = recorders
        self._calls_per_second = 0.0
        """Of the rank that makes the fewest; 0 if one of them makes none, or has no record."""
        self._counts: dict[int, dict[str, int]] = {}
        self._counted_at = 0.0
        """Monotonic time."""
        self._resting: Mapping[int, Threads] = {}

    def begin(self, observation: Observation, window_seconds: float, resting: Mapping[int, Threads]) -> None:
        """Start from a poll whose window took so long. `resting`: if neither ranks nor helpers ran in that window, the relevant
        threads of each, by pid; otherwise empty."""
        self._resting = resting
        ranks = observation.ranks()
        records = {pid: record for pid, _, record in self._recorders.evidence(observation)}
        made = [_made_in_window(records.get(target.pid)) for target in ranks]
        self._calls_per_second = min(made, default=0) / max(window_seconds, 0.001)
        if self._calls_per_second:
            self._count(observation)

    def confirms(self, observation: Observation) -> bool | None:
        """Whether what the last poll has shown is still so: each rank has made a call since then, or since the last glance that
        told it; or none has run. None if that can't be told: a rank made no call in the window of the poll, or so few that there
        may be none in a time as short as this; or one that rested has run."""
        if self._resting:
            return self._rest(observation) or None
        if self._calls_per_second * (time.monotonic() - self._counted_at) < _FEWEST_CALLS:
            return None
        before = self._counts
        self._count(observation)
        ranks = [target.pid for target in observation.ranks()]
        if any(pid not in before for pid in ranks):
            return None
        return all(pid in self._counts and self._counts[pid] != before[pid] for pid in ranks)

    def _rest(self, observation: Observation) -> bool:
        """Whether none of the threads has run. By their clocks alone: the kernel counts there how often it has scheduled each."""
        try:
            return all(
                (reading.cpu_ns, reading.slices) == observation.proc.schedstat(f"{pid}/task/{tid}")[::2]
                for pid, threads in self._resting.items()
                for tid, reading in threads.items()
            )
        except ProcError:  # it has ended
            return False

    def _count(self, observation: Observation) -> None:
        self._counts = self._recorders.count_calls(observation, observation.ranks())
        self._counted_at = time.monotonic()


def _made_in_window(record: object) -> int:
    return record.made_in_window if isinstance(record, FlightRecorder) and has_counted({"recorder": record}) else 0
