"""What torch's flight recorder adds: the collective in which a rank waits, its tensor, and how far each rank has come."""

from hangdoc.diagnosis import Evidence
from hangdoc.phrases import ranks
from hangdoc.reasoning.model import Run, Wait, form
from hangdoc.reasoning.ranks import known, torch_names
from hangdoc.snapshot import FlightRecorder, Process, Recorded, RecordedGroup

_SHOWN = 8


def of(process: Process | None) -> tuple[RecordedGroup, ...]:
    """The groups in the recorder of a rank; none if it was read before the rank last made progress."""
    recorder = process.recorder if process is not None else None
    if process is None or not isinstance(recorder, FlightRecorder):
        return ()
    if recorder.age_seconds > 0:
        beacon = known.beacon(process)
        if beacon is None or beacon.age_seconds < recorder.age_seconds:
            return ()
    return recorder.groups


def stuck(process: Process | None, wait: Wait) -> Recorded | None:
    """The first incomplete collective of the group that a rank waits in, if it matches what the rank waits for."""
    if wait.kind != "collective":
        return None
    if not (groups := of(process)):
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
    pending: dict[str, int] = {}
    recorded = [
        r for r in run.ranks.values() if r.process is not None and isinstance(r.process.recorder, FlightRecorder)
    ]
    for rank in recorded:
        for group in of(rank.process):
            pending[group.name] = pending.get(group.name, 0) + bool(group.pending)
    if not any(pending.values()):
        return []
    name = max(sorted(pending), key=lambda key: pending[key])
    lines: dict[str, list[int]] = {}
    for rank in sorted(recorded, key=lambda rank: rank.rank):
        for group in of(rank.process):
            if group.name == name:
                lines.setdefault(_line(group), []).append(rank.rank)
    return [
        Evidence(
            rank=numbers[0],
            probe="flight recorder",
            text=text + (f" (also {ranks(numbers[1:])})" if numbers[1:] else ""),
        )
        for text, numbers in list(lines.items())[:_SHOWN]
    ]


def _line(group: RecordedGroup) -> str:
    where = "the default group" if group.default else f"group {group.name}"
    if not group.pending:
        last = group.completed
        op = f" ({last.op})" if last is not None and last.seq == group.issued else ""
        return f"has completed collective {group.issued}{op} of {where}, its last one"
    first = group.pending[0]
    what = f"{first.op}{f' of {first.inputs[0]}' if len(first.inputs) == 1 else ''}"
    return f"is in collective {first.seq} of {where}: {what}"
