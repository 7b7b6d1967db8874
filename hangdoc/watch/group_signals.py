"""Whether a signal went to the whole process group: the observer of `hangdoc run`, which is in the group, reports each signal
that it gets."""

import contextlib
import os
import select
import signal
import time

from hangdoc.procfs import ProcError, ProcFS

_LATER_SECONDS = 1.0
"""How much later another process of the group may get the same signal. systemd and Slurm send to one process after the other."""
_STARVED_SECONDS = 10.0
"""How long the observer, at a low priority, may wait for a processor before it reports a signal."""
_PROC = ProcFS()
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
        used = _measure_running_threads(self._observer)
        while True:
            # In this order: a signal that is no longer pending has been reported, or a thread that runs is about to report it.
            pending = number not in self._owed and number in _read_pending_signals(self._observer)
            running = _measure_running_threads(self._observer)
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
    """The state letter of a process, or of a thread `PID/task/TID`; empty if it has ended."""
    try:
        return _PROC.stat(str(task)).state
    except ProcError:
        return ""


def _read_pending_signals(pid: int) -> set[int]:
    """Signals that a process has got and not taken yet (proc_pid_status(5))."""
    try:
        masks = [int(mask, 16) for mask in _PROC.fields(str(pid), "SigPnd", "ShdPnd") if mask]
    except ProcError:
        return set()
    return {number for number in signal.valid_signals() if any(mask >> (number - 1) & 1 for mask in masks)}


def _measure_running_threads(pid: int) -> dict[int, int]:
    """CPU time in nanoseconds of the threads that run or wait for a processor, by tid."""
    cpu_times = {}
    with contextlib.suppress(ProcError):
        for tid in _PROC.tids(pid):
            with contextlib.suppress(ProcError):
                if _PROC.stat(f"{pid}/task/{tid}").state == "R":
                    cpu_times[tid] = _PROC.schedstat(f"{pid}/task/{tid}")[0]
    return cpu_times
