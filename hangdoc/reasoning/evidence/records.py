"""What the record of a process says of its groups."""

from collections.abc import Iterator

from hangdoc.reasoning.evidence import known
from hangdoc.snapshot import (
    FlightRecorder,
    Process,
    Recorded,
    RecordedGroup,
)


def recorded_groups(process: Process) -> tuple[RecordedGroup, ...]:
    """The groups in the record of a process; none if it was read before the process last made progress."""
    recorder = process.recorder
    if not isinstance(recorder, FlightRecorder):
        return ()
    if recorder.age_seconds > 0:
        beacon = known.beacon(process)
        if beacon is None or beacon.age_seconds < recorder.age_seconds:
            return ()
    return recorder.groups


def unfinished_transfers(process: Process) -> Iterator[tuple[int, Recorded]]:
    """The oldest send to each peer, and the oldest receive from each, that are not complete."""
    for group in recorded_groups(process):
        for transfers in group.transfers:
            for call in transfers.pending[:1]:
                yield transfers.peer, call
