"""The expensive evidence of a process: stacks, the interpreter's memory, data.

It is read only when it can be new. As long as a process has not run, its stack is the same, so the last reading is kept.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel.clocks import CpuClocks, Threads
from hangdoc.observe.kernel.data_directories import TrainingData
from hangdoc.observe.stacks import native_stacks
from hangdoc.observe.stacks.counters import counters
from hangdoc.observe.stacks.python_stacks import COUNTS, annotate_each, dump_each, has_run
from hangdoc.observe.stacks.source import Sources
from hangdoc.observe.torch.interpreter_state import InterpreterState, integers
from hangdoc.observe.torch.software import Runtimes
from hangdoc.snapshot import Counter, Interpreter, Stack, Unavailable

_SLOW_SECONDS = 60.0
"""Interval for what hardly ever changes in a running process (data directories, versions)."""
_SETTLES_SECONDS = 0.25
"""A thread that a tracer has released is back in its system call within this time, also on a busy machine."""
_NOT_LOOKED_AT = Unavailable(reason="not looked at")
_READ_ONCE = Unavailable(reason="read once so far")


@dataclass
class Readings:
    """The last readings of one process."""

    pid: int
    start_ticks: int
    read_at: float
    """Monotonic."""
    threads: Threads
    """Its clocks at the time of the reading."""
    stack: Stack | Unavailable
    stack_before: Stack | Unavailable = _READ_ONCE
    read_before_at: float = 0.0
    interpreter: Interpreter | Unavailable = _NOT_LOOKED_AT
    counters: tuple[Counter, ...] = ()
    native: Stack | Unavailable = native_stacks.NOT_YET
    native_tried: bool = False
    """Whether C++ frames were read, refused, or found unnecessary, since the main thread arrived at its present location."""
    counted_at: float | None = None
    """When it was last seen to make calls (monotonic), so that its stack was not needed. None once the stack was read twice
    since, or at rest: one reading of a rank that runs does not show whether it moves."""
    off_cpu: bool = False
    """Whether it did not run in the whole window of the reading."""
    slow: dict[str, Any] = field(default_factory=dict)
    """Data and runtime, by the names of their fields."""
    slow_at: float = float("-inf")

    def out_of_date(self, now: Threads) -> bool:
        """Whether the process may be elsewhere now: a relevant thread has run since the reading, or it could not be read. Also
        True if it ran during the reading: its clocks are read after its stack, and it may have moved and stopped in between."""
        return not isinstance(self.stack, Stack) or not self.off_cpu or has_run(self.pid, self.stack, self.threads, now)

    def was_off_cpu(self, first: Threads, second: Threads) -> bool:
        """Whether no relevant thread ran between two readings of the clocks."""
        return not has_run(self.pid, self.stack, first, second)

    def fields(self, began: float, *, current: bool) -> dict[str, Any]:
        """The readings, by field of snapshot.Process. `began` is the monotonic time at which the poll began; `current` says that
        the process has not run since the reading."""
        stack, before, interpreter = self.stack, self.stack_before, self.interpreter
        if isinstance(stack, Stack):
            at = time.monotonic() if current else self.read_at
            stack = msgspec.structs.replace(stack, at_seconds=round(at - began, 3))
        if isinstance(before, Stack):
            before = msgspec.structs.replace(before, at_seconds=round(self.read_before_at - began, 3))
        if current:
            before = msgspec.structs.replace(self.stack, at_seconds=0.0) if isinstance(self.stack, Stack) else before
            if isinstance(interpreter, Interpreter):
                interpreter = msgspec.structs.replace(interpreter, globals_before=integers(interpreter))
        return {
            "stack": stack, "stack_before": before, "interpreter": interpreter, "native": self.native,
            **self.slow,
        }  # fmt: skip

    def current_counters(self, *, current: bool) -> tuple[Counter, ...]:
        """The integers in the user's code; with `current`, the values before and after are equal."""
        if not current:
            return self.counters
        return tuple(msgspec.structs.replace(counter, before=counter.after) for counter in self.counters)


class DeepReader:
    """Reads processes and keeps the last readings of each."""

    def __init__(self, clocks: CpuClocks) -> None:
        self._clocks = clocks
        self.readings: dict[int, Readings] = {}
        self._interpreters = InterpreterState()
        self._sources: Sources | None = None
        self._runtimes = Runtimes()

    def drop_ended(self, observation: Observation, new: Iterable[int]) -> None:
        """Drop the readings of processes that are no longer targets. `new` are processes that have started: their source files
        may have changed, so cached sources are checked again."""
        for pid in [
            pid for pid, readings in self.readings.items() if _find_start(observation, pid) != readings.start_ticks
        ]:
            del self.readings[pid]
        if self._sources is not None and set(new):
            self._sources.renew()

    def read(self, observation: Observation, targets: Iterable[Target], off_cpu: set[int]) -> None:
        """Read some processes now. Those in `off_cpu` have not run in the window, so they are read without a pause. If they do
        not run during the reading either, it is valid for the whole window."""
        targets = list(targets)
        for target in targets:
            if target.pid not in off_cpu:
                self._clocks.paused(target.pid)
        at_end = {target.pid: self._clocks.readings(target.pid)[1] for target in targets}
        stacks = dump_each(observation, targets, off_cpu)
        if any(isinstance(stack, Stack) for stack in stacks.values()):  # at once: a process that runs frees its objects
            sources = self._sources = self._sources or Sources(observation.proc)
            stacks = annotate_each(observation, sources, stacks, at_end)
        slow = self._read_slow(observation, targets)
        ranks = [target for target in targets if target.role == "rank"]
        interpreters = observation.read_each(ranks, lambda target: self._interpreters.read(observation, target))
        clocks = observation.read_each(targets, lambda target: self._clocks.read(observation.proc, target.pid))
        for target in targets:
            interpreter, threads = interpreters.get(target.pid, _NOT_LOOKED_AT), clocks[target.pid]
            after = {} if isinstance(threads, Unavailable) else threads
            seen = (earlier := self.readings.get(target.pid)) is not None and isinstance(earlier.stack, Stack)
            # Without a stack, only the main thread was known, and another one may have run since the window began.
            began = at_end[target.pid] if seen else self._clocks.readings(target.pid)[0]
            off = target.pid in off_cpu and not has_run(target.pid, stacks[target.pid], began, after)
            self._store(target, stacks[target.pid], interpreter, after, off_cpu=off)
            readings, more = self.readings[target.pid], slow.get(target.pid, {})
            readings.slow_at = more.pop("at", readings.slow_at)
            readings.slow = {**readings.slow, **more}

    def read_memory(self, observation: Observation, targets: Iterable[Target]) -> None:
        """Read only the interpreters of some ranks, and what hardly ever changes, where that is due: it takes no pause."""
        now = time.monotonic()
        due = [t for t in targets if t.pid not in self.readings or now - self.readings[t.pid].slow_at > _SLOW_SECONDS]
        slow = self._read_slow(observation, due)
        interpreters = observation.read_each(due, lambda target: self._interpreters.read(observation, target))
        for target in due:
            interpreter = interpreters.get(target.pid, _NOT_LOOKED_AT)
            self._store(target, COUNTS, interpreter, self._clocks.readings(target.pid)[1], off_cpu=False)
            readings = self.readings[target.pid]
            readings.counted_at = now
            readings.slow_at, readings.slow = now, {**readings.slow, **slow[target.pid]}
            readings.slow.pop("at", None)

    def drop_stack(self, pid: int) -> None:
        """Drop the stacks of a process that has moved since, and what is only valid with them."""
        readings = self.readings.get(pid)
        if readings is not None:
            readings.counted_at = time.monotonic()
        if readings is not None and readings.stack is not COUNTS:
            readings.stack = readings.stack_before = readings.native = COUNTS
            readings.native_tried, readings.off_cpu, readings.counters = False, False, ()

    def _store(
        self,
        target: Target,
        stack: Stack | Unavailable,
        interpreter: Interpreter | Unavailable,
        threads: Threads,
        *,
        off_cpu: bool,
    ) -> None:
        """Store what was read of a process, with its clocks after the reading. `off_cpu`: it has not run meanwhile."""
        pid, before = target.pid, self.readings.get(target.pid)
        earlier = before.interpreter if before is not None else None
        if isinstance(interpreter, Interpreter) and isinstance(earlier, Interpreter):
            interpreter = msgspec.structs.replace(interpreter, globals_before=integers(earlier))
        readings = Readings(pid, target.start_ticks, time.monotonic(), threads, stack, interpreter=interpreter)
        if before is not None:
            readings.stack_before, readings.read_before_at = before.stack, before.read_at
            readings.slow, readings.slow_at = before.slow, before.slow_at
            readings.counted_at = before.counted_at if before.stack is COUNTS and not off_cpu else None
            if isinstance(before.stack, Stack) and isinstance(stack, Stack):
                same = native_stacks.location(before.stack) == native_stacks.location(stack)
                if same:
                    readings.native, readings.native_tried = before.native, before.native_tried
        if off_cpu:
            readings.stack_before, readings.off_cpu = stack, True
            if isinstance(interpreter, Interpreter):
                readings.interpreter = msgspec.structs.replace(interpreter, globals_before=integers(interpreter))
        if target.role == "rank":
            readings.counters = counters(readings.stack_before, stack, readings.interpreter)
        self.readings[pid] = readings

    def _read_slow(self, observation: Observation, targets: list[Target]) -> dict[int, dict[str, Any]]:
        """By rank and field: what hardly ever changes, if that is due."""
        now = time.monotonic()
        ranks = {t.pid: t for t in targets if t.role == "rank"}
        earlier = {pid: readings for pid in ranks if (readings := self.readings.get(pid)) is not None}
        old = {pid: t for pid, t in ranks.items() if pid not in earlier or now - earlier[pid].slow_at > _SLOW_SECONDS}
        slow: dict[int, dict[str, Any]] = {pid: {} for pid in ranks}
        if old:
            probe, part = TrainingData(), msgspec.structs.replace(observation, targets=old)
            probe.during(part)
            for pid, name, value in probe.evidence(part):
                if pid is not None:
                    slow[pid][name] = value
        runtimes = observation.read_each(old.values(), lambda target: self._runtimes.read(observation.proc, target))
        for pid, software in runtimes.items():
            slow[pid] |= {"runtime": software, "at": now}
        return slow

    def native(self, observation: Observation, gathered: native_stacks.Gathered, pids: set[int]) -> None:
        """Read the C++ frames of those `pids` that make no progress and need them. That takes a pause, so their Python stacks are
        read once more, without a pause. Whoever made progress or was held meanwhile is asked again in a later poll."""
        for pid, native in native_stacks.read(observation.part(pids), gathered).items():
            if isinstance(native, Stack):
                self._clocks.paused(pid)
                self._wait_until_off_cpu(observation, pid)
                self.read(observation, [observation.targets[pid]], {pid})
            self.readings[pid].native, self.readings[pid].native_tried = native, True

    def refuse_natives(self) -> None:
        """Say of all ranks that their C++ frames are not to be read."""
        for readings in self.readings.values():
            if isinstance(readings.stack, Stack):
                readings.native = native_stacks.NOT_ASKED

    def drop_native(self, pid: int) -> None:
        """Drop the C++ frames of a process that moves again: they are out of date."""
        if (readings := self.readings.get(pid)) is not None and readings.native_tried:
            readings.native, readings.native_tried = native_stacks.NOT_YET, False

    def _wait_until_off_cpu(self, observation: Observation, pid: int) -> None:
        until = time.monotonic() + _SETTLES_SECONDS
        before = self._clocks.read(observation.proc, pid)
        while time.monotonic() < until:
            time.sleep(0.005)
            now = self._clocks.read(observation.proc, pid)
            if self.readings[pid].was_off_cpu(before, now):
                return
            before = now

    def problems(self) -> list[str]:
        """Interpreters that are not supported, and source that is missing, one sentence each."""
        return [*self._interpreters.problems(), *(self._sources.problems() if self._sources is not None else ())]


def _find_start(observation: Observation, pid: int) -> int | None:
    target = observation.targets.get(pid)
    return target.start_ticks if target is not None else None
