"""Which ranks wait for which, as values to draw: each blockage once, a cycle in its order, and the ranks that wait for them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.rank import Class, numbers_of
from hangdoc.reasoning.model.run import Run


@dataclass(frozen=True)
class Waiting:
    """A class of ranks that wait, and the classes that wait for it."""

    group: Class
    behind: tuple["Waiting", ...]


@dataclass(frozen=True)
class Picture:
    """One blockage. In a cycle each of `at` waits for the next, and the last for the first. Otherwise they wait for no rank."""

    blockage: Blockage
    cycle: bool
    at: tuple[Class, ...]
    """Culprits first."""
    behind: tuple[Waiting, ...]
    """The classes that wait for them."""

    @property
    def unseen(self) -> tuple[int, ...]:
        """Culprits that were not observed."""
        observed = (*self.blockage.awaited, *self.blockage.waiting)
        return tuple(sorted(set(self.blockage.blamed) - set(numbers_of(observed))))


def pictures(run: Run) -> list[Picture]:
    """All blockages of a run, the most serious first."""
    return [_make_picture(run, blockage) for blockage in run.blockages]


def _make_picture(run: Run, blockage: Blockage) -> Picture:
    blamed = set(blockage.blamed)
    at = sorted(blockage.awaited, key=lambda group: (not blamed & set(group.ranks), group.ranks))
    circle = _find_cycle(run, at) or ()
    ends = circle or tuple(at)
    others = [group for group in (*at, *blockage.waiting) if group not in ends]
    return Picture(blockage, bool(circle), ends, _arrange_behind(run, ends, others))


def _awaits(run: Run, waiter: Class, awaited: Class) -> bool:
    return run.waits is not None and bool(run.waits.awaited_by(waiter) & set(awaited.ranks))


def _find_cycle(run: Run, classes: Sequence[Class]) -> tuple[Class, ...] | None:
    """The shortest cycle through the first class that is in one; None if there is no cycle."""
    for start in classes:
        paths: list[tuple[Class, ...]] = [(start,)]
        reached = {start.ranks}
        while paths:
            path = paths.pop(0)
            if _awaits(run, path[-1], start):
                return path
            for far in classes:
                if far.ranks not in reached and _awaits(run, path[-1], far):
                    reached.add(far.ranks)
                    paths.append((*path, far))
    return None


def _arrange_behind(run: Run, ends: Iterable[Class], others: Sequence[Class]) -> tuple[Waiting, ...]:
    """Each of `others` once, below a class that it waits for. A class that waits for none of them directly is at the top."""
    left = list(others)

    def below(group: Class) -> tuple[Waiting, ...]:
        mine = [other for other in left if _awaits(run, other, group)]
        for other in mine:
            left.remove(other)
        return tuple(Waiting(other, below(other)) for other in mine)

    chains = [waiting for end in ends for waiting in below(end)]
    return (*chains, *(Waiting(other, ()) for other in left))
