"""Step 6: what explains a blockage. One list for each kind of blockage; the first cause that is found leads the finding."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hangdoc.reasoning.causes import data, dead_link, disagreements, meeting
from hangdoc.reasoning.causes.cause import Cause
from hangdoc.reasoning.causes.disagreements import Differs, OptionDiffers, VariableDiffers, VersionDiffers
from hangdoc.reasoning.kinds import Cycle, LeftLoop, Mismatch, SameCall
from hangdoc.reasoning.model import Run
from hangdoc.reasoning.ranks.holds import Busy, Starves, Stopped, Unseen, WaitsForInput

if TYPE_CHECKING:
    from hangdoc.reasoning.blockages import Blockage

__all__ = ["Cause", "of"]

_Finder = Callable[[Run], Cause | None]


def of(run: Run, blockage: "Blockage") -> Cause | None:
    """The cause of a blockage; None if its kind is all that is known."""
    kind = blockage.kind
    if isinstance(kind, Stopped | WaitsForInput):
        return None
    if _meets(blockage) and (cause := _first(run, _OF_A_MEETING)) is not None:
        return cause
    if isinstance(kind, Starves | Busy):
        others = [one for one in blockage.waiting if not one.first.moving]
        return data.of_starved(blockage.at[0], others[0]) if isinstance(kind, Starves) and others else None
    if isinstance(kind, Cycle | SameCall | Unseen) and (link := dead_link.find(run)) is not None:
        return link
    if not isinstance(kind, Cycle | SameCall):
        return None
    if isinstance(kind, Mismatch):
        return _first(run, _OF_A_CYCLE) or data.of_mismatch(kind)
    split = data.of_left_loop(kind) if isinstance(kind, LeftLoop) else None
    if isinstance(split, data.FewerData):
        return split
    return _first(run, _OF_A_CYCLE) or split


def _meets(blockage: "Blockage") -> bool:
    """Whether ranks, or the launchers of ranks, wait in a rendezvous."""
    classes = (*blockage.at, *blockage.waiting)
    kinds = {one.first.wait.kind for one in classes if one.first.wait is not None}
    return not classes or bool(kinds & {"rendezvous", "store"})


def _first(run: Run, finders: tuple[_Finder, ...]) -> Cause | None:
    return next((cause for find in finders if (cause := find(run)) is not None), None)


def _option(run: Run) -> Cause | None:
    if disagreements.other_files(run):
        return None  # directories that visibly differ are a cause of their own
    return _decisive(run, OptionDiffers)


def _variable(run: Run) -> Cause | None:
    return _decisive(run, VariableDiffers)


def _version(run: Run) -> Cause | None:
    return _decisive(run, VersionDiffers)


def _decisive(run: Run, what: type[Differs]) -> Cause | None:
    return next((one for one in run.differing if isinstance(one, what) and one.decisive), None)


def _launches(run: Run) -> Cause | None:
    return run.launches if run.launches is not None and not run.launches.met else None


_OF_A_MEETING: tuple[_Finder, ...] = (
    _launches,
    meeting.port_taken,
    meeting.unreachable_address,
    meeting.unusable_interface,
    meeting.no_answer,
    meeting.loopback_name,
    _variable,
    _version,
)
_OF_A_CYCLE: tuple[_Finder, ...] = (_option, _variable, _version)
