"""Source lines, and the structure around them, of the calls that cards have not finished, and of the last call of a thread that
has ended.

A call of NCCL returns at once, so the stack of a rank does not show where it made the call in which its card waits. Of a thread
that has ended there is no stack. The record has the lines of each call.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hangdoc import ended_caller
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.stacks.source import Sources
from hangdoc.observe.torch.recorded_progress import calls_on_card, rests_on_card
from hangdoc.snapshot import FlightRecorder, PythonThread, Recorded, RecordedGroup, Stack, Unavailable

_MAX_CALLS = 16
"""Of a rank."""


def annotate_calls(
    observation: Observation, sources: Sources, gathered: Mapping[int | None, Mapping[str, Any]]
) -> dict[int, FlightRecorder]:
    """The records of the ranks whose cards rest, with the source of the calls that are not finished; and of those whose last
    call was made by a thread that has ended, with the source of that."""
    calls = {
        target.pid: list(calls_on_card(gathered[target.pid]["recorder"]))[:_MAX_CALLS]
        if rests_on_card(gathered.get(target.pid, {}), observation.window)
        else _list_calls_of_ended(gathered.get(target.pid, {}))
        for target in observation.ranks()
    }
    records = observation.read_each(
        [target for target in observation.ranks() if calls[target.pid]],
        lambda target: _annotated(sources, target, gathered[target.pid]["recorder"], calls[target.pid]),
    )
    return {pid: record for pid, record in records.items() if not isinstance(record, Unavailable)}


def _list_calls_of_ended(fields: Mapping[str, Any]) -> list[Recorded]:
    record, stack = fields.get("recorder"), fields.get("stack")
    last = ended_caller.find_last_call(record) if isinstance(record, FlightRecorder) else None
    return [last] if last is not None and isinstance(stack, Stack) and ended_caller.has_ended(last, stack) else []


def _annotated(sources: Sources, target: Target, record: FlightRecorder, calls: list[Recorded]) -> FlightRecorder:
    threads = tuple(PythonThread(tid=None, name=None, active=False, owns_gil=False, frames=c.frames) for c in calls)
    stack = sources.annotate(target.pid, target.start_ticks, Stack(at_seconds=0.0, threads=threads))
    by_call = {id(call): replace(call, frames=t.frames) for call, t in zip(calls, stack.threads, strict=True)}
    return replace(record, groups=tuple(_with_sources(group, by_call) for group in record.groups))


def _with_sources(group: RecordedGroup, by_call: Mapping[int, Recorded]) -> RecordedGroup:
    return replace(
        group,
        completed=by_call.get(id(group.completed), group.completed),
        pending=tuple(by_call.get(id(call), call) for call in group.pending),
        transfers=tuple(
            replace(each, pending=tuple(by_call.get(id(call), call) for call in each.pending))
            for each in group.transfers
        ),
    )
