"""Which known defects of NCCL and torch the ranks show signs of."""

from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.parse import version
from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.evidence.stack import lines_of
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.movement import own_counts
from hangdoc.snapshot import Communicator, Communicators, Machine, Process, Runtime, Stack
from hangdoc.torch_facts import thread_names
from hangdoc.torch_facts.known_defects import KNOWN_DEFECTS, KnownDefect


class Shown(NamedTuple):
    """A known defect and the ranks that show its sign."""

    defect: KnownDefect
    version: str
    """Of the library, as one of the ranks has it: `2.28.9`."""
    architecture: str
    signs: dict[int, str]
    """What each rank shows, by rank."""


def find_defects(run: Run) -> Iterator[Shown]:
    """The defects that a rank shows which makes no progress."""
    for defect in KNOWN_DEFECTS:
        shown = [
            (rank, sign)
            for rank in run.living
            if (sign := _sign(run, rank, defect)) is not None and _makes_no_progress(rank)
        ]
        if shown:
            first = shown[0][0]
            yield Shown(
                defect,
                _version(first, defect) or "",
                _architecture(run, first),
                {rank.rank: sign for rank, sign in shown},
            )


def _makes_no_progress(rank: Rank) -> bool:
    """Whether nothing of a rank has changed. It may use a whole core: NCCL and the driver spin while they wait."""
    if not rank.moving or rank.process is None:
        return True
    process, thread = rank.process, rank.thread
    if thread is None or rank.counters_moved or own_counts(process) is not None:
        return False
    if any(one.launches != one.launches_before for one in _communicators(rank)):
        return False
    return any(one.name == thread.name and lines_of(one) == lines_of(thread) for one in known.threads_before(process))


def _sign(run: Run, rank: Rank, defect: KnownDefect) -> str | None:
    """What a rank shows of a defect that its libraries have; None if it has not or shows nothing."""
    if rank.process is None or not _is_affected(run, rank, defect):
        return None
    signs: list[str | None] = []
    if defect.native is not None:
        signs.append(_native_frame(rank.process, defect.native))
    if defect.python is not None:
        signs.append(_python_frame(rank.process, *defect.python))
    if defect.state is not None:
        signs.append(_STATES[defect.state](run, rank))
    found = [sign for sign in signs if sign is not None]
    return "; ".join(dict.fromkeys(found)) if len(found) == len(signs) else None


def _is_affected(run: Run, rank: Rank, defect: KnownDefect) -> bool:
    """Whether a rank has a version with the defect. One whose version is unknown has none."""
    text = _version(rank, defect)
    number = version(text) if text is not None else None
    if number is None or defect.architecture not in (None, _architecture(run, rank)):
        return False
    return (defect.since is None or number >= defect.since) and (defect.fixed is None or number < defect.fixed)


def _version(rank: Rank, defect: KnownDefect) -> str | None:
    process = rank.process
    if process is None:
        return None
    runtime, communicators = process.runtime, process.communicators
    if defect.library == "torch":
        return runtime.torch if isinstance(runtime, Runtime) else None
    if isinstance(communicators, Communicators):
        return communicators.nccl_version
    return runtime.nccl if isinstance(runtime, Runtime) else None


def _architecture(run: Run, rank: Rank) -> str:
    machine = run.host[rank.host].machine
    return machine.architecture if isinstance(machine, Machine) else ""


# --- signs ----------------------------------------------------------------------------------------------------------------


def _native_frame(process: Process, function: str) -> str | None:
    """Whether a thread is in a function. Names may be mangled, or have arguments."""
    threads = process.native.threads if isinstance(process.native, Stack) else ()
    names = (frame.function for thread in threads for frame in thread.frames if frame.native)
    return f"in {function}" if any(function in name.partition("(")[0] for name in names) else None


def _python_frame(process: Process, file: str, function: str | None) -> str | None:
    for frame in known.frames(process):
        if file in frame.file and function in (None, frame.function):
            return f"in {frame.function} ({file.rpartition('/')[2]})"
    return None


def _communicators(rank: Rank) -> tuple[Communicator, ...]:
    process = rank.process
    found = process.communicators if process is not None else None
    return found.communicators if isinstance(found, Communicators) else ()


def _destroys_with_graphs(run: Run, rank: Rank) -> str | None:
    for one in _communicators(rank):
        if one.graphs and (one.destroyed or one.finalized):
            return f"it destroys a communicator of {one.size} ranks that {one.graphs} plans of CUDA graphs use"
    return None


def _sends_through_pxn(run: Run, rank: Rank) -> str | None:
    for one in _communicators(rank):
        if rank.waits and one.nodes > 1 and one.pxn:
            return f"it waits, and its communicator of {one.nodes} nodes sends through other cards (PXN)"
    return None


def _destroys_alone(run: Run, rank: Rank) -> str | None:
    """If other ranks wait in something else."""
    if not _uses_nccl(rank):
        return None
    others = (one for one in run.still if one.first.wait is not None and one.first.rank != rank.rank)
    for one in others:
        wait = one.first.wait
        if wait is not None and wait.kind in ("collective", "p2p") and wait.operation.op != "destroy_process_group":
            return "it destroys its process groups while others wait"
    return None


def _uses_nccl(rank: Rank) -> bool:
    process = rank.process
    if process is None:
        return False
    named = any(map(thread_names.uses_card, known.thread_names(process)))
    return named or isinstance(process.communicators, Communicators)


_STATES = {
    "destroys-with-graphs": _destroys_with_graphs,
    "sends-through-pxn": _sends_through_pxn,
    "destroys-alone": _destroys_alone,
}
