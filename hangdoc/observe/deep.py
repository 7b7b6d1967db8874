"""What is costly to read of a process: stacks, the interpreter's memory, data, the recorder. Read when it can tell something
new, and kept as long as the process stands still: a process that has not run has the stack that it had.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hangdoc.observe import attach, natives
from hangdoc.observe.clocks import CpuClocks, Threads
from hangdoc.observe.data import TrainingData
from hangdoc.observe.flight_recorder import FlightRecorders
from hangdoc.observe.interpreter import InterpreterState, numbers
from hangdoc.observe.machine import runtime
from hangdoc.observe.observation import Observation, Target
from hangdoc.observe.progress import counters
from hangdoc.observe.source import Sources
from hangdoc.observe.stacks import annotated, has_run
from hangdoc.snapshot import Counter, Interpreter, Stack, Unavailable

_SLOW_SECONDS = 60.0
"""What hardly ever changes in a running process (data directories, versions) is read again after so long."""
_SETTLES_SECONDS = 0.05
"""Within this time a thread that a tracer has let go is back in its system call."""
_NOT_LOOKED_AT = Unavailable(reason="not looked at")
_READ_ONCE = Unavailable(reason="read once so far")
_NOT_NEEDED = Unavailable(reason="not needed")


@dataclass
class Known:
    """What is known of one process."""

    pid: int
    start_ticks: int
    read_at: float
    """Monotonic."""
    threads: Threads
    """Its clocks when it was read."""
    stack: Stack | Unavailable
    stack_before: Stack | Unavailable = _READ_ONCE
    read_before_at: float = 0.0
    interpreter: Interpreter | Unavailable = _NOT_LOOKED_AT
    counters: tuple[Counter, ...] = ()
    native: Stack | Unavailable = _NOT_NEEDED
    native_tried: bool = False
    """Whether C++ frames were asked for, or found unnecessary, since it came to where it stands."""
    still: bool = False
    """Whether it did not run in the whole window in which it was read."""
    slow: dict[str, Any] = field(default_factory=dict)
    """Data, runtime and recorder, by the names of their fields."""
    slow_at: float = float("-inf")

    def moved(self, now: Threads) -> bool:
        """Whether a thread that matters has run since the process was read, or it could not be read."""
        return not isinstance(self.stack, Stack) or has_run(self.pid, self.stack, self.threads, now)

    def rested(self, first: Threads, second: Threads) -> bool:
        """Whether it stood still over a window, wherever it may be by now."""
        return not has_run(self.pid, self.stack, first, second)

    def fields(self, began: float, *, stands: bool) -> dict[str, Any]:
        """By the names of snapshot.Process's fields; `began` is when the poll did, monotonic; `stands`: it has not run since it
        was read."""
        stack, before, interpreter = self.stack, self.stack_before, self.interpreter
        if isinstance(stack, Stack):
            at = time.monotonic() if stands else self.read_at
            stack = msgspec.structs.replace(stack, at_seconds=round(at - began, 3))
        if isinstance(before, Stack):
            before = msgspec.structs.replace(before, at_seconds=round(self.read_before_at - began, 3))
        if stands:
            before = msgspec.structs.replace(self.stack, at_seconds=0.0) if isinstance(self.stack, Stack) else before
            if isinstance(interpreter, Interpreter):
                interpreter = msgspec.structs.replace(interpreter, globals_before=numbers(interpreter))
        return {
            "stack": stack, "stack_before": before, "interpreter": interpreter, "native": self.native, **self.slow,
        }  # fmt: skip

    def counted(self, *, stands: bool) -> tuple[Counter, ...]:
        """The integers of the user's code, unchanged where it stands."""
        if not stands:
            return self.counters
        return tuple(msgspec.structs.replace(one, before=one.after) for one in self.counters)


class DeepReader:
    """Reads processes, and knows what it has read of which."""

    def __init__(self, clocks: CpuClocks) -> None:
        self._clocks = clocks
        self.known: dict[int, Known] = {}
        self._interpreters = InterpreterState()
        self._sources: Sources | None = None
        self._torch_versions: dict[str, str | None] = {}

    def forget(self, observation: Observation, new: Iterable[int]) -> None:
        """Drop who is no longer looked at; `new` are processes that have started, maybe from files that have changed."""
        for pid in [pid for pid, one in self.known.items() if _start(observation, pid) != one.start_ticks]:
            del self.known[pid]
        if self._sources is None or set(new):
            self._sources = Sources(observation.proc)

    def read(self, observation: Observation, targets: Iterable[Target], still: set[int]) -> None:
        """Read some processes now. Those in `still` have not run over the window: they are read without a pause, and if they do
        not run meanwhile, what is read was so for the whole window."""
        targets = list(targets)
        stacks = observation.each(
            lambda t: attach.dump(observation.proc, t.pid, observation.deadline, still=t.pid in still), targets
        )
        slow = self._read_slow(observation, targets)
        for target, stack in zip(targets, stacks, strict=True):
            self._take_in(observation, target, stack, still=target.pid in still)
            known, more = self.known[target.pid], slow.get(target.pid, {})
            known.slow_at = more.pop("at", known.slow_at)
            known.slow = {**known.slow, **more}

    def _take_in(self, observation: Observation, target: Target, stack: Stack | Unavailable, *, still: bool) -> None:
        """Put together what was read of a process, and its clocks after that."""
        pid, before = target.pid, self.known.get(target.pid)
        if isinstance(stack, Stack):
            sources = self._sources = self._sources or Sources(observation.proc)
            stack = annotated(observation, sources, pid, stack)
        interpreter: Interpreter | Unavailable = _NOT_LOOKED_AT
        if target.role == "rank":
            interpreter = self._interpreters.read(observation, target)
            earlier = before.interpreter if before is not None else None
            if isinstance(interpreter, Interpreter) and isinstance(earlier, Interpreter):
                interpreter = msgspec.structs.replace(interpreter, globals_before=numbers(earlier))
        seen = self._clocks.seen(pid)[1]
        threads = self._clocks.read(observation.proc, pid)
        known = Known(pid, target.start_ticks, time.monotonic(), threads, stack, interpreter=interpreter)
        if before is not None:
            known.stack_before, known.read_before_at = before.stack, before.read_at
            known.slow, known.slow_at = before.slow, before.slow_at
            if isinstance(before.stack, Stack) and isinstance(stack, Stack):
                same = natives.places(before.stack) == natives.places(stack)
                if same:
                    known.native, known.native_tried = before.native, before.native_tried
        if still and not has_run(pid, stack, seen, threads):
            known.stack_before, known.still = stack, True
            if isinstance(interpreter, Interpreter):
                known.interpreter = msgspec.structs.replace(interpreter, globals_before=numbers(interpreter))
        if target.role == "rank":
            known.counters = counters(known.stack_before, stack, known.interpreter)
        self.known[pid] = known

    def _read_slow(self, observation: Observation, targets: list[Target]) -> dict[int, dict[str, Any]]:
        """What its recorder knows now, and what hardly ever changes, of each rank by the names of the fields."""
        now = time.monotonic()
        ranks = {t.pid: t for t in targets if t.role == "rank"}
        known = {pid: one for pid in ranks if (one := self.known.get(pid)) is not None}
        old = {pid: t for pid, t in ranks.items() if pid not in known or now - known[pid].slow_at > _SLOW_SECONDS}
        found: dict[int, dict[str, Any]] = {pid: {} for pid in ranks}
        for probe, whom in ((FlightRecorders(), ranks), (TrainingData(), old)):
            if whom:
                part = msgspec.structs.replace(observation, targets=whom)
                probe.during(part)
                for pid, name, value in probe.evidence(part):
                    if pid is not None:
                        found[pid][name] = value
        for pid, target in old.items():
            found[pid] |= {"runtime": runtime(observation.proc, target, self._torch_versions), "at": now}
        return found

    def native(self, observation: Observation, gathered: natives.Gathered, pids: set[int]) -> None:
        """C++ frames of those of `pids` that stand still and need them. They are read with a pause, so their Python stacks are
        read once more, without one."""
        part = observation.part(pids)
        earlier = {
            pid: (one.stack, one.native)
            for pid, one in self.known.items()
            if pid in pids and isinstance(one.stack, Stack) and isinstance(one.native, Stack)
        }
        for pid in pids:
            self.known[pid].native, self.known[pid].native_tried = _NOT_NEEDED, True
        for pid, native in natives.take(part, gathered, earlier).items():
            again = earlier.get(pid, (None, None))[1] is not native
            if again and isinstance(native, Stack):
                self._settle(observation, pid)
                self.read(observation, [observation.targets[pid]], {pid})
            self.known[pid].native, self.known[pid].native_tried = native, True

    def without_native(self, pid: int) -> None:
        """A process moves again: what its C++ frames were says nothing any more."""
        if (known := self.known.get(pid)) is not None and known.native_tried:
            known.native, known.native_tried = _NOT_NEEDED, False

    def _settle(self, observation: Observation, pid: int) -> None:
        until = time.monotonic() + _SETTLES_SECONDS
        before = self._clocks.read(observation.proc, pid)
        while time.monotonic() < until:
            time.sleep(0.005)
            now = self._clocks.read(observation.proc, pid)
            if self.known[pid].rested(before, now):
                return
            before = now

    def problems(self) -> list[str]:
        """What was not understood."""
        return self._interpreters.problems()


def _start(observation: Observation, pid: int) -> int | None:
    target = observation.targets.get(pid)
    return target.start_ticks if target is not None else None
