"""When a hang began, and what shows it."""

from typing import NamedTuple

from hangdoc.detail import Began
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.waiting import waits


class Beginning(NamedTuple):
    """The beginning of a hang."""

    seconds: float | None
    """How long ago it was; None if unknown."""
    by: Began | None
    """What the ranks did last; None if only the age of the run is known."""


def find_beginning(run: Run) -> Beginning:
    """When the ranks of the leading blockage of a run began to wait: when they made the call that they wait in, or else when they
    last exchanged data."""
    first = run.blockages[0]
    recorded = waits.recorded_seconds(run, first.waiting or first.awaited)
    if recorded is not None:
        return Beginning(recorded, "call")
    silent = [one.first.silent_seconds for one in first.waiting or first.awaited]
    known = [seconds for seconds in silent if seconds is not None]
    if known:
        return Beginning(max(min(known), run.age_seconds or 0.0), "data")
    return Beginning(run.age_seconds, None)
