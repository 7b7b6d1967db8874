"""Progress by what a rank itself counts: torch's record of its calls. Reading that takes no pause.

A loader that counts shows only that this rank moves, as in an evaluation for which the others wait: where it is matters then.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hangdoc.snapshot import Communicators, FlightRecorder, Recorded

_HANGS_SECONDS = 2.0
"""A rank that is in a call for longer may hang, whatever else it calls."""
_WAITS_SECONDS = 0.1
"""A rank that is in a call for longer may wait for another one."""


def has_counted(fields: Mapping[str, Any]) -> bool:
    """Whether a rank has made a call in the window. `fields` are its evidence, by field of snapshot.Process."""
    record = fields.get("recorder")
    # A thread of its own may make calls while the training thread hangs in one.
    return isinstance(record, FlightRecorder) and record.made_in_window > 0 and not may_hang(record)


def may_hang(record: object) -> bool:
    """Whether a rank is in a call for so long that it may hang, by its record; True without one."""
    if not isinstance(record, FlightRecorder):
        return True
    pending = (call.age_seconds for group in record.groups for call in group.pending)
    return any(age is None or age > _HANGS_SECONDS for age in pending)


def has_pending(record: object) -> bool:
    """Whether a rank has made a call that is not finished."""
    return isinstance(record, FlightRecorder) and any(group.pending for group in record.groups)


def rests_on_card(fields: Mapping[str, Any], seconds: float) -> bool:
    """Whether a card has not finished a call of a rank that was made before the window, and in the window, which takes
    `seconds`, none was made and none was finished. Its thread then spins, runs ahead or is elsewhere."""
    record = fields.get("recorder")
    if not isinstance(record, FlightRecorder) or record.made_in_window > 0:
        return False
    if record.finished_seconds_ago is not None and record.finished_seconds_ago < seconds:
        return False
    return _rests_in_graph(fields) or any(
        call.age_seconds is not None and call.age_seconds > seconds for call in calls_on_card(record)
    )


def _rests_in_graph(fields: Mapping[str, Any]) -> bool:
    """Whether a rank uses NCCL in CUDA graphs, whose replays torch does not record, and NCCL launched nothing in the window."""
    read = fields.get("communicators")
    made = read.communicators if isinstance(read, Communicators) else ()
    return any(each.graphs for each in made) and all(each.launches == each.launches_before for each in made)


def calls_on_card(record: FlightRecorder) -> Iterator[Recorded]:
    """The calls that cards have not finished."""
    for group in record.groups:
        if group.on_card:
            yield from group.pending
            for transfers in group.transfers:
                yield from transfers.pending


def has_just_called(record: object, seconds: float) -> bool:
    """Whether the last call in a record that was just read is at most so old, and the rank does not wait in a call for long."""
    if not isinstance(record, FlightRecorder) or record.source != "memory":
        return False
    done = [group.completed for group in record.groups if group.completed is not None]
    pending = [call for group in record.groups for call in group.pending]
    if any(call.age_seconds is None or call.age_seconds > _WAITS_SECONDS for call in pending):
        return False
    return any(call.age_seconds is not None and call.age_seconds <= seconds for call in (*done, *pending))
