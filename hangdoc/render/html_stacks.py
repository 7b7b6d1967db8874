"""The page's merged stacks: the tree that `hangdoc.reasoning.views.detail` builds, cut to what fits on a page."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby

from hangdoc.detail import Branch
from hangdoc.snapshot import Frame

_MOST_BRANCHES = 150
_MOST_FRAMES = 2000
_MOST_DEPTH = 60
"""Each fork nests one more HTML element; browsers stop at some hundreds."""


@dataclass(frozen=True)
class Piece:
    """Consecutive frames, outermost first: user frames and the innermost one, or library frames, which the page folds."""

    frames: tuple[Frame, ...]
    library: bool
    left_out: int = 0


@dataclass(frozen=True)
class Fork:
    """Frames that these ranks share, and the branches below."""

    ranks: tuple[int, ...]
    culprit: bool
    pieces: tuple[Piece, ...]
    forks: tuple["Fork", ...]
    left_out: int
    """How many branches below are not shown."""


@dataclass(frozen=True)
class Stacks:
    """The whole tree."""

    forks: tuple[Fork, ...]
    left_out: int
    without: tuple[int, ...]
    """Ranks that have no stack, and do not move."""
    moving: tuple[int, ...]
    """Ranks whose stacks were not read, since they move."""


class _Room:
    """How many branches and frames still fit on the page."""

    def __init__(self) -> None:
        self.branches, self.frames = _MOST_BRANCHES, _MOST_FRAMES


def stacks(tree: Branch, culprits: frozenset[int], moving: Collection[int]) -> Stacks:
    """The tree, branches with culprits first. `moving`: ranks that make progress."""
    shown = {rank for branch in tree.branches for rank in branch.ranks}
    room = _Room()
    forks = tuple(_make_forks(tree.branches, culprits, room, 0))
    without = [rank for rank in tree.ranks if rank not in shown]
    unread = tuple(rank for rank in without if rank in moving)
    return Stacks(forks, len(tree.branches) - len(forks), tuple(rank for rank in without if rank not in moving), unread)


def _make_forks(branches: tuple[Branch, ...], culprits: frozenset[int], room: _Room, depth: int) -> Iterator[Fork]:
    if depth == _MOST_DEPTH:
        return
    for branch in sorted(branches, key=lambda branch: not culprits & set(branch.ranks)):
        if room.branches <= 0:
            return
        room.branches -= 1
        is_culprit = set(branch.ranks) <= culprits
        pieces = tuple(_make_pieces(branch, room))
        below = tuple(_make_forks(branch.branches, culprits, room, depth + 1))
        yield Fork(branch.ranks, is_culprit, pieces, below, len(branch.branches) - len(below))


def _make_pieces(branch: Branch, room: _Room) -> Iterator[Piece]:
    last = branch.frames[-1] if not branch.branches else None
    for library, group in groupby(branch.frames, key=lambda frame: frame.library and frame is not last):
        frames = tuple(group)
        kept = frames[: max(0, room.frames)]
        room.frames -= len(kept)
        if kept:
            yield Piece(kept, library, len(frames) - len(kept))
