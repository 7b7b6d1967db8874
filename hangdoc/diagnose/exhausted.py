"""The common picture of HD101 and HD102: some ranks have left the loop that others are still in.

What tells the two apart is the data: a different amount, the same data split unevenly, or nothing that could be seen.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnose import amounts, operations, progress, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence
from hangdoc.snapshot import Loop

_EACH = re.compile(r"for (\w+) in ")


@dataclass(frozen=True)
class Case:
    """Ranks that left a loop early (`short`), and those that wait inside it. Both hold one class of equal ranks."""

    short: tuple[Rank, ...]
    waiting: tuple[Rank, ...]
    loop: Loop
    differences: tuple[amounts.Difference, ...]
    story: str
    """`amount` (different data), `split` (the same data, uneven), `unseen`."""

    def evidence(self) -> list[Evidence]:
        """The amounts first, then the counters, then both stacks."""
        shown = [e for difference in self.differences[:3] for e in difference.evidence]
        return [*shown, *self._counters(), *words.class_evidence([*self.short, *self.waiting])]

    def _counters(self) -> list[Evidence]:
        lines = []
        for rank, where in ((self.short[0], "behind"), (self.waiting[0], "inside")):
            text = f"stands {where} `{self.loop.header}` (line {self.loop.line})"
            done, total = progress.batches(rank.process, rank.loop) if rank.process else (None, None)
            if done is not None:
                text += f": {done} batches done" + (f" of {total}" if total is not None else "")
            lines.append(Evidence(rank=rank.rank, probe="progress", text=text))
        return lines


def cases(run: Run) -> Iterator[Case]:
    """Every pair of classes of which one has left a loop that the other waits in."""
    waiting = words.classes(rank for rank in run.waiting() if not rank.moving)
    blamed: set[int] = set()
    for behind in waiting:
        for ahead in words.classes(r for r in run.ranks.values() if r.label == "blocked" and not r.moving):
            # Where the chain of waiting ends in somebody else, that one is the cause.
            if ahead[0].rank in blamed or ahead[0].rank not in run.waits_for[behind[0].rank] & run.causes:
                continue
            left = progress.left_loop(ahead[0], behind[0])
            # Only a loop over data, or one whose end is the end of the data, says that somebody ran out of it.
            if left is None or not _ends_with_data(left[1]):
                continue
            blamed |= {rank.rank for rank in ahead}
            different = tuple(amounts.differences(ahead[0], behind[0]))
            story = _story(ahead[0], behind[0], different)
            if _same_rounds(ahead[0], behind[0]) or _over_works(left[1], behind[0]):
                continue
            if story != "amount" and _broke_off(ahead[0]) and not _takes_next(ahead[0], behind[0]):
                continue
            yield Case(tuple(ahead), tuple(behind), left[1], different, story)


def _ends_with_data(loop: Loop) -> bool:
    return not loop.header.startswith("while True")


def _broke_off(short: Rank) -> bool:
    """Whether a rank left its loop before the loop's own end: by a `break`, for a reason that is not the data."""
    view = short.loop
    return view is not None and view.done is not None and view.total is not None and view.done < view.total


def _takes_next(*ranks: Rank) -> bool:
    """Whether a loop over numbers takes its data by hand, so that the data may end before the numbers."""
    frames = (frame for rank in ranks for frame in progress.user_frames(rank.thread))
    return any("next(" in text or "StopIteration" in text for f in frames for text in (f.source or "", f.context or ""))


def _over_works(loop: Loop, waiting: Rank) -> bool:
    """Whether a loop goes over works and waits for each (`for work in works: work.wait()`): its end is not the data's."""
    each = _EACH.match(loop.header)
    return each is not None and waiting.frame is not None and operations.waited_for(waiting.frame) == each[1]


def _same_rounds(short: Rank, waiting: Rank) -> bool:
    """Whether both were to go round as often, and the rank that is out did: somebody skipped a collective on the way."""
    a, b = short.loop, waiting.loop
    return a is not None and b is not None and a.total is not None and a.total == b.total and a.done == a.total


def _story(short: Rank, waiting: Rank, different: tuple[amounts.Difference, ...]) -> str:
    if amounts.same_data(short, waiting):
        return "split"
    if not different:
        return "unseen"
    strongest = different[0]
    if amounts.other_files(short, waiting):
        return "amount"
    if strongest.unit == "batches":  # they alone do not tell of other files: some more are an uneven split
        return "amount" if strongest.more >= 2 * strongest.fewer else "split"
    remainder = strongest.more - strongest.fewer
    return "split" if remainder <= 1 or remainder < strongest.more * 0.1 else "amount"


def counts(short: Rank, waiting: Rank) -> tuple[int | None, int | None]:
    """(batches the short rank has done, batches the waiting rank expects)."""
    done = progress.batches(short.process, short.loop)[0] if short.process else None
    total = progress.batches(waiting.process, waiting.loop)[1] if waiting.process else None
    return done, total
