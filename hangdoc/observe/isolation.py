"""Reads many processes so that each can spoil only its own evidence.

A process may let a reader wait forever (memory that is mapped from a file system of its own, a lock that a thread in the kernel
holds), or hold what no reader expects. So the readings run in a thread that is abandoned when one process takes too long: that
process is `Unavailable`, and the next thread reads the others. Whatever a reading raises becomes `Unavailable` of its
process.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from hangdoc.observe.deadline import Deadline
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import Unavailable

_EACH_SECONDS = 4.0
"""For one process, and longer on an overloaded machine. A reading takes some milliseconds, and a second on such a machine."""
_MAX_LOAD = 3.0
_LATER_SECONDS = 1.0
"""For each process after one that took too long: many of them must not use up the time of a look."""
_LEAST_SECONDS = 0.2
_AGAIN_SECONDS = 60.0
"""After this time, such a process is tried again."""
_CEILING_BYTES = 512 << 20
_CEILING_SHARE = 8
"""A look takes at most this fraction of the host's memory."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

R = TypeVar("R")


class Isolation:
    """Knows the processes that took too long, and how much memory hangdoc may use."""

    def __init__(self, proc: ProcFS) -> None:
        self._ceiling = ceiling_bytes(proc)
        self._before: weakref.WeakKeyDictionary[Deadline, int] = weakref.WeakKeyDictionary()
        """How much memory this process used when a look began, by the deadline of the look: it may be a user's own program."""
        self._late: dict[int, tuple[float, Unavailable]] = {}
        """By pid: when a reading took too long (monotonic), and what its evidence is since then."""
        self._over_ceiling = False

    def read_each(
        self, pids: Iterable[int], read: Callable[[int], R], deadline: Deadline, each_seconds: float | None = None
    ) -> dict[int, R | Unavailable]:
        """`read` of every process, one after the other. Never raises. One may take `each_seconds`; None: as long as a reading
        should take on this machine."""
        most = self._before.setdefault(deadline, resident_bytes()) + self._ceiling
        results: dict[int, R | Unavailable] = {}
        todo: list[int] = []
        for pid in pids:
            since, why = self._late.get(pid, (float("-inf"), Unavailable(reason="")))
            if time.monotonic() - since < _AGAIN_SECONDS:
                results[pid] = why
            else:
                todo.append(pid)
        while todo:
            batch = _Batch(todo, lambda pid: self._read_within_ceiling(pid, read, most))
            late = batch.wait(lambda: self._seconds_each(deadline, each_seconds))
            results |= batch.results
            todo = [pid for pid in todo if pid not in results and pid != late]
            if late is not None:
                seconds = self._seconds_each(deadline, each_seconds)
                why = Unavailable(reason=f"it could not be read within {seconds:.1f} s")
                self._late[late], results[late] = (time.monotonic(), why), why
        return results

    def _seconds_each(self, deadline: Deadline, each_seconds: float | None) -> float:
        load = min(_MAX_LOAD, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
        usual = load * (_LATER_SECONDS if self._late else _EACH_SECONDS)
        return max(_LEAST_SECONDS, deadline.remaining(usual if each_seconds is None else each_seconds))

    def _read_within_ceiling(self, pid: int, read: Callable[[int], R], most: int) -> R | Unavailable:
        if resident_bytes() > most:
            self._over_ceiling = True
            return Unavailable(reason=f"this look already takes {self._ceiling >> 20} MiB of memory, its limit")
        return read(pid)

    def forget(self, pids: Iterable[int]) -> None:
        """Other processes have taken over these pids."""
        for pid in pids:
            self._late.pop(pid, None)

    def take_problems(self) -> list[str]:
        """Sentences about what was not read, for the report."""
        now = time.monotonic()
        self._late = {pid: late for pid, late in self._late.items() if now - late[0] < _AGAIN_SECONDS}
        sentences = [f"pid {pid}: {why.reason}" for pid, (_, why) in self._late.items()]
        if self._over_ceiling:
            sentences.append(
                f"hangdoc reached its limit of {self._ceiling >> 20} MiB of memory: some processes were not read"
            )
        self._over_ceiling = False
        return sentences


class _Batch(Generic[R]):
    """Readings in a thread of their own."""

    def __init__(self, pids: list[int], read: Callable[[int], R | Unavailable]) -> None:
        self.results: dict[int, R | Unavailable] = {}
        self._pids, self._read = list(pids), read
        self._changed = threading.Condition()
        self._present: tuple[int, float] | None = None
        """The process that is being read, and since when (monotonic)."""
        self._ended = self._abandoned = False
        # A daemon: a reading that never returns must not keep hangdoc from ending.
        threading.Thread(target=self._run, name="readings", daemon=True).start()

    def _run(self) -> None:
        for pid in self._pids:
            with self._changed:
                if self._abandoned:
                    return
                self._present = pid, time.monotonic()
            result = guarded(self._read, pid)
            with self._changed:
                if self._abandoned:
                    return
                self.results[pid] = result
        with self._changed:
            self._ended = True
            self._changed.notify()

    def wait(self, seconds_each: Callable[[], float]) -> int | None:
        """Wait for the end. Returns the process that took too long; then the thread is abandoned, and `results` has what came
        before."""
        with self._changed:
            while not self._ended:
                pid, began = self._present or (None, time.monotonic())
                left = began + seconds_each() - time.monotonic()
                if left <= 0 and pid is not None:
                    self._abandoned = True
                    return pid
                self._changed.wait(max(0.001, left))
        return None


def guarded(read: Callable[[int], R | Unavailable], pid: int) -> R | Unavailable:
    """`read` of a process; `Unavailable` with the reason for whatever it raises."""
    try:
        return read(pid)
    except ProcError as error:
        return Unavailable(reason=str(error))
    except OSError as error:
        return Unavailable(reason=error.strerror or str(error))
    except Exception as error:  # RecursionError, MemoryError and UnicodeError included
        return Unavailable(reason=f"reading it failed ({type(error).__name__}: {str(error)[:200]})")


def ceiling_bytes(proc: ProcFS) -> int:
    """How much memory a look may take before it reads no further process."""
    try:
        total = int(proc.text("meminfo").split("MemTotal:", 1)[1].split(None, 1)[0]) * 1024
    except (ProcError, ValueError, IndexError):
        return _CEILING_BYTES
    return min(_CEILING_BYTES, total // _CEILING_SHARE)


def resident_bytes() -> int:
    """The memory that this process has in use (proc_pid_statm(5)); 0 if it can't be read."""
    try:
        return int(ProcFS().read("self/statm").split()[1]) * _PAGE_BYTES
    except (ProcError, ValueError, IndexError):
        return 0


shared = Isolation(ProcFS())
"""For all observations of this hangdoc: what took too long once is not tried again soon."""
