"""Bytes that each process read from and wrote to storage in the window: writing a checkpoint is progress.

Source: /proc/PID/io, `read_bytes` and `write_bytes` (proc_pid_io(5)), which do not count sockets and pipes.
"""

from collections.abc import Iterable

from hangdoc.observe.access.observation import Observation, ProbeResult
from hangdoc.procfs import ProcError
from hangdoc.snapshot import FileBytes, Unavailable

_Reading = tuple[int, int] | Unavailable


class Storage:
    """The probe."""

    name = "storage"

    def __init__(self) -> None:
        self._first: dict[int, _Reading] = {}
        self._second: dict[int, _Reading] = {}

    def open(self, observation: Observation) -> None:
        """Read every rank's and helper's counters."""
        self._first |= {t.pid: _read(observation, t.pid) for t in observation.alive() if t.role != "launcher"}

    def during(self, observation: Observation) -> None:
        """Nothing."""

    def close(self, observation: Observation) -> None:
        """Read the counters again."""
        self._second = {pid: _read(observation, pid) for pid in self._first if pid in observation.targets}

    def start_next_window(self, observation: Observation) -> None:
        """The end of this window becomes the beginning of the next."""
        self._first = self._second

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The differences."""
        for pid, first in self._first.items():
            second = self._second.get(pid, first)
            if isinstance(first, Unavailable) or isinstance(second, Unavailable):
                yield pid, "files", first if isinstance(first, Unavailable) else second
            else:
                yield pid, "files", FileBytes(read_bytes=second[0] - first[0], written_bytes=second[1] - first[1])


def _read(observation: Observation, pid: int) -> _Reading:
    try:
        counts = observation.proc.io(pid)
        return counts["read_bytes"], counts["write_bytes"]
    except ProcError as error:
        return Unavailable(reason=str(error))
