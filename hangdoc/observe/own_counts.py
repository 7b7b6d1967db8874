"""Progress by what a rank itself counts: torch's record of its calls, and its loaders. Reading that takes no pause."""

from collections.abc import Mapping
from typing import Any

from hangdoc.snapshot import FlightRecorder, Loops


def has_counted(fields: Mapping[str, Any]) -> bool:
    """Whether a rank has made a call, or received a batch, in the window. `fields` are its evidence, by field of
    snapshot.Process."""
    record, loops = fields.get("recorder"), fields.get("loops")
    return (isinstance(record, FlightRecorder) and record.made_in_window > 0) or (
        isinstance(loops, Loops) and loops.moved
    )


def has_just_called(record: object, seconds: float) -> bool:
    """Whether the last call in a record that was just read is at most so old."""
    if not isinstance(record, FlightRecorder) or record.source != "memory":
        return False
    newest = (call for group in record.groups for call in (group.completed, *group.pending) if call is not None)
    return any(call.age_seconds is not None and call.age_seconds <= seconds for call in newest)
