"""Which known defects of NCCL and torch the ranks show signs of."""

from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.parse import version
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import lines_of
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.movement import own_counts
from hangdoc.snapshot import Communicator, Communicators, Machine, Process, Runtime, Stack
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
    alike: dict[_Libraries, list[Rank]] = {}
    for rank in run.living:
        alike.setdefault(_libraries_of(run, rank), []).append(rank)
    for defect in KNOWN_DEFECTS:
        signs = {
            rank.rank: sign
            for libraries, ranks in alike.items()
            if _is_affected(libraries, defect)
            for rank in ranks
            if (sign := _sign(run, rank, defect)) is not None and _makes_no_progress(rank)
        }
        if signs:
            libraries = _libraries_of(run, run.ranks[min(signs)])
            yield Shown(defect, libraries.version_of(defect) or "", libraries.architecture, dict(sorted(signs.items())))


def _makes_no_progress(rank: Rank) -> bool:
    """Whether nothing of a rank has changed. It may use a whole core: NCCL and the driver spin while they wait."""
    if not rank.moving or rank.process is None:
        return True
    thread = rank.thread
    if thread is None or rank.counters_moved or own_counts(rank.process) is not None:
        return False
    if any(each.launches != each.launches_before for each in _communicators(rank)):
        return False
    before = (each for each in observed.threads_before(rank.process) if each.name == thread.name)
    return any(lines_of(each) == lines_of(thread) for each in before)


def _sign(run: Run, rank: Rank, defect: KnownDefect) -> str | None:
    """What a rank shows of a defect that its libraries have; None if it shows nothing."""
    if rank.process is None:
        return None
    signs: list[str | None] = []
    if defect.native is not None:
        signs.append(_native_frame(rank.process, defect.native))
    if defect.python is not None:
        signs.append(_python_frame(rank.process, *defect.python))
    if defect.state is not None:
        signs.append(_STATES[defect.state](run, rank))
    seen = [sign for sign in signs if sign is not None]
    return "; ".join(dict.fromkeys(seen)) if len(seen) == len(signs) else None


class _Libraries(NamedTuple):
    """What decides whether a rank can have a defect. None: not known."""

    torch: str | None
    nccl: str | None
    architecture: str

    def version_of(self, defect: KnownDefect) -> str | None:
        """The version of the library that has the defect."""
        return self.torch if defect.library == "torch" else self.nccl


def _libraries_of(run: Run, rank: Rank) -> _Libraries:
    machine = run.host[rank.host].machine
    architecture = machine.architecture if isinstance(machine, Machine) else ""
    if rank.process is None:
        return _Libraries(None, None, architecture)
    runtime, communicators = rank.process.runtime, rank.process.communicators
    torch, nccl = (runtime.torch, runtime.nccl) if isinstance(runtime, Runtime) else (None, None)
    if isinstance(communicators, Communicators):
        nccl = communicators.nccl_version
    return _Libraries(torch, nccl, architecture)


def _is_affected(libraries: _Libraries, defect: KnownDefect) -> bool:
    """Whether a rank has a version with the defect."""
    text = libraries.version_of(defect)
    return defect.affects(version(text) if text is not None else None, libraries.architecture)


# --- signs ----------------------------------------------------------------------------------------------------------------


def _native_frame(process: Process, function: str) -> str | None:
    """Whether a thread is in a function. Names may be mangled, or have arguments."""
    threads = process.native.threads if isinstance(process.native, Stack) else ()
    names = (frame.function for thread in threads for frame in thread.frames if frame.native)
    return f"in {function}" if any(function in name.partition("(")[0] for name in names) else None


def _python_frame(process: Process, file: str, function: str | None) -> str | None:
    for frame in observed.frames(process):
        if file in frame.file and function in (None, frame.function):
            return f"in {frame.function} ({file.rpartition('/')[2]})"
    return None


def _communicators(rank: Rank) -> tuple[Communicator, ...]:
    read = rank.process.communicators if rank.process is not None else None
    return read.communicators if isinstance(read, Communicators) else ()


def _destroys_with_graphs(run: Run, rank: Rank) -> str | None:
    text = "it destroys a communicator of {} ranks that {} plans of CUDA graphs use"
    ended = (each for each in _communicators(rank) if each.graphs and (each.destroyed or each.finalized))
    return next((text.format(each.size, each.graphs) for each in ended), None)


def _sends_through_pxn(run: Run, rank: Rank) -> str | None:
    text = "it waits, and its communicator of {} nodes sends through other cards (PXN)"
    sending = (each for each in _communicators(rank) if rank.waits and each.nodes > 1 and each.pxn)
    return next((text.format(each.nodes) for each in sending), None)


def _destroys_alone(run: Run, rank: Rank) -> str | None:
    """If other ranks wait in something else."""
    waits = (each.first.wait for each in run.still if each.first.rank != rank.rank)
    calls = {wait.operation.op for wait in waits if wait is not None and wait.kind in ("collective", "p2p")}
    uses_nccl = rank.process is not None and observed.uses_nccl(rank.process)
    others_wait = calls - {"destroy_process_group"}
    return "it destroys its process groups while others wait" if uses_nccl and others_wait else None


_STATES = {
    "destroys-with-graphs": _destroys_with_graphs,
    "sends-through-pxn": _sends_through_pxn,
    "destroys-alone": _destroys_alone,
}
