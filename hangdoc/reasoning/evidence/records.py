"""What the record of a process says of its groups."""

from collections.abc import Iterator

from hangdoc.reasoning.evidence import known
from hangdoc.snapshot import CallForm, CallHistory, FlightRecorder, Process, Recorded, RecordedGroup


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


def newest_call(record: FlightRecorder, history: CallHistory | None) -> tuple[int, CallForm] | None:
    """When the last call of a history was made, in microseconds since 1970, and its form; None without one, or for a history that
    is damaged: its columns come from a file or another host."""
    columns = () if history is None else (history.made_us, history.forms)
    if history is None or not all(columns) or not 0 <= history.forms[-1] < len(record.forms):
        return None
    return history.made_us[-1], record.forms[history.forms[-1]]
