"""The last call in the record of a rank: where it was a moment ago, for a rank that moves and whose stack is not read."""

from typing import NamedTuple

from hangdoc.diagnosis import Where
from hangdoc.program import is_entry
from hangdoc.reasoning.evidence.frames import short
from hangdoc.reasoning.evidence.records import newest_call
from hangdoc.snapshot import FlightRecorder, Frame, Process
from hangdoc.torch_facts import file_names


class LastCall(NamedTuple):
    """The collective that a rank called last, in any of its groups."""

    op: str
    age_seconds: float
    """Since it was called, when the record was read."""
    frames: tuple[Frame, ...]
    """Python frames that called it, innermost first, without source lines; empty if unknown."""

    @property
    def where(self) -> Where | None:
        """The line that called it."""
        return place_of_call(self.frames)


def place_of_call(frames: tuple[Frame, ...]) -> Where | None:
    """The innermost line of the user's code among the frames of a call; without one, of a package other than torch."""
    own = [frame for frame in frames if not frame.library and not is_entry(frame)]
    own = own or [frame for frame in frames if file_names.TORCH not in frame.file]
    return Where(file=short(own[0].file), line=own[0].line, function=own[0].function) if own else None


def last_call(process: Process, wall_us: int | None) -> LastCall | None:
    """The last call of a rank; None if its record was not read from its memory. `wall_us` is the clock of its host at the look,
    in microseconds since 1970."""
    record = process.recorder
    if not isinstance(record, FlightRecorder) or record.age_seconds > 0:
        return None
    calls: list[LastCall] = []
    for group in record.groups:
        newest = newest_call(record, group.history)
        if newest is not None and wall_us is not None:
            made_us, form = newest
            calls.append(LastCall(form.op, max(0.0, (wall_us - made_us) / 1e6), form.frames))
        else:  # the listed ones are the first few that are not complete
            listed = (call for call in (group.completed, *group.pending) if call is not None)
            calls += [LastCall(c.op, c.age_seconds, c.frames) for c in listed if c.age_seconds is not None]
    return min(calls, key=lambda call: call.age_seconds, default=None)
