"""How long a thread has not run, by the scheduler's own clock: the age of any wait, whatever it is for.

Source: `se.exec_start` in /proc/PID/task/TID/sched (kernel/sched/debug.c, kernel/sched/fair.c). It says when the thread last
ran, in milliseconds on the clock of its processor. That clock stops during interrupts and while a hypervisor runs something else,
so each processor has its own. To compare, the observer moves itself to that processor for a moment and reads its own value.
"""

import os
import time

from hangdoc.procfs import ProcError, ProcFS

_HOPS_SECONDS = 0.2
"""For all processors of one look. On a busy processor, the observer waits for its turn."""


class SchedulerClocks:
    """The clocks of the processors. Use a new one for each look, because they drift."""

    def __init__(self, proc: ProcFS) -> None:
        self._proc = proc
        self._ahead: dict[int, float | None] = {}
        """By processor: how many seconds CLOCK_MONOTONIC is ahead of its clock; None if that could not be read."""
        self._spent = 0.0

    def last_run(self, task: str, processor: int | None, switches: int | None) -> float | None:
        """When a thread that is off the CPU last ran, in seconds of CLOCK_MONOTONIC. `task` is `PID/task/TID`, `processor` the
        one that it ran on, `switches` the number of its context switches. None if it has run since those were read, or if any
        of this can't be read."""
        if processor is None or switches is None:
            return None
        try:
            text = self._proc.read(f"{task}/sched")
        except ProcError:
            return None
        started, now = _value(text, b"se.exec_start"), _value(text, b"nr_switches")
        if not started or now != switches:
            return None
        if processor not in self._ahead:
            self._ahead[processor] = self._measure(processor)
        ahead = self._ahead[processor]
        return None if ahead is None else started / 1000 + ahead

    def _measure(self, processor: int) -> float | None:
        if self._spent > _HOPS_SECONDS:
            return None
        begin = time.monotonic()
        try:
            allowed = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {processor})
        except OSError:  # it is outside this container's set of processors, or the container forbids the call
            return None
        try:
            own = _value(self._proc.read("thread-self/sched"), b"se.exec_start")
            now = time.monotonic()
        except ProcError:
            return None
        finally:
            os.sched_setaffinity(0, allowed)
            self._spent += time.monotonic() - begin
        return now - own / 1000 if own else None


def _value(text: bytes, name: bytes) -> float | None:
    at = text.find(b"\n" + name)
    try:
        return float(text[text.index(b":", at) + 1 :].split(None, 1)[0]) if at >= 0 else None
    except (ValueError, IndexError):
        return None
