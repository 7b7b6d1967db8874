"""The data of a rank that left its loop early or gets no batch, compared with the data of a rank that waits for it."""

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.causes import exits
from hangdoc.reasoning.model.agreement import Difference
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.kinds import LeftLoop, Mismatch
from hangdoc.reasoning.model.rank import Class, Rank
from hangdoc.reasoning.ranks import amounts

_SURE = 0.7
"""The minimum weight of a difference, if no loop shows which rank ran out of data."""


class RanOut(Cause, frozen=True, kw_only=True):
    """Some ranks left the loop because they visibly have less data than those inside it."""

    NAME = "fewer-data"
    left: LeftLoop


class DataEnded(Cause, frozen=True, kw_only=True):
    """Some ranks left a loop that ends only with its data. How much data the others have is not visible."""

    NAME = "data-ended"
    left: LeftLoop


class FewerData(Cause, frozen=True, kw_only=True):
    """Some ranks visibly have less data than others. Which of them left its loop is not visible."""

    NAME = "fewer-data"
    short: Class
    more: Class
    differences: tuple[Difference, ...]


class UnevenSplit(Cause, frozen=True, kw_only=True):
    """The same data, but fewer batches on some ranks."""

    NAME = "uneven-split"
    left: LeftLoop


class FewerBatches(Cause, frozen=True, kw_only=True):
    """Some ranks visibly expect a few batches less than others. Which of them left its loop is not visible."""

    NAME = "uneven-split"
    short: Class
    more: Class
    difference: Difference


class NoData(Cause, frozen=True, kw_only=True):
    """A loader that is starved: it has no data at all, or too little."""

    NAME = "no-data"
    fewest: int
    evidence: tuple[Evidence, ...]
    compared: bool
    """Whether another rank has more."""


def of_left_loop(kind: LeftLoop) -> RanOut | UnevenSplit | DataEnded | None:
    """Why a rank left its loop, by its data; None if the data does not explain it."""
    short, inside = kind.short.first, kind.inside.first
    if not kind.differences:
        return DataEnded(left=kind) if exits.only_by_its_end(kind) else None
    if not _is_split(short, inside, kind.differences[0]):
        return RanOut(left=kind)
    return None if amounts.broke_off(short) and not _takes_next(short, inside) else UnevenSplit(left=kind)


def of_mismatch(kind: Mismatch) -> FewerData | FewerBatches | None:
    """Whether data explains why two parts of a run are at different calls, if the loop of a framework hides which one left it.
    Only a known number of batches explains it where most ranks show which are to blame."""
    if len(kind.parts) != 2:
        return None
    for short, more in (kind.parts, kind.parts[::-1]):
        found = tuple(amounts.differences(short.first, more.first))
        if not found or found[0].weight < _SURE or (kind.reason and found[0].unit != "batches"):
            continue
        if not _is_split(short.first, more.first, found[0]):
            return FewerData(short=short, more=more, differences=found, culprits=short.ranks)
        if found[0].unit == "batches":
            return FewerBatches(short=short, more=more, difference=found[0], culprits=short.ranks)
    return None


def _is_split(short: Rank, more: Rank, strongest: Difference) -> bool:
    """Whether the same data was split unevenly: the difference is a remainder, and the files are the same."""
    if amounts.other_files(short, more) or strongest.unit == "files":
        return False
    if amounts.same_data(short, more):
        return True
    if strongest.unit == "batches":  # batches alone do not show different files: a few more are an uneven split
        return strongest.more - strongest.fewer <= max(2, strongest.more * 0.2)
    remainder = strongest.more - strongest.fewer
    return remainder <= 1 or remainder < strongest.more * 0.1


def _takes_next(*ranks: Rank) -> bool:
    """Whether a loop over numbers takes its data by hand, so that the data may end before the numbers."""
    frames = (frame for rank in ranks for frame in rank.own)
    return any("next(" in text or "StopIteration" in text for f in frames for text in (f.source or "", f.context or ""))


def of_starved(starved: Rank, waiting: Rank) -> NoData | None:
    """How little data a rank has that gets no batch; None if nothing shows it."""
    found = amounts.differences(starved, waiting)
    if found:
        fewest = min(difference.fewer for difference in found)
        evidence = tuple(line for difference in found[:3] for line in difference.evidence)
        return NoData(fewest=fewest, evidence=evidence, compared=True, ends="never" if fewest == 0 else None)
    empty = amounts.empty_lists(starved)
    evidence = tuple(Evidence(starved.rank, "stacks", f"`{name}` is empty") for name in empty[:3])
    return NoData(fewest=0, evidence=evidence, compared=False) if empty else None
