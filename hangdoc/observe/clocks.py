"""CPU nanoseconds and context switches of every thread across the window, and where the kernel has it wait.

Sources: /proc/PID/task/TID/{schedstat,status,wchan,syscall,stat}; control groups' cpu.stat, memory.events,
cgroup.events (Documentation/admin-guide/cgroup-v2.rst).
"""

import time
from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.observe import files, syscalls
from hangdoc.observe.procfs import ProcError, ProcFS
from hangdoc.observe.scene import Evidence, Scene
from hangdoc.parse import integer, natural
from hangdoc.snapshot import AwaitedFile, Clocks, KernelThread, Unavailable


class _Place(NamedTuple):
    """Where the kernel has a thread wait."""

    wchan: str | None = None
    syscall: str | None = None
    files: tuple[AwaitedFile, ...] = ()
    sleep_seconds: float | None = None


class _Reading(NamedTuple):
    cpu_ns: int
    exact: bool
    voluntary: int | None
    involuntary: int | None
    name: str
    state: str


class CpuClocks:
    """The probe."""

    name = "clocks"

    def __init__(self) -> None:
        self._first: dict[int, dict[int, _Reading] | Unavailable] = {}
        self._second: dict[int, dict[int, _Reading] | Unavailable] = {}
        self._where: dict[tuple[int, int], _Place] = {}
        self._times: tuple[float, float] = (0.0, 0.0)

    def open(self, scene: Scene) -> None:
        """Read every thread."""
        self._first = {t.pid: _read(scene.proc, t.pid) for t in scene.alive()}
        self._times = (time.monotonic(), 0.0)

    def during(self, scene: Scene) -> None:
        """Nothing."""

    def close(self, scene: Scene) -> None:
        """Read every thread again, and where it waits."""
        self._times = (self._times[0], time.monotonic())
        for pid in self._first:
            self._second[pid] = threads = _read(scene.proc, pid)
            if not isinstance(threads, Unavailable):
                for tid in threads:
                    self._where[pid, tid] = _waiting_place(scene.proc, pid, tid)

    def evidence(self, scene: Scene) -> Iterable[Evidence]:
        """The difference, thread by thread."""
        window = self._times[1] - self._times[0]
        for pid, first in self._first.items():
            second = self._second.get(pid, Unavailable(reason="the window was cut short"))
            if isinstance(first, Unavailable) or isinstance(second, Unavailable):
                yield pid, "clocks", first if isinstance(first, Unavailable) else second
                continue
            threads = tuple(self._thread(pid, tid, first.get(tid), now) for tid, now in second.items())
            exact = all(reading.exact for reading in second.values())
            tick = 1 if exact else 1_000_000_000 // scene.proc.ticks_per_second
            yield pid, "clocks", Clocks(window_seconds=window, resolution_ns=tick, threads=threads)

    def _thread(self, pid: int, tid: int, before: _Reading | None, now: _Reading) -> KernelThread:
        place = self._where.get((pid, tid), _Place())
        return KernelThread(
            tid=tid,
            name=now.name,
            state=now.state,
            cpu_ns=max(0, now.cpu_ns - (before.cpu_ns if before else 0)),
            voluntary_switches=_difference(before.voluntary if before else 0, now.voluntary),
            involuntary_switches=_difference(before.involuntary if before else 0, now.involuntary),
            wchan=place.wchan,
            syscall=place.syscall,
            files=place.files,
            sleep_seconds=place.sleep_seconds,
        )


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(0, now - before)


def _read(proc: ProcFS, pid: int) -> dict[int, _Reading] | Unavailable:
    try:
        tids = proc.tids(pid)
    except ProcError as error:
        return Unavailable(reason=str(error))
    readings = {}
    for tid in tids:
        of = f"{pid}/task/{tid}"
        try:
            stat = proc.stat(of)
            status = proc.status(of)
        except ProcError:
            continue  # the thread has ended
        try:
            cpu, exact = int(proc.text(f"{of}/schedstat").split()[0]), True
        except (ProcError, ValueError, IndexError):
            cpu, exact = stat.cpu_ticks * (1_000_000_000 // proc.ticks_per_second), False
        readings[tid] = _Reading(
            cpu,
            exact,
            natural(status.get("voluntary_ctxt_switches")),
            natural(status.get("nonvoluntary_ctxt_switches")),
            stat.name,
            stat.state,
        )
    return readings


def _waiting_place(proc: ProcFS, pid: int, tid: int) -> _Place:
    """As far as it can be read."""
    of = f"{pid}/task/{tid}"
    place = _Place()
    try:
        wchan = proc.text(f"{of}/wchan")
        place = place._replace(wchan=None if wchan == "0" else wchan)
    except ProcError:
        pass
    try:
        words = proc.text(f"{of}/syscall").split()
        number = integer(words[0]) if words else None
        call = syscalls.name(number) if number is not None else None
        call = syscalls.interrupted(place.wchan) if call == syscalls.RESTART else call
        place = place._replace(syscall=call)
        if call and len(words) > 6:
            arguments = [int(word, 16) for word in words[1:7]]
            place = place._replace(sleep_seconds=files.sleep_seconds(proc, pid, call, arguments))
            place = place._replace(files=files.awaited(proc, pid, call, arguments, search=tid == pid))
    except (ProcError, ValueError):
        pass
    return place
