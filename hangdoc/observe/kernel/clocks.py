"""CPU nanoseconds and context switches of every thread across the window, and what it waits for in the kernel.

Sources: /proc/PID/task/TID/{schedstat,status,wchan,syscall,stat} (Documentation/scheduler/sched-stats.rst), and `last_run`.

If a thread has not run since the last reading, only its schedstat is read: everything else is unchanged.
"""

import time
from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.observe.access.observation import Observation, ProbeResult, Target
from hangdoc.observe.kernel import awaited_files, system_calls
from hangdoc.observe.kernel.last_run import SchedulerClocks
from hangdoc.parse import natural
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import AwaitedFile, Clocks, KernelThread, Unavailable
from hangdoc.torch_facts import thread_names

_PLACE_SECONDS = 10.0
"""What a thread off the CPU waits for is read again after this time: the holders of the other end of a pipe may have changed."""

_PAUSE_NS = 1_000_000
"""A thread that an observer stops and continues uses less CPU time than this."""
_WOKEN_SECONDS = 0.005
"""After this time, a thread that was woken by an observer waits again."""


class _Place(NamedTuple):
    """Where a thread waits in the kernel."""

    wchan: str | None = None
    syscall: str | None = None
    files: tuple[AwaitedFile, ...] = ()
    sleep_seconds: float | None = None
    by_timer: bool = False
    """Whether it sleeps until a timer expires (timerfd_create(2))."""
    timeout: tuple[float, bool] | None = None
    """As in `system_calls.timeout`."""
    timed: bool | None = None
    read_at: float = 0.0
    """Monotonic."""


class Reading(NamedTuple):
    """One thread at one moment."""

    cpu_ns: int
    slices: int | None
    """How often it was scheduled; None where the kernel does not count that."""
    voluntary: int | None
    involuntary: int | None
    name: str
    state: str
    processor: int | None
    """The one that it last ran on."""
    children_ticks: int = 0
    """CPU time of the process's children that had ended by then, in clock ticks."""
    delayed_ns: int = 0
    """For how long it has been ready to run and waited for a core; valid with `slices`."""

    @property
    def ran(self) -> tuple[int | None, ...]:
        """Equal in two readings if and only if the thread has not run between them. Not valid in state R."""
        return self.cpu_ns, self.slices, self.voluntary, self.involuntary

    @property
    def switches(self) -> int | None:
        """Context switches of both kinds; None if unknown."""
        return None if self.voluntary is None or self.involuntary is None else self.voluntary + self.involuntary


Threads = dict[int, Reading]


class CpuClocks:
    """The probe. It can be used for several windows in a row."""

    name = "clocks"

    def __init__(self) -> None:
        self._first: dict[int, Threads | Unavailable] = {}
        self._second: dict[int, Threads | Unavailable] = {}
        self._places: dict[tuple[int, int], tuple[Reading, _Place]] = {}
        self._times: tuple[float, float] = (0.0, 0.0)
        self._last_runs: dict[tuple[int, int], tuple[Reading, float | None]] = {}
        """Of the threads of ranks and the main threads of helpers: when each last ran before the window (monotonic).
        None if that is not known."""
        self._sleeps: dict[tuple[int, int], float] = {}
        """Of those that slept before the window: how long such a sleep takes, in seconds."""
        self._paused: set[int] = set()

    def open(self, observation: Observation) -> None:
        """Read every thread."""
        self._first |= observation.read_each(
            observation.alive(), lambda target: threads_of(observation.proc, target.pid)
        )
        self._times = (self._times[0] or time.monotonic(), 0.0)
        self._date(observation, self._first)

    def during(self, observation: Observation) -> None:
        """Nothing."""

    def close(self, observation: Observation) -> None:
        """Read every thread again, and what it waits for."""
        self._times = (self._times[0], time.monotonic())
        self._second = {}
        self._read_each(observation, [pid for pid in self._first if pid in observation.targets])
        if woken := [pid for pid in list(self._second) if self._was_woken(pid)]:
            time.sleep(_WOKEN_SECONDS)
            self._read_each(observation, woken)
        self._places = {key: place for key, place in self._places.items() if key[1] in self._threads(key[0])}

    def _read_each(self, observation: Observation, pids: list[int]) -> None:
        readings = observation.read_each(
            (observation.targets[pid] for pid in pids), lambda target: self.read(observation.proc, target.pid)
        )
        self._second |= {pid: reading for pid, reading in readings.items() if isinstance(reading, Unavailable)}

    def read(self, proc: ProcFS, pid: int) -> Threads:
        """Read the threads of one process now, as the end of the window; empty for a process that can't be read."""
        first = self._first.get(pid)
        before = self._threads(pid) or (first if isinstance(first, dict) else {})
        self._second[pid] = threads = threads_of(proc, pid, before)
        if isinstance(threads, Unavailable):
            return {}
        now = time.monotonic()
        for tid, reading in threads.items():
            earlier = self._places.get((pid, tid))
            if (
                earlier is None
                or earlier[0] is not reading
                or earlier[1].sleep_seconds is not None
                or now - earlier[1].read_at > _PLACE_SECONDS
            ):
                backend = reading.name.startswith(thread_names.BACKENDS)
                place = _read_waiting_place(proc, pid, tid, files_too=not backend)
                self._places[pid, tid] = (reading, place._replace(read_at=now))
        return threads

    def _threads(self, pid: int) -> Threads:
        threads = self._second.get(pid)
        return threads if isinstance(threads, dict) else {}

    def _was_woken(self, pid: int) -> bool:
        """Whether a thread that hardly ran in the window runs now, after a pause: it does not show what it waits for."""
        first, second = self.readings(pid)
        return any(
            now.state == "R"
            and tid in first
            and not now.name.startswith(thread_names.BACKENDS)
            and now.cpu_ns - first[tid].cpu_ns < _PAUSE_NS
            for tid, now in second.items()
        )

    def readings(self, pid: int) -> tuple[Threads, Threads]:
        """The threads of a process at both ends of the window; empty for an end that could not be read."""
        first = self._first.get(pid)
        return first if isinstance(first, dict) else {}, self._threads(pid)

    def start_next_window(self, observation: Observation) -> None:
        """The end of this window becomes the beginning of the next."""
        self._first = self._second
        self._times = (self._times[1], 0.0)
        self._last_runs = {
            key: last_run for key, last_run in self._last_runs.items() if key[1] in self._threads(key[0])
        }
        self._sleeps = {key: seconds for key, seconds in self._sleeps.items() if key in self._last_runs}
        self._date(observation, self._second)
        self._paused.clear()

    def paused(self, pid: int) -> None:
        """Note that hangdoc has stopped a process for a moment, in this window: that its threads ran then says nothing."""
        self._paused.add(pid)

    def _date(self, observation: Observation, readings: dict[int, Threads | Unavailable]) -> None:
        """Find out when the threads of ranks and the main threads of helpers last ran, if they ran since that was done."""
        scheduler = SchedulerClocks(observation.proc)
        dated = [target for target in observation.targets.values() if target.role in ("rank", "helper")]

        def date(target: Target) -> None:
            threads = readings.get(target.pid)
            self._date_threads(observation.proc, scheduler, target, threads if isinstance(threads, dict) else {})

        observation.read_each(dated, date)

    def _date_threads(self, proc: ProcFS, scheduler: SchedulerClocks, target: Target, threads: Threads) -> None:
        for tid, reading in threads.items():
            if target.role == "helper" and tid != target.pid:
                continue
            earlier = self._last_runs.get((target.pid, tid))
            if earlier is not None and earlier[0] is reading:
                continue
            last_run = None
            if earlier is not None and target.pid in self._paused and reading.cpu_ns - earlier[0].cpu_ns < _PAUSE_NS:
                last_run = earlier[1]
            elif (
                reading.state in "SDT"
                and reading.switches is not None
                and not reading.name.startswith(thread_names.POLLING)
            ):
                task = f"{target.pid}/task/{tid}"
                last_run = scheduler.last_run(task, reading.processor, reading.switches)
                lasts = system_calls.sleep_of_thread(proc, target.pid, task)
                whole = whole_timeout(lasts, time.monotonic() - last_run if last_run is not None else None)
                if whole is not None:
                    self._sleeps[target.pid, tid] = whole
            self._last_runs[target.pid, tid] = (reading, last_run)
        _, target.last_run = self._last_runs.get((target.pid, target.pid), (None, None))

    def rest_since(self, observation: Observation) -> float | None:
        """When the last thread of the ranks and the last main thread of their helpers ran, before the window (monotonic). None if
        one runs, or if that is not known. Threads of torch's backends that run all the time do not count."""
        latest = 0.0
        for target in observation.alive():
            threads = self._first.get(target.pid)
            if target.role not in ("rank", "helper"):
                continue
            if not isinstance(threads, dict) or not threads:
                return None
            for tid, reading in threads.items():
                dated = target.role == "rank" or tid == target.pid
                if not dated or reading.name.startswith(thread_names.POLLING):
                    continue
                _, last_run = self._last_runs.get((target.pid, tid), (reading, None))
                if last_run is None or reading.state not in "SD":
                    return None
                latest = max(latest, last_run)
        return latest or None

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The differences, per thread."""
        for pid in self._first:
            yield pid, "clocks", self.across(observation, pid)

    def across(self, observation: Observation, pid: int) -> Clocks | Unavailable:
        """The differences of one process across the window."""
        first = self._first.get(pid, Unavailable(reason="the window was cut short"))
        second = self._second.get(pid, Unavailable(reason="the window was cut short"))
        if isinstance(first, Unavailable):
            return first
        if isinstance(second, Unavailable):
            return second
        threads = tuple(self._describe_thread(pid, tid, first.get(tid), now) for tid, now in second.items())
        # Every thread shows the sum for its process; the newest reading has the highest one.
        before, after = (
            max((reading.children_ticks for reading in end.values()), default=0) for end in (first, second)
        )
        exact = all(reading.slices is not None for reading in second.values())
        tick = 1_000_000_000 // observation.proc.ticks_per_second
        return Clocks(
            window_seconds=self._times[1] - self._times[0],
            resolution_ns=1 if exact else tick,
            threads=threads,
            children_cpu_ns=max(0, after - before) * tick,
        )

    def _describe_thread(self, pid: int, tid: int, before: Reading | None, now: Reading) -> KernelThread:
        _, place = self._places.get((pid, tid), (now, _Place()))
        _, last_run = self._last_runs.get((pid, tid), (now, None))
        idle = round(max(0.0, self._times[0] - last_run), 3) if last_run is not None else None
        return KernelThread(
            tid=tid,
            name=now.name,
            state=now.state,
            cpu_ns=max(0, now.cpu_ns - (before.cpu_ns if before else 0)),
            voluntary_switches=_difference(before.voluntary if before else 0, now.voluntary),
            involuntary_switches=_difference(before.involuntary if before else 0, now.involuntary),
            delayed_ns=self._delay(before, now),
            wchan=place.wchan,
            syscall=place.syscall,
            files=place.files,
            sleep_seconds=place.sleep_seconds,
            timeout_seconds=whole_timeout(place.timeout, place.read_at - last_run if last_run is not None else None),
            timed=place.timed,
            idle_seconds=idle,
            whole_sleep_seconds=self._whole_sleep(pid, tid, place, last_run),
        )

    def _delay(self, before: Reading | None, now: Reading) -> int | None:
        """For how long a thread waited for a core in the window. The kernel counts such a wait when it has ended."""
        if now.slices is None:
            return None
        if before is not None and before.state == now.state == "R" and before.ran == now.ran:
            return int((self._times[1] - self._times[0]) * 1e9)
        return max(0, now.delayed_ns - (before.delayed_ns if before else 0))

    def _whole_sleep(self, pid: int, tid: int, place: _Place, last_run: float | None) -> float | None:
        """How long the sleep of a thread takes. One that began in the window takes as long as the one before, or at least as long
        as it still lasts: a pause by an observer looks like its beginning. Of a timer, the kernel says only what is left."""
        if place.sleep_seconds is None:
            return None
        if place.by_timer and last_run is not None:
            return round(place.sleep_seconds + max(0.0, place.read_at - last_run), 3)
        return round(max(place.sleep_seconds, self._sleeps.get((pid, tid), 0.0)), 3)


def whole_timeout(timeout: tuple[float, bool] | None, age: float | None) -> float | None:
    """A timeout from the beginning of its call, which is `age` seconds ago."""
    if timeout is None:
        return None
    seconds, from_now = timeout
    if not from_now:
        return seconds
    return None if age is None else round(seconds + max(0.0, age), 3)


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(0, now - before)


def threads_of(proc: ProcFS, pid: int, before: Threads | None = None) -> Threads | Unavailable:
    """All threads of a process. Threads that have not run since `before` are the same objects as there."""
    try:
        tids = proc.tids(pid)
    except ProcError as error:
        return Unavailable(reason=str(error))
    before = before or {}
    readings = {}
    for tid in tids:
        task = f"{pid}/task/{tid}"
        try:
            cpu, delayed, slices = proc.schedstat(task)
        except ProcError:  # built without CONFIG_SCHED_INFO, or the thread has ended
            cpu, delayed, slices = 0, 0, None
        earlier = before.get(tid)
        same = earlier is not None and slices is not None and (earlier.cpu_ns, earlier.slices) == (cpu, slices)
        if earlier is not None and same and earlier.state not in "RXZ":
            readings[tid] = earlier
            continue
        try:
            stat = proc.stat(task)
            voluntary, involuntary = _read_switches(proc, task)
        except ProcError:
            continue  # the thread has ended
        if slices is None:
            cpu = stat.cpu_ticks * (1_000_000_000 // proc.ticks_per_second)
        readings[tid] = Reading(
            cpu, slices, voluntary, involuntary, stat.name, stat.state, stat.processor, stat.children_ticks, delayed
        )
    return readings


def _read_switches(proc: ProcFS, task: str) -> tuple[int | None, int | None]:
    """Voluntary and involuntary context switches, which are the last lines of a long file. Raises ProcError."""
    _, separator, tail = proc.read(f"{task}/status").rpartition(b"\nvoluntary_ctxt_switches:")
    fields = tail.split() if separator else []
    if len(fields) < 3:
        return None, None
    return natural(fields[0].decode()), natural(fields[2].decode())


def _read_waiting_place(proc: ProcFS, pid: int, tid: int, *, files_too: bool = True) -> _Place:
    """Where a thread waits, as far as it can be read. `files_too` includes the files that it waits for."""
    task = f"{pid}/task/{tid}"
    place = _Place()
    try:
        wchan = proc.text(f"{task}/wchan")
        place = place._replace(wchan=None if wchan == "0" else wchan)
    except ProcError:
        pass
    try:
        call, arguments = system_calls.current(proc, task)
        restarted = call == system_calls.RESTART
        if restarted and system_calls.interrupted(place.wchan) is None:  # it had not returned to its sleep yet
            place = place._replace(wchan=proc.text(f"{task}/wchan"))
        call = system_calls.interrupted(place.wchan, arguments) if restarted else call
        place = place._replace(syscall=call, timed=restarted or (system_calls.timed(call, arguments) if call else None))
        if call and files_too and arguments:
            place = place._replace(
                sleep_seconds=system_calls.sleep_seconds(proc, pid, call, arguments),
                timeout=system_calls.timeout(proc, pid, call, arguments),
            )
            # A queue of multiprocessing has a thread of its own, which writes to its pipe. A filter like zstd may have one that
            # reads its standard input.
            reads_input = call == "read" and arguments[0] == 0
            search = tid == pid or call in system_calls.WRITES or reads_input
            files = awaited_files.awaited(proc, pid, call, arguments, search=search)
            place = place._replace(files=files)
            timer = awaited_files.seconds_to_timer(proc, pid, files) if place.timeout is None else None
            if timer is not None:
                place = place._replace(sleep_seconds=timer, by_timer=True, timed=True)
    except (ProcError, ValueError):
        pass
    return place
