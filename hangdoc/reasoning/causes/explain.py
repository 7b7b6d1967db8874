"""Step 6: what explains a blockage. One list for each kind of blockage; the first cause that is found leads the finding."""

from collections.abc import Callable

from hangdoc.reasoning.causes import (
    beginnings,
    card_faults,
    data,
    dead_link,
    disagreements,
    divergence,
    meeting,
    orphaned,
)
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause, Differs, VariableDiffers, VersionDiffers
from hangdoc.reasoning.model.holds import ReadsPipe, Starves, Stopped, Unseen, WaitsForInput
from hangdoc.reasoning.model.kinds import Cycle, LeftLoop, Mismatch, PointToPoint, SameCall, Subset
from hangdoc.reasoning.model.run import Run


def explain(run: Run, blockage: Blockage) -> Cause | None:
    """The cause of a blockage; None if its kind is all that is known."""
    kind = blockage.kind
    if isinstance(kind, Stopped | WaitsForInput):
        return None
    if _meets(blockage) and (cause := _of_a_meeting(run)) is not None:
        return cause
    if (fault := card_faults.find(run, blockage)) is not None:
        return fault
    if isinstance(kind, Starves) and blockage.waiting:
        return data.of_starved(blockage.awaited[0].first, blockage.waiting[0].first)
    if isinstance(kind, ReadsPipe):
        return orphaned.find(run, kind, blockage.awaited)
    if isinstance(kind, Cycle | SameCall | Unseen) and (link := dead_link.find(run)) is not None:
        return link
    if (diverged := divergence.find(run, blockage)) is not None:
        return diverged
    if isinstance(kind, LeftLoop):
        split = data.of_left_loop(kind)
        if isinstance(split, data.RanOut):
            return split
        return _setting_of_a_cycle(run) or beginnings.of(run, kind) or split
    if isinstance(kind, Mismatch | Subset) and (option := disagreements.separating(run, kind.parts)) is not None:
        return option
    if isinstance(kind, Mismatch):
        return _setting_of_a_cycle(run) or data.of_mismatch(kind)
    found = _setting_of_a_cycle(run) if isinstance(kind, Cycle | SameCall) else None
    if found is not None and isinstance(kind, PointToPoint) and kind.pair is not None:
        # A setting of other ranks than the one that did not send or receive does not explain that.
        return found if set(found.values.odd) & set(kind.pair[0].ranks) else None
    return found


def _meets(blockage: Blockage) -> bool:
    """Whether ranks, or the launchers of ranks, wait in a rendezvous."""
    classes = (*blockage.awaited, *blockage.waiting)
    kinds = {one.first.wait.kind for one in classes if one.first.wait is not None}
    return not classes or not kinds.isdisjoint(("rendezvous", "store"))


def _of_a_meeting(run: Run) -> Cause | None:
    """The first cause that keeps ranks from completing their rendezvous."""
    finders: tuple[Callable[[Run], Cause | None], ...] = (
        meeting.port_taken,
        meeting.unreachable_address,
        meeting.unusable_interface,
        meeting.no_answer,
        meeting.loopback_name,
    )
    if run.launches is not None and not run.launches.met:
        return run.launches
    found = next((cause for find in finders if (cause := find(run)) is not None), None)
    return found or _setting(run, VariableDiffers, VersionDiffers)


def _setting_of_a_cycle(run: Run) -> Differs | None:
    """A setting that makes ranks call different collectives. Directories that visibly differ are a better explanation than the
    options that name them."""
    return _setting(run, *((VariableDiffers, VersionDiffers) if disagreements.other_files(run) else (Differs,)))


def _setting(run: Run, *kinds: type[Differs]) -> Differs | None:
    return next((one for one in run.differing if isinstance(one, kinds) and one.decisive), None)
