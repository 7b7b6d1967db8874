"""What a rank's records say of each process group, as values of the snapshot."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from msgspec.structs import replace

from hangdoc.observe.torch.recorded_calls import Call, Calls, Group
from hangdoc.regex import regex
from hangdoc.snapshot import CallForm, CallHistory, FlightRecorder, Recorded, RecordedGroup, RecordedTransfers

_DEFAULT = "default_pg"
_BY_TORCH = regex(r"(undefined|default_pg)(:.*)?|mesh_default|mesh_dim_\d+", re.DOTALL)
"""Descriptions that torch gives to groups without one, and to the parts of such groups."""
_MAX_DESCRIPTION = 100
_MAX_GROUPS = 1_000
_MAX_PENDING = 4
_MAX_PEERS = 256
_BATCH = "coalesced"
_TRANSFER = regex(r"(send|recv) \d{1,7}(?:->|<-)(\d{1,7})$")


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
        for group, calls in _newest_groups(record.calls).items():
            # A group has one backend for tensors of the host and one for those of the card, and each counts its calls.
            second = record.kind == "cpu" and (group.name, group.description) in on_cards
            recorded = _recorded_group(record, group, calls, positions, _counted_before(record, made_before), second)
            groups.append(replace(recorded, generation=generations[group.name, group.description]))
    capacities = [record.capacity for record in records]
    added = [_added(record, made_before) for record in records]
    return FlightRecorder(
        source="memory",
        age_seconds=0.0,
        groups=tuple(sorted(groups, key=lambda group: (not group.default, group.name))[:_MAX_GROUPS]),
        forms=tuple(forms),
        capacity=max(capacities, default=None),
        whole=all(len(record.calls.calls) == record.made for record in records),
        entries_in_window=None if None in added else sum(count for count in added if count is not None),
        finished_seconds_ago=_last_finish(records),
    )


def _counted_before(record: Record, made_before: dict[str, int]) -> int | None:
    """How many calls a record had at the beginning of the window; None if it was not read then, or has begun again."""
    before = made_before.get(record.kind)
    return before if before is None or before <= record.made else None


def _added(record: Record, made_before: dict[str, int]) -> int | None:
    before = _counted_before(record, made_before)
    return record.made - before if before is not None else None


def _last_finish(records: Iterable[Record]) -> float | None:
    """How many seconds before the reading a call of a card was last seen to have finished."""
    ages = (
        (record.read_ns - call.completed_ns) / 1e9
        for record in records
        for call in record.calls.calls
        if call.completed_ns is not None
    )
    age = min(ages, default=None)
    return round(max(0.0, age), 3) if age is not None else None


def _generations(calls: Iterable[Call]) -> Counter[tuple[str, str]]:
    """How many groups of each name and description have calls."""
    return Counter((group.name, group.description) for group in {call.group for call in calls})


class _GroupsCalls(NamedTuple):
    """The calls of one group."""

    collectives: list[Call]
    """By number, each once."""
    transfers: list[Call]
    """Sends and receives, oldest first."""


def _newest_groups(calls: Calls) -> dict[Group, _GroupsCalls]:
    """The calls by group. A process may have made a group of the same name before: only the last one counts."""
    transfers = _find_transfers(calls)
    collectives: dict[Group, dict[int, Call]] = {}
    newest: dict[tuple[str, str], Group] = {}
    for call in calls.calls:
        newest[call.group.name, call.group.description] = call.group
        # The entry of a coalesced call has the number of the calls in it, and comes last.
        if not call.is_p2p and call.id not in transfers:
            collectives.setdefault(call.group, {})[call.collective] = call
    by_group: dict[Group, list[Call]] = {}
    for transfer in transfers.values():
        if transfer is not None:
            by_group.setdefault(transfer.group, []).append(transfer)
    return {
        group: _GroupsCalls(
            [made for _, made in sorted(collectives.get(group, {}).items())],
            by_group.get(group, []),
        )
        for group in newest.values()
    }


def _find_transfers(calls: Calls) -> dict[int, Call | None]:
    """The sends and receives by their ids, and None for the entries of batches of them. A batch has one entry for each, which
    never completes, and then one for all (`coalesced`) with the same p2p number, which does."""
    batches: dict[tuple[Group, int], Call] = {}
    for before, call in pairwise(calls.calls):
        same = (before.group, before.p2p, before.id + 1) == (call.group, call.p2p, call.id)
        if before.is_p2p and same and calls.forms[call.form].op == _BATCH:
            batches[call.group, call.p2p] = call
    transfers: dict[int, Call | None] = {}
    for call in calls.calls:
        batch = batches.get((call.group, call.p2p))
        if batch is call:
            transfers[call.id] = None
        elif call.is_p2p:
            transfers[call.id] = call if batch is None else _completed_with(call, batch)
    return transfers


def _completed_with(call: Call, batch: Call) -> Call:
    """A part of a batch, which was made and completes with it."""
    return call._replace(
        made_ns=batch.made_ns, retired=batch.retired, completed_ns=batch.completed_ns, timeout_ms=batch.timeout_ms
    )


def _recorded_group(
    record: Record, group: Group, made: _GroupsCalls, positions: dict[int, int], made_before: int | None, second: bool
) -> RecordedGroup:
    forms, calls = record.calls.forms, made.collectives
    completed = next((call for call in reversed(calls) if call.completed), None)
    pending = (call for call in calls if not call.completed)
    finished = [None if call.completed_ns is None else call.completed_ns // 1000 for call in calls]
    members = record.members.get((group.name, group.description), ())
    return RecordedGroup(
        name=f"{group.name} ({record.kind})" if second else group.name,
        description="" if _BY_TORCH.fullmatch(group.description) else group.description[:_MAX_DESCRIPTION],
        default=group.description == _DEFAULT and not second,
        ranks=members,
        issued=calls[-1].collective if calls else None,
        issued_before=_issued_before(calls, made_before) if calls else None,
        completed=_recorded(completed, forms, record.read_ns) if completed is not None else None,
        pending=tuple(_recorded(call, forms, record.read_ns) for call in islice(pending, _MAX_PENDING)),
        history=CallHistory(
            numbers=tuple(call.collective for call in calls),
            forms=tuple(positions[call.form] for call in calls),
            made_us=tuple(call.made_ns // 1000 for call in calls),
            finished_us=tuple(finished) if any(at is not None for at in finished) else (),
        )
        if calls
        else None,
        on_card=record.kind != "cpu",
        transfers=tuple(_transfers_of(record, made.transfers, members)),
    )


def _transfers_of(record: Record, calls: Iterable[Call], members: Sequence[int]) -> Iterator[RecordedTransfers]:
    """The sends and receives of a group for each peer. `send 0->1` and `recv 0<-1` have ranks of the group."""
    by_peer: dict[tuple[bool, int], list[Call]] = {}
    for call in calls:
        match = _TRANSFER.match(record.calls.forms[call.form].op)
        if match is not None:
            peer = int(match[2])
            by_peer.setdefault((match[1] == "send", members[peer] if peer < len(members) else peer), []).append(call)
    for (sends, peer), made in list(by_peer.items())[:_MAX_PEERS]:
        pending = [
            replace(_recorded(call, record.calls.forms, record.read_ns), seq=number, op="send" if sends else "recv")
            for number, call in enumerate(made, 1)
            if not call.completed
        ]
        yield RecordedTransfers(sends=sends, peer=peer, made=len(made), pending=tuple(pending[:_MAX_PENDING]))


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
        age_seconds=round(max(0, now_ns - call.made_ns) / 1e9, 6),  # it orders the calls of different groups
        timeout_seconds=call.timeout_ms / 1000 if call.timeout_ms else None,
        frames=form.frames,
    )
