"""What the record of a process says of its groups."""

from hangdoc.reasoning.evidence import known
from hangdoc.snapshot import (
    FlightRecorder,
    Process,
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
