"""Stacks of all ranks at both ends of the window, and of helpers and launchers that matter.

A dump takes 12 to 22 ms and pauses the rank for 2 ms. A rank that has not run for a second is not paused: that would be the only
reason for its threads to run. One that makes calls while its whole run moves is not read at all, unless somebody asks for it: its
record has the place of its last call. Native frames (`native_stacks`) take far longer.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from hangdoc.observe.access.observation import Observation, ProbeResult, Target
from hangdoc.observe.access.shares import is_share_taken
from hangdoc.observe.kernel import awaited_files, system_calls
from hangdoc.observe.kernel.clocks import Threads, threads_of
from hangdoc.observe.kernel.targets import adopt_helpers
from hangdoc.observe.memory.budget import Budget
from hangdoc.observe.stacks import attach, memory_stacks
from hangdoc.observe.stacks.contents import with_contents
from hangdoc.observe.stacks.source import Sources
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import PythonThread, Stack, Unavailable
from hangdoc.torch_facts import file_names
from hangdoc.torch_facts.frameworks import TRAINING_THREADS

_HELPERS_PER_RANK = 16
_RESERVE_SECONDS = 1.0
"""Source and variables are read only if more than this time is left, which the other probes need."""
COUNTS = Unavailable(reason="not needed: the rank makes calls, and so makes progress")
_TURN_SECONDS = 0.05
_MOVES_SHARE = 0.4
"""Of the window: a rank that has made no call in this time is read, so that a second reading may show other lines."""
_WAITS_FOR_A_CHILD = (
    file_names.DATALOADER,
    "multiprocessing/connection.py",
    "multiprocessing/queues.py",
    "multiprocessing/popen_fork.py",
    "concurrent/futures/",
    "subprocess.py",
)


FindMoving = Callable[[Observation, Iterable[Target]], dict[int, bool]]
"""By pid: whether a rank has made calls since the window began (`FlightRecorders.find_moving`)."""


class Stacks:
    """The probe."""

    name = "stacks"

    def __init__(self) -> None:
        self.find_moving: FindMoving | None = None
        """Tells which ranks make calls, so that they need no stack. None: all ranks are read."""
        self._undecided: list[Target] = []
        """Ranks that may be making calls."""
        self._until = 0.0
        self._first: dict[int, Stack | Unavailable] = {}
        self._second: dict[int, Stack | Unavailable] = {}
        self._clocks: dict[int, Threads] = {}
        """The clocks of each process right after its first dump."""
        self._took = 0.0
        self._sources: Sources | None = None

    def open(self, observation: Observation) -> None:
        """Dump every rank, but those of a run that may be moving."""
        began = time.monotonic()
        targets = [t for t in observation.ranks() if t.state not in "ZX" and t.python]
        if self.find_moving is not None:
            recorded = self.find_moving(observation, targets)
            still = {t.run for t in targets if t.at_rest or t.pid not in recorded}
            self._undecided = [t for t in targets if t.run not in still]
        self._until = began + _MOVES_SHARE * observation.window
        undecided = {t.pid for t in self._undecided}
        self._first = self._dump_first(observation, [t for t in targets if t.pid not in undecided])
        self._took = time.monotonic() - began

    def during(self, observation: Observation) -> None:
        """Dump helpers that a rank may wait for, and read the source files of all frames."""
        adopt_helpers(observation)
        self._decide(observation)
        wanted = []
        for rank in observation.ranks():
            if waits_for_a_child(observation, rank, self._first.get(rank.pid)):
                wanted += helpers_of(observation, rank)
        self._first |= self._dump_first(observation, wanted)
        self._sources = Sources(observation.proc)
        sources, stacks = self._sources, dict(self._first)  # most frames will be the same in the second dump
        observation.read_each(
            (observation.targets[pid] for pid, stack in stacks.items() if isinstance(stack, Stack)),
            lambda target: sources.annotate(target.pid, target.start_ticks, _stack_in(stacks[target.pid])),
        )

    def _decide(self, observation: Observation) -> None:
        """Dump the ranks that have made no call for a while. A run moves only if all of its ranks do."""
        moving: set[int] = set()
        while self._undecided and self.find_moving is not None:
            moving |= {pid for pid, moves in self.find_moving(observation, self._undecided).items() if moves}
            if len(moving) == len(self._undecided) or time.monotonic() > self._until:
                break
            time.sleep(_TURN_SECONDS)
        still = {t.run for t in self._undecided if t.pid not in moving}
        self._first |= {t.pid: COUNTS for t in self._undecided if t.run not in still}
        began = time.monotonic()
        self._first |= self._dump_first(observation, [t for t in self._undecided if t.run in still])
        self._took = max(self._took, time.monotonic() - began)

    def close(self, observation: Observation) -> None:
        """Dump every process again, and helpers that have started since. A process that has not run since its first dump has the
        same stack. Launchers are dumped only once, and only those without a living rank: what matters is whether they wait for
        other nodes or for the end, and one with a living rank does neither. A parent that is not a launcher is dumped anyway:
        its variables tell how many ranks it has spawned."""
        busy = {t.owner for t in observation.ranks() if t.state not in "ZX"}
        launchers = [
            t
            for t in observation.alive()
            if t.role == "launcher" and t.python and (t.launch is None or t.pid not in busy)
        ]
        self._first |= {t.pid: Unavailable(reason="read only at the end of the window") for t in launchers}
        for pid in adopt_helpers(observation):
            self._first |= dump_each(observation, [observation.targets[pid]], set())
        to_dump = []
        for pid, first in list(self._first.items()):
            if isinstance(first, Stack) and self._is_off_cpu(observation, pid, first):
                self._second[pid] = msgspec.structs.replace(first, at_seconds=observation.deadline.elapsed())
            elif isinstance(first, Stack):
                to_dump.append(observation.targets[pid])
        self._second |= self._dump(observation, [*to_dump, *launchers])

    def lead_seconds(self) -> float:
        """How long before the end of the window `close` should begin, so that it ends with the window."""
        return self._took + 0.04  # sockets, memory and clocks are read after the stacks

    def _is_off_cpu(self, observation: Observation, pid: int, first: Stack) -> bool:
        before = self._clocks.get(pid, {})
        return bool(before) and not _may_have_run(observation, pid, first, before)

    def _dump_first(self, observation: Observation, targets: Iterable[Target]) -> dict[int, Stack | Unavailable]:
        targets = list(targets)
        still = {t.pid: threads_of(observation.proc, t.pid) for t in targets if t.at_rest}
        stacks = self._dump(observation, targets)
        ran = [t for t in targets if t.pid in still and _may_have_run(observation, t.pid, stacks[t.pid], still[t.pid])]
        for target in ran:
            target.last_run = None
        stacks |= self._dump(observation, ran)
        for pid, stack in stacks.items():
            threads = threads_of(observation.proc, pid) if isinstance(stack, Stack) else stack
            if not isinstance(threads, Unavailable):
                self._clocks[pid] = threads
        return stacks

    def _dump(self, observation: Observation, targets: Iterable[Target]) -> dict[int, Stack | Unavailable]:
        targets = list(targets)
        return dump_each(observation, targets, {target.pid for target in targets if target.at_rest})

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """Both stacks, the second with source lines and lengths."""
        sources = self._sources or Sources(observation.proc)
        before: dict[int, Stack | Unavailable] = {}
        after: dict[int, Stack | Unavailable] = {}
        for pid, first in list(self._first.items()):
            missing = Unavailable(reason="no time was left for a second reading") if isinstance(first, Stack) else first
            second = self._second.get(pid, missing)
            if isinstance(first, Stack) and isinstance(second, Unavailable) and _is_alive(observation, pid):
                first, second = second, first  # one reading is useful, but must not count as two
            before[pid], after[pid] = first, second
        after |= annotate_each(observation, sources, after, self._clocks)
        observation.problems += sources.problems()
        for pid in before:
            yield pid, "stack_before", before[pid]
            yield pid, "stack", after[pid]
        for target in observation.targets.values():
            if target.pid not in self._first:
                reason = no_stack_reason(target)
                yield target.pid, "stack", Unavailable(reason=reason)
                yield target.pid, "stack_before", Unavailable(reason=reason)


def with_later_frames(first: Stack, second: Stack) -> Stack:
    """The first of two looks, in which each thread that was at the same lines at the second has its frames: counters keep what
    changed in them, and a bundle holds such frames once."""
    later = {(thread.tid, thread.name, _lines(thread)): thread.frames for thread in second.threads}
    threads = tuple(
        msgspec.structs.replace(thread, frames=later.get((thread.tid, thread.name, _lines(thread)), thread.frames))
        for thread in first.threads
    )
    return msgspec.structs.replace(first, threads=threads)


def _lines(thread: PythonThread) -> tuple[tuple[str, str, int], ...]:
    return tuple((frame.file, frame.function, frame.line) for frame in thread.frames)


def _is_alive(observation: Observation, pid: int) -> bool:
    try:
        return observation.proc.stat(str(pid)).state not in "ZX"
    except ProcError:
        return False


def no_stack_reason(target: Target) -> str:
    """Why no stack of a process was read."""
    if target.state in "ZX":
        return "the process has ended"
    if target.role == "rank" and isinstance(target.environment, Unavailable):
        return target.environment.reason
    return "not needed" if target.python else "not a Python process"


def _may_have_run(
    observation: Observation, pid: int, stack: Stack | Unavailable, before: Threads | Unavailable
) -> bool:
    """Whether a relevant thread may have run since `before`."""
    now = threads_of(observation.proc, pid)
    return isinstance(before, Unavailable) or isinstance(now, Unavailable) or has_run(pid, stack, before, now)


def has_run(pid: int, stack: Stack | Unavailable, before: Threads, now: Threads) -> bool:
    """Whether a relevant thread has run between two readings of a process's clocks. Also if they can't be compared."""
    if not before or not now.keys() <= before.keys():
        return True
    return any(
        tid not in now
        or tid not in before
        or now[tid].ran != before[tid].ran
        or "R" in (now[tid].state, before[tid].state)
        for tid in find_relevant_threads(pid, stack, now)
    )


def find_relevant_threads(pid: int, stack: Stack | Unavailable, now: Threads) -> set[int]:
    """The thread that trains, and the threads that run the user's code, wait in torch.distributed, or have the GIL. Other Python
    threads run all the time (progress bars, monitors), and threads of torch's backends have no Python stack. The main thread
    trains unless a framework does that in another one: then it only runs the framework's loop."""
    threads = stack.threads if isinstance(stack, Stack) else ()
    trains = {thread.tid for thread in threads if is_started_to_train(thread)} - {None}
    relevant = set() if trains else {pid}
    for thread in threads:
        in_code = any(not f.library or file_names.DISTRIBUTED in f.file for f in thread.frames)
        if thread.owns_gil or ((in_code or thread.tid in trains) and thread.name != "MainThread"):
            tid = pid if thread.name == "MainThread" else thread.tid
            relevant |= {tid} if tid is not None else now.keys()
    return relevant


def is_started_to_train(thread: PythonThread) -> bool:
    """Whether a framework has started a thread in which the user's training function runs, in place of the main thread."""
    return any(starts.is_at(frame.file, frame.function) for frame in thread.frames for starts in TRAINING_THREADS)


def waits_for_a_child(observation: Observation, rank: Target, stack: Stack | Unavailable | None) -> bool:
    """Whether a thread of a rank may wait for a helper process: by the files of its frames, or by the system call of the main
    thread. While the main thread is in a collective, only threads that run the user's code count: a queue's feeder and one that
    pins memory always wait for a helper."""
    if not isinstance(stack, Stack):
        return False
    in_call = _is_in_collective(stack)
    by_name = any(
        name in frame.file
        for thread in stack.threads
        if not in_call or thread.name == "MainThread" or any(not frame.library for frame in thread.frames)
        for frame in thread.frames[:8]
        for name in _WAITS_FOR_A_CHILD
    )
    return by_name or _waits_for_other(observation.proc, rank.pid)


def works_without_helpers(observation: Observation, rank: Target, stack: Stack | Unavailable | None) -> bool:
    """Whether no helper of a rank can change what it waits for: its main thread is in a collective, and no other thread waits for
    a helper."""
    return isinstance(stack, Stack) and _is_in_collective(stack) and not waits_for_a_child(observation, rank, stack)


def _is_in_collective(stack: Stack) -> bool:
    """Whether the main thread is in torch.distributed, or in a backward, in which DDP makes its calls, and not in the user's code
    that these call, as FSDP does a forward."""
    main = next((thread for thread in stack.threads if thread.name == "MainThread"), None)
    for frame in main.frames if main is not None else ():
        if file_names.DISTRIBUTED in frame.file or file_names.BACKWARD.is_at(frame.file, frame.function):
            return True
        if not frame.library and not frame.native:
            return False
    return False


def _waits_for_other(proc: ProcFS, pid: int) -> bool:
    """Whether the main thread of a process waits for the end of a child process, or for data in a pipe."""
    with contextlib.suppress(ProcError, ValueError):
        call, arguments = system_calls.current(proc, f"{pid}/task/{pid}")
        if call in system_calls.CHILD_WAITS:
            return True
        files = awaited_files.awaited(proc, pid, call, arguments, search=False) if call is not None else ()
        return any(file.kind == "pipe" and not file.writes for file in files)
    return False


def helpers_of(observation: Observation, rank: Target) -> list[Target]:
    """The Python helpers of a rank, at most 16."""
    helpers = [t for t in observation.alive() if t.role == "helper" and t.owner == rank.pid and t.python]
    return helpers[:_HELPERS_PER_RANK]


def dump_each(observation: Observation, targets: Iterable[Target], off_cpu: set[int]) -> dict[int, Stack | Unavailable]:
    """The stacks of some processes, read in parallel. Those in `off_cpu` are read without a pause (`attach.dump`). Where py-spy
    fails, memory may show them."""

    def dump(target: Target) -> Stack | Unavailable:
        stack = attach.dump(observation.proc, target.pid, observation.deadline, off_cpu=target.pid in off_cpu)
        if isinstance(stack, Unavailable):
            return memory_stacks.read(observation, target) or stack
        return stack

    return observation.read_together(targets, dump)


def annotate_each(
    observation: Observation,
    sources: Sources,
    stacks: dict[int, Stack | Unavailable],
    before: Mapping[int, Threads | Unavailable],
) -> dict[int, Stack | Unavailable]:
    """The stacks with source lines, lengths of containers and numbers in objects, if there is time. A stack stays as it is if
    these can't be read. `before`: the clocks of the processes when their stacks were valid."""

    def annotate(target: Target) -> Stack:
        stack = _stack_in(stacks[target.pid])
        if observation.deadline.remaining() > _RESERVE_SECONDS:
            budget = Budget()
            clocks = before.get(target.pid, {})
            stack = with_contents(
                observation, target.pid, stack, lambda: not _may_have_run(observation, target.pid, stack, clocks)
            )
            stack = sources.annotate(target.pid, target.start_ticks, stack, budget)
            if budget.spent:
                observation.late.append(
                    f"source of pid {target.pid}: reading it took too long, so its outer frames have no source lines"
                )
            return stack
        observation.deadline.miss("source and variables", target.pid)
        return stack

    read = [observation.targets[pid] for pid, stack in stacks.items() if isinstance(stack, Stack)]
    more = observation.read_each(read, annotate)
    for pid, stack in more.items():
        if isinstance(stack, Unavailable) and not is_share_taken(stack.reason):
            observation.late.append(f"source and variables of pid {pid}: {stack.reason}")
    return stacks | {pid: stack for pid, stack in more.items() if isinstance(stack, Stack)}


def _stack_in(stack: Stack | Unavailable) -> Stack:
    assert isinstance(stack, Stack)  # noqa: S101
    return stack
