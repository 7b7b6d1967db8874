"""What a rank was doing when torch wrote its dump. After the fact, its record is all that is known of it."""

from hangdoc.diagnosis import Where
from hangdoc.reasoning.evidence.records import newest_call, place_of_call
from hangdoc.reasoning.evidence.stack import frames_at, reading
from hangdoc.reasoning.model.holds import BetweenCalls
from hangdoc.reasoning.model.rank import State
from hangdoc.reasoning.ranks.on_card import find_dumped_call
from hangdoc.reasoning.ranks.states import Training
from hangdoc.snapshot import FlightRecorder, Process


def training_at_dump(process: Process) -> Training:
    """Where a rank made the call in which it waited."""
    call = find_dumped_call(process)
    if call is None or call.thread is None:
        return Training(card=call)
    read = reading(call.thread)
    return Training(call.thread, read, frames_at(call.thread.frames, read.own), card=call)


def state_at_dump(process: Process, trains: Training, *, dated: bool) -> State:
    """The state of a rank by its dump. `dated`: whether it is known when torch wrote that. If not, a timeout is taken to be the
    reason, as it is by default, and a rank that is in no call did not come in time."""
    recorder = process.recorder
    if not isinstance(recorder, FlightRecorder):
        return State(None, "unknown", recorder.reason)
    if trains.card is not None:
        state = "in-p2p" if trains.card.wait.kind == "p2p" else "in-collective"
        return State("blocked", state, trains.card.why, wait=trains.card.wait)
    if not any(group.history is not None or group.transfers for group in recorder.groups):
        return State(None, "unknown", "its dump has no calls, or not the newest ones")
    hold = BetweenCalls(ends="unknown" if dated else "never")
    return State(None, "unknown", "all calls in its dump are complete", hold=hold)


def last_place(process: Process) -> Where | None:
    """The line of the last call of a rank that was in none; None if the dump has no frames of it."""
    recorder = process.recorder
    if not isinstance(recorder, FlightRecorder):
        return None
    calls = (newest_call(recorder, group.history) for group in recorder.groups)
    newest = max((call for call in calls if call is not None), key=lambda call: call[0], default=None)
    return place_of_call(newest[1].frames) if newest is not None else None
