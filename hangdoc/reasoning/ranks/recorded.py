"""What torch's flight recorder adds: the collective in which a rank waits, its tensor, and how far each rank has come."""

from collections import Counter

from hangdoc.diagnosis import Evidence
from hangdoc.phrases import also
from hangdoc.reasoning.model import Run, Wait, form
from hangdoc.reasoning.ranks import known, torch_names
from hangdoc.snapshot import FlightRecorder, Process, Recorded, RecordedGroup

_SHOWN = 8


def of(process: Process) -> tuple[RecordedGroup, ...]:
    """The groups in the recorder of a rank; none if it was read before the rank last made progress."""
    recorder = process.recorder
    if not isinstance(recorder, FlightRecorder):
        return ()
    if recorder.age_seconds > 0:
        beacon = known.beacon(process)
        if beacon is None or beacon.age_seconds < recorder.age_seconds:
            return ()
    return recorder.groups


def stuck(process: Process, wait: Wait) -> Recorded | None:
    """The first incomplete collective of the group that a rank waits in, if it matches what the rank waits for."""
    groups = of(process)
    if not groups:
        return None
    group = wait.operation.group
    same = [g for g in groups if (g.name == group if group is not None else g.default)]
    for entry in same[0].pending if len(same) == 1 else ():
        if form(_op(entry)) == form(wait.operation.op):
            return entry
    return None


def only_pending(process: Process) -> tuple[str, str | None] | None:
    """(operation, group or None for the default one) of all incomplete collectives, if they are the same."""
    found = {(_op(entry), None if g.default else g.name) for g in of(process) for entry in g.pending}
    return found.pop() if len(found) == 1 else None


def _op(entry: Recorded) -> str:
    name = entry.op.lstrip("_")
    return torch_names.ALIASES.get(name, torch_names.ALIASES.get(entry.op, name))


def tensor(process: Process, wait: Wait) -> str | None:
    """The first tensor that a waiting rank passed to its collective, as `float32[64, 8]`."""
    entry = stuck(process, wait)
    return entry.inputs[0] if entry is not None and len(entry.inputs) == 1 else None


def evidence(run: Run) -> list[Evidence]:
    """How far each rank has come in the group in which most ranks are stuck; empty if no recorder was read."""
    recorded = {rank.rank: of(rank.process) for rank in run.ranks.values() if rank.process is not None}
    pending = Counter(group.name for groups in recorded.values() for group in groups if group.pending)
    if not pending:
        return []
    name = max(sorted(pending), key=lambda key: pending[key])
    lines: dict[str, list[int]] = {}
    for rank, groups in sorted(recorded.items()):
        for group in groups:
            if group.name == name:
                lines.setdefault(_line(group), []).append(rank)
    return [Evidence(at[0], "flight recorder", f"{text}{also(at)}") for text, at in list(lines.items())[:_SHOWN]]


def _line(group: RecordedGroup) -> str:
    where = "the default group" if group.default else f"group {group.name}"
    if not group.pending:
        last = group.completed
        op = f" ({last.op})" if last is not None and last.seq == group.issued else ""
        return f"has completed collective {group.issued}{op} of {where}, its last one"
    first = group.pending[0]
    what = f"{first.op}{f' of {first.inputs[0]}' if len(first.inputs) == 1 else ''}"
    return f"is in collective {first.seq} of {where}: {what}"
