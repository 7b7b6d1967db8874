"""Source lines, and the structure around them, of the calls that cards have not finished.

A call of NCCL returns at once, so the stack of a rank does not show where it made the call in which its card waits. The record
does: it has the lines of each call.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.stacks.source import Sources
from hangdoc.observe.torch.recorded_progress import calls_on_card, rests_on_card
from hangdoc.snapshot import FlightRecorder, PythonThread, Recorded, RecordedGroup, Stack, Unavailable

_MAX_CALLS = 16
"""Of a rank."""


def annotate_calls(
    observation: Observation, sources: Sources, gathered: Mapping[int | None, Mapping[str, Any]]
) -> dict[int, FlightRecorder]:
    """The records of the ranks whose cards rest, with the source of the calls that are not finished."""
    resting = [t for t in observation.ranks() if rests_on_card(gathered.get(t.pid, {}), observation.window)]
    records = observation.read_each(
        resting, lambda target: _annotated(sources, target, gathered[target.pid]["recorder"])
    )
    return {pid: record for pid, record in records.items() if not isinstance(record, Unavailable)}


def _annotated(sources: Sources, target: Target, record: FlightRecorder) -> FlightRecorder:
    calls = list(calls_on_card(record))[:_MAX_CALLS]
    threads = tuple(PythonThread(tid=None, name=None, active=False, owns_gil=False, frames=c.frames) for c in calls)
    stack = sources.annotate(target.pid, target.start_ticks, Stack(at_seconds=0.0, threads=threads))
    by_call = {id(call): replace(call, frames=t.frames) for call, t in zip(calls, stack.threads, strict=True)}
    return replace(record, groups=tuple(_with_sources(group, by_call) for group in record.groups))


def _with_sources(group: RecordedGroup, by_call: Mapping[int, Recorded]) -> RecordedGroup:
    return replace(
        group,
        pending=tuple(by_call.get(id(call), call) for call in group.pending),
        transfers=tuple(
            replace(each, pending=tuple(by_call.get(id(call), call) for call in each.pending))
            for each in group.transfers
        ),
    )
