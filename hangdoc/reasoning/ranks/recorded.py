"""What the record of a rank's calls adds to its stack: which collective it waits in, with which number and tensor."""

from hangdoc.reasoning.evidence.records import recorded_groups
from hangdoc.reasoning.model.rank import Wait, form
from hangdoc.snapshot import Process, Recorded
from hangdoc.torch_facts import call_names


def stuck(process: Process, wait: Wait) -> Recorded | None:
    """The first incomplete collective of the group that a rank waits in, if it matches what the rank waits for."""
    groups = recorded_groups(process)
    group = wait.operation.group
    same = [g for g in groups if (g.name == group if group is not None else g.default)]
    op = form(wait.operation.op)
    names = {op, *call_names.RECORDED_AS.get(op, ())}
    for entry in same[0].pending if len(same) == 1 else ():
        if form(_op(entry)) in names:
            return entry
    return None


def only_pending(process: Process) -> tuple[str, str | None] | None:
    """(operation, group or None for the default one) of all incomplete collectives, if they are the same."""
    pending = {
        (_op(entry), None if group.default else group.name)
        for group in recorded_groups(process)
        for entry in group.pending
    }
    return pending.pop() if len(pending) == 1 else None


def _op(entry: Recorded) -> str:
    name = entry.op.lstrip("_")
    return call_names.ALIASES.get(name, call_names.ALIASES.get(entry.op, name))
