"""All ranks' stacks as one prefix tree with the ranks in each branch, so that an outlier among a thousand ranks is visible.

The idea is STAT's (Lawrence Livermore National Laboratory): ranks are together as long as their stacks are.
"""

from collections.abc import Iterable

from hangdoc.detail import Branch as Branch
from hangdoc.reasoning.evidence import known
from hangdoc.reasoning.model.rank import Rank
from hangdoc.snapshot import Frame, PythonThread

Place = tuple[str, str, int]
"""File, function and line of a frame."""


def stacks(ranks: Iterable[Rank], *, native: bool = False) -> Branch:
    """The tree of the ranks' training threads. A rank without a stack is in the root alone. With `native`, the stack with
    C++ frames is taken where there is one."""
    paths = {rank.rank: _frames(rank, native) for rank in ranks}
    return Branch(tuple(sorted(paths)), (), _below(sorted(paths), paths, 0))


def place(frame: Frame) -> Place:
    """What makes frames of two ranks the same."""
    return frame.file, frame.function, frame.line


def frames_of(rank: Rank, *, native: bool = False) -> tuple[Frame, ...]:
    """A rank's training thread, innermost first."""
    return tuple(reversed(_frames(rank, native)))


def _now(rank: Rank) -> PythonThread | None:
    """The thread as it is now. If a card waits in a call that its thread has made before, `Rank.thread` is at the line of that
    call."""
    thread = rank.thread
    if thread is None or rank.wait is None or rank.wait.thread_at is None or rank.process is None:
        return thread
    return next((one for one in known.python_threads(rank.process) if one.tid == thread.tid), thread)


def _frames(rank: Rank, native: bool) -> tuple[Frame, ...]:
    thread = _now(rank)
    if native and rank.process is not None and thread is not None:
        thread = known.native_of(rank.process, thread) or thread
    return tuple(reversed(thread.frames)) if thread is not None else ()


def _below(ranks: Iterable[int], paths: dict[int, tuple[Frame, ...]], depth: int) -> tuple[Branch, ...]:
    """The branches of ranks whose stacks agree up to `depth`, the largest first."""
    together: dict[Place, list[int]] = {}
    for rank in ranks:
        if depth < len(paths[rank]):
            together.setdefault(place(paths[rank][depth]), []).append(rank)
    branches = [_grown(members, paths, depth) for members in together.values()]
    return tuple(sorted(branches, key=lambda branch: (-len(branch.ranks), branch.ranks)))


def _grown(ranks: list[int], paths: dict[int, tuple[Frame, ...]], depth: int) -> Branch:
    """A branch from its first frame to where its ranks part."""
    end = depth + 1
    while len({place(paths[rank][end]) if end < len(paths[rank]) else None for rank in ranks}) == 1:
        if end == len(paths[ranks[0]]):
            break
        end += 1
    return Branch(tuple(ranks), paths[ranks[0]][depth:end], _below(ranks, paths, end))
