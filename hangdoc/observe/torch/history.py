"""What a rank's records say of each process group, as values of the snapshot."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from hangdoc.observe.torch.calls import Call, Calls, Group
from hangdoc.snapshot import CallForm, CallHistory, FlightRecorder, Recorded, RecordedGroup

_DEFAULT = "default_pg"
_MAX_GROUPS = 1_000
_MAX_PENDING = 4


class Record(NamedTuple):
    """The record of one of torch's libraries, as it was read."""

    kind: str
    """`cpu` (Gloo) or the kind of card."""
    calls: Calls
    made: int
    """Calls that were ever made."""
    capacity: int
    members: dict[tuple[str, str], tuple[int, ...]]
    """Global ranks of the groups, by name and description, as far as the record has them."""
    read_ns: int
    """When it was read: nanoseconds since 1970 on the host's wall clock."""


def recorder_of(records: Sequence[Record], made_before: dict[str, int]) -> FlightRecorder:
    """The groups of all records. `made_before` is the number of calls that each kind of record had at the beginning of the
    window."""
    forms: dict[CallForm, int] = {}
    groups: list[RecordedGroup] = []
    on_cards = {
        (call.group.name, call.group.description)
        for record in records
        if record.kind != "cpu"
        for call in record.calls.calls
    }
    for record in records:
        used = sorted({call.form for call in record.calls.calls})
        positions = {number: forms.setdefault(record.calls.forms[number], len(forms)) for number in used}
        generations = _generations(record.calls.calls)
        for group, calls in _newest_groups(record.calls.calls).items():
            # A group has one backend for tensors of the host and one for those of the card, and each counts its calls.
            second = record.kind == "cpu" and (group.name, group.description) in on_cards
            before = made_before.get(record.kind)
            if before is not None and before > record.made:
                before = None  # the record has begun again
            recorded = _recorded_group(record, group, calls, positions, before, second)
            groups.append(replace(recorded, generation=generations[group.name, group.description]))
    capacities = [record.capacity for record in records]
    return FlightRecorder(
        source="memory",
        age_seconds=0.0,
        groups=tuple(sorted(groups, key=lambda group: (not group.default, group.name))[:_MAX_GROUPS]),
        forms=tuple(forms),
        capacity=max(capacities, default=None),
        whole=all(len(record.calls.calls) == record.made for record in records),
    )


def _generations(calls: Iterable[Call]) -> Counter[tuple[str, str]]:
    """How many groups of each name and description have calls."""
    return Counter((group.name, group.description) for group in {call.group for call in calls})


def _newest_groups(calls: Iterable[Call]) -> dict[Group, list[Call]]:
    """The collectives by group, each number once. A process may have made a group of the same name before: only the last one
    counts."""
    by_group: dict[Group, dict[int, Call]] = {}
    newest: dict[tuple[str, str], Group] = {}
    for call in calls:
        if not call.is_p2p:
            # The entry of a coalesced call has the number of the calls in it, and comes last.
            by_group.setdefault(call.group, {})[call.collective] = call
            newest[call.group.name, call.group.description] = call.group
    return {group: [by_group[group][number] for number in sorted(by_group[group])] for group in newest.values()}


def _recorded_group(
    record: Record, group: Group, calls: list[Call], positions: dict[int, int], made_before: int | None, second: bool
) -> RecordedGroup:
    forms = record.calls.forms
    completed = next((call for call in reversed(calls) if call.completed), None)
    pending = (call for call in calls if not call.completed)
    finished = [None if call.completed_ns is None else call.completed_ns // 1000 for call in calls]
    return RecordedGroup(
        name=f"{group.name} ({record.kind})" if second else group.name,
        default=group.description == _DEFAULT and not second,
        ranks=record.members.get((group.name, group.description), ()),
        issued=calls[-1].collective,
        issued_before=_issued_before(calls, made_before),
        completed=_recorded(completed, forms, record.read_ns) if completed is not None else None,
        pending=tuple(_recorded(call, forms, record.read_ns) for call in islice(pending, _MAX_PENDING)),
        history=CallHistory(
            numbers=tuple(call.collective for call in calls),
            forms=tuple(positions[call.form] for call in calls),
            made_us=tuple(call.made_ns // 1000 for call in calls),
            finished_us=tuple(finished) if any(at is not None for at in finished) else (),
        ),
    )


def _issued_before(calls: list[Call], made_before: int | None) -> int | None:
    """The last number when the record had `made_before` calls."""
    if made_before is None:
        return None
    numbers = [call.collective for call in calls if call.id < made_before]
    return numbers[-1] if numbers else max(0, calls[0].collective - 1)


def _recorded(call: Call, forms: Sequence[CallForm], now_ns: int) -> Recorded:
    form = forms[call.form]
    return Recorded(
        seq=call.collective,
        op=form.op,
        inputs=form.inputs,
        outputs=form.outputs,
        age_seconds=round(max(0, now_ns - call.made_ns) / 1e9, 3),
        timeout_seconds=call.timeout_ms / 1000 if call.timeout_ms else None,
        frames=form.frames,
    )
