"""Stacks of all ranks, twice across the window; of helpers and launchers where they matter.

A dump costs 12 to 22 ms, of which it holds the rank for 2; native frames (`natives`) cost far more.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from hangdoc.observe import attach
from hangdoc.observe.clocks import Threads, threads_of
from hangdoc.observe.discover import adopt_helpers
from hangdoc.observe.memory import Memory, Unreadable
from hangdoc.observe.observation import Observation, ProbeResult, Target
from hangdoc.observe.precision import precisions
from hangdoc.observe.procfs import ProcError
from hangdoc.observe.python_state import Variable, amounts, posted, torch_value
from hangdoc.observe.source import Sources
from hangdoc.program import program
from hangdoc.snapshot import Frame, Local, Stack, Unavailable

_HELPERS_PER_RANK = 16
_MAX_INSIDE = 60
_RESERVE_SECONDS = 1.0
"""What must be left for the other probes before sources and variables are read."""
_C10D = "torch/distributed/distributed_c10d.py"
_LAYERS = "/torch/nn/modules/"
_WAITS_FOR_A_CHILD = (
    "torch/utils/data/dataloader.py",
    "multiprocessing/connection.py",
    "multiprocessing/queues.py",
    "multiprocessing/popen_fork.py",
    "concurrent/futures/",
    "subprocess.py",
)


class Stacks:
    """The probe."""

    name = "stacks"

    def __init__(self) -> None:
        self._first: dict[int, Stack | Unavailable] = {}
        self._second: dict[int, Stack | Unavailable] = {}
        self._clocks: dict[int, Threads] = {}
        """Of each process right after its first dump."""
        self._took = 0.0
        self._sources: Sources | None = None

    def open(self, observation: Observation) -> None:
        """Dump every rank."""
        began = time.monotonic()
        targets = [t for t in observation.ranks() if t.state not in "ZX" and t.python]
        self._first = self._first_look(observation, targets)
        self._took = time.monotonic() - began

    def during(self, observation: Observation) -> None:
        """Helpers that a rank waits for, and the source of what was seen."""
        adopt_helpers(observation)
        wanted = []
        for rank in observation.ranks():
            if waits_for_a_child(self._first.get(rank.pid)):
                wanted += helpers_of(observation, rank)
        self._first |= self._first_look(observation, wanted)
        self._sources = Sources(observation.proc)
        for pid, stack in self._first.items():  # most frames are the same at the second look: read their files now
            if isinstance(stack, Stack):
                self._sources.annotate(pid, stack)

    def close(self, observation: Observation) -> None:
        """Dump everything seen before once more, and what a rank has started since. What has not run since it was dumped stands
        where it stood. Launchers are dumped once, and only those without a living rank: it matters whether they wait for other
        nodes or for the end, and one with a rank does neither. A parent that is no launcher knows how many it has spawned."""
        busy = {t.owner for t in observation.ranks() if t.state not in "ZX"}
        launchers = [
            t
            for t in observation.alive()
            if t.role == "launcher" and t.python and (t.launch is None or t.pid not in busy)
        ]
        self._first |= {t.pid: Unavailable(reason="read at the end of the window alone") for t in launchers}
        for pid in adopt_helpers(observation):
            self._first[pid] = attach.dump(observation.proc, pid, observation.deadline)
        again = []
        for pid, first in self._first.items():
            if isinstance(first, Stack) and self._stands(observation, pid, first):
                self._second[pid] = msgspec.structs.replace(first, at_seconds=observation.deadline.elapsed())
            elif isinstance(first, Stack):
                again.append(observation.targets[pid])
        self._second |= self._dump(observation, [*again, *launchers])

    def lead_seconds(self) -> float:
        """How long before the window's end `close` should begin, so that it ends with the window."""
        return self._took + 0.04  # sockets, memory and clocks are read behind them

    def _stands(self, observation: Observation, pid: int, first: Stack) -> bool:
        before, now = self._clocks.get(pid, {}), threads_of(observation.proc, pid)
        return bool(before) and not isinstance(now, Unavailable) and not has_run(pid, first, before, now)

    def _first_look(self, observation: Observation, targets: Iterable[Target]) -> dict[int, Stack | Unavailable]:
        targets = list(targets)
        found = self._dump(observation, targets)
        for pid, stack in found.items():
            threads = threads_of(observation.proc, pid) if isinstance(stack, Stack) else stack
            if not isinstance(threads, Unavailable):
                self._clocks[pid] = threads
        return found

    def _dump(self, observation: Observation, targets: Iterable[Target]) -> dict[int, Stack | Unavailable]:
        targets = list(targets)
        stacks = observation.each(lambda t: attach.dump(observation.proc, t.pid, observation.deadline), targets)
        return {target.pid: stack for target, stack in zip(targets, stacks, strict=True)}

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """Both stacks, the second with source lines and lengths."""
        sources = self._sources or Sources(observation.proc)
        for pid, first in self._first.items():
            missing = Unavailable(reason="no time was left for a second look") if isinstance(first, Stack) else first
            second = self._second.get(pid, missing)
            if isinstance(first, Stack) and isinstance(second, Unavailable) and _is_there(observation, pid):
                first, second = second, first  # one look is something: it must not pass for two
            if isinstance(second, Stack):
                second = annotated(observation, sources, pid, second)
            yield pid, "stack_before", first
            yield pid, "stack", second
        for target in observation.targets.values():
            if target.pid not in self._first:
                reason = why_not(target)
                yield target.pid, "stack", Unavailable(reason=reason)
                yield target.pid, "stack_before", Unavailable(reason=reason)


def _is_there(observation: Observation, pid: int) -> bool:
    try:
        return observation.proc.stat(str(pid)).state not in "ZX"
    except ProcError:
        return False


def why_not(target: Target) -> str:
    """Why a process has no stack that was not tried."""
    if target.state in "ZX":
        return "the process has ended"
    return "not needed" if target.python else "not a Python process"


def has_run(pid: int, stack: Stack | Unavailable, before: Threads, now: Threads) -> bool:
    """Whether a thread that matters has run between two readings of a process's clocks: the main thread, and one that runs the
    user's code, waits in torch.distributed or had the GIL. Other threads of Python tick for ever (progress bars, monitors), those
    of torch's backends have no Python stack."""
    if not before or not now.keys() <= before.keys():
        return True
    wanted = {pid}
    for thread in stack.threads if isinstance(stack, Stack) else ():
        at_work = thread.owns_gil or any(not f.library or "/torch/distributed/" in f.file for f in thread.frames)
        if at_work and thread.name != "MainThread":
            wanted |= {thread.tid} if thread.tid is not None else now.keys()
    return any(
        tid not in now
        or tid not in before
        or now[tid].ran != before[tid].ran
        or "R" in (now[tid].state, before[tid].state)
        for tid in wanted
    )


def waits_for_a_child(stack: Stack | Unavailable | None) -> bool:
    """Whether a thread of a rank may wait for a helper process."""
    return isinstance(stack, Stack) and any(
        name in frame.file for thread in stack.threads for frame in thread.frames[:8] for name in _WAITS_FOR_A_CHILD
    )


def helpers_of(observation: Observation, rank: Target) -> list[Target]:
    """The helpers of a rank that are worth a look, at most a few."""
    helpers = [t for t in observation.alive() if t.role == "helper" and t.owner == rank.pid and t.python]
    return helpers[:_HELPERS_PER_RANK]


def annotated(observation: Observation, sources: Sources, pid: int, stack: Stack) -> Stack:
    """The stack with source lines, lengths and numbers of objects, if there is time."""
    if observation.deadline.remaining() > _RESERVE_SECONDS:
        return sources.annotate(pid, _with_amounts(observation, pid, stack))
    observation.deadline.miss("source and variables", pid)
    return stack


def _with_amounts(observation: Observation, pid: int, stack: Stack) -> Stack:
    """The stack with lengths of containers, and with numbers and lengths inside the objects that the user's own frames
    hold (`loader.dataset.paths`), read from memory: py-spy's texts are short."""
    try:
        image = observation.image(pid)
        with Memory(pid, image.layout, str(observation.proc.root)) as memory:
            threads = tuple(
                msgspec.structs.replace(thread, frames=tuple(_looked_into(memory, thread.frames)))
                for thread in stack.threads
            )
            return msgspec.structs.replace(stack, threads=threads)
    except (Unreadable, ProcError):
        return stack


def _looked_into(memory: Memory, frames: tuple[Frame, ...]) -> Iterator[Frame]:
    of_program = {id(frame) for frame in program(frames)}
    for frame in frames:
        if not frame.library or frame.file.endswith(_C10D):
            yield _measured(memory, frame)
        else:
            yield _counted(memory, frame) if id(frame) in of_program else _typed(memory, frame)


def _counted(memory: Memory, frame: Frame) -> Frame:
    """A frame of a framework with the lengths of its containers, and the numbers of the object whose method it is: a trainer
    keeps there how many batches it has."""
    found: list[Local] = []
    for local in frame.locals:
        length = None
        if local.address is not None:
            with contextlib.suppress(Unreadable):
                if local.text[:1] in "[({":
                    length = memory.length(local.address)
                elif local.name == "self":
                    found += map(_as_local, islice(amounts(memory, "self", local.address, depth=1), _MAX_INSIDE))
        found.append(msgspec.structs.replace(local, length=length))
    return msgspec.structs.replace(frame, locals=tuple(found))


def _typed(memory: Memory, frame: Frame) -> Frame:
    """A frame of one of torch's own layers with the types of its tensors: what it computes in."""
    if _LAYERS not in frame.file:
        return frame
    found = []
    for local in frame.locals:
        text = None
        if local.address is not None and local.text.startswith("<"):
            with contextlib.suppress(Unreadable):
                text = torch_value(memory, local.address)
        found.append(local if text is None else msgspec.structs.replace(local, text=text))
    return msgspec.structs.replace(frame, locals=tuple(found))


def _as_local(variable: Variable) -> Local:
    return Local(name=variable.name, text=variable.text, length=variable.length)


def _measured(memory: Memory, frame: Frame) -> Frame:
    found: list[Local] = []
    inside: list[Local] = []
    for local in frame.locals:
        length = None
        if local.address is not None:
            with contextlib.suppress(Unreadable):
                if local.text[:1] in "[({":
                    length = memory.length(local.address)
                    if "<P2POp at " in local.text:
                        inside += map(_as_local, posted(memory, local.name, local.address))
                elif local.text.startswith("<") and (text := torch_value(memory, local.address)) is not None:
                    found.append(msgspec.structs.replace(local, text=text))
                    continue
                elif local.text.startswith("<") and len(inside) < _MAX_INSIDE:
                    inside += map(_as_local, precisions(memory, local.name, local.address))
                    inside += map(_as_local, amounts(memory, local.name, local.address))
        found.append(msgspec.structs.replace(local, length=length))
    return msgspec.structs.replace(frame, locals=(*found, *inside[:_MAX_INSIDE]))
