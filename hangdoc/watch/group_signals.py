"""Whether a signal went to the whole process group: the observer of `hangdoc run`, which is in the group, reports each signal
that it gets."""

import contextlib
import os
import select
import signal
import time
from pathlib import Path

_LATER_SECONDS = 1.0
"""How much later another process of the group may get the same signal. systemd and Slurm send to one process after the other."""
_STARVED_SECONDS = 10.0
"""How long the observer, at nice 19, may wait for a processor before it reports a signal."""
_HANDLER_NS = 10_000_000
"""CPU time after which a thread that has taken a signal has certainly reported it. The handler takes microseconds."""


class GroupSignals:
    """The signals that the observer reports through a pipe, one byte each (`signal.set_wakeup_fd`)."""

    def __init__(self, observer: int, pipe: int) -> None:
        self._observer = observer
        self._pipe: int | None = pipe
        self._owed: set[int] = set()
        """Signals that the observer has got and not reported yet."""

    def has(self, number: int) -> bool:
        """Whether the observer got the signal too. It reports it, or has not taken it yet on a busy machine."""
        began = time.monotonic()
        used = _running_threads(self._observer)
        while True:
            # In this order: a signal that is no longer pending has been reported, or a thread that runs is about to report it.
            pending = number not in self._owed and number in _pending(self._observer)
            running = _running_threads(self._observer)
            if number in self.read(0.05):
                return True
            if pending:
                self._owed.add(number)
                return True
            waited = time.monotonic() - began
            reporting = any(cpu - used.get(tid, 0) < _HANDLER_NS for tid, cpu in running.items())
            if self._pipe is None or waited >= _STARVED_SECONDS or (waited >= _LATER_SECONDS and not reporting):
                return False

    def read(self, seconds: float = 0.0) -> set[int]:
        """The signals reported since the last call, without those that `has` already knew. Waits at most `seconds`."""
        if self._pipe is None or not select.select([self._pipe], [], [], seconds)[0]:
            return set()
        reported = os.read(self._pipe, 4096)
        if not reported:  # the observer has ended
            os.close(self._pipe)
            self._pipe = None
        new = list(reported)
        for number in self._owed & set(reported):
            new.remove(number)
            self._owed.remove(number)
        return set(new)


def state(task: int | str) -> str:
    """The state letter of a process, or of a thread `PID/task/TID`; empty if it has ended (proc_pid_stat(5))."""
    try:
        return Path(f"/proc/{task}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _pending(pid: int) -> set[int]:
    """Signals that a process has got and not taken yet (proc_pid_status(5))."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except OSError:
        return set()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return {number for number in signal.valid_signals() if any(mask >> (number - 1) & 1 for mask in masks)}


def _running_threads(pid: int) -> dict[int, int]:
    """CPU time in nanoseconds of the threads that run or wait for a processor, by tid (schedstat, sched-stats.rst)."""
    found = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            if state(f"{pid}/task/{task.name}") == "R":
                found[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return found
