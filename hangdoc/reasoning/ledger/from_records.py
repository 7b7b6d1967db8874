"""The ledger of a run: from each rank's record, and from the stack where a rank waits in a call that no record has."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import stopped_by
from hangdoc.reasoning.evidence.records import label_group, recorded_groups
from hangdoc.reasoning.evidence.stack import name_operation
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Ledger, Pending, RankCalls, Site
from hangdoc.reasoning.model.rank import Rank, Wait
from hangdoc.snapshot import (
    CallForm,
    CallHistory,
    FlightRecorder,
    Frame,
    Group,
    Host,
    Process,
    Recorded,
    RecordedGroup,
)
from hangdoc.torch_facts import call_names, file_names


class Part(NamedTuple):
    """The calls of one rank in one group, before ranks are put together."""

    name: str | None
    members: tuple[int, ...]
    """Empty if unknown."""
    backend: str | None
    calls: RankCalls
    label: str | None = None
    description: str | None = None
    """That the program gave to the group."""


def put_together(parts: Iterable[Part]) -> Ledger:
    """A ledger from the parts of all ranks. Groups are the same if their names are, and their members if these are known: torch
    gives a name to each group of a run once, but not in every version to groups that only their members make."""
    listed: dict[tuple[str | None, tuple[int, ...]], list[Part]] = {}
    nameless: list[Part] = []
    for part in parts:
        if part.members:
            listed.setdefault((part.name, part.members), []).append(part)
        else:
            nameless.append(part)
    for part in nameless:  # they join the group of their name that lists them, or the others without members
        keys = [key for key in listed if key[0] == part.name and (not key[1] or part.calls.rank in key[1])]
        listed.setdefault(keys[0] if keys else (part.name, ()), []).append(part)
    groups = [_group(name, members, same) for (name, members), same in listed.items()]
    return Ledger(tuple(sorted(groups, key=lambda group: (group.name is not None, group.name or "", group.members))))


def _group(name: str | None, members: tuple[int, ...], parts: list[Part]) -> GroupCalls:
    ranks: dict[int, RankCalls] = {}
    for part in parts:
        before = ranks.get(part.calls.rank)
        ranks[part.calls.rank] = part.calls if before is None else _with_stack(before, part.calls)
    newest = max(calls.generation for calls in ranks.values())
    # Of a rank that has not called the group since it was made again, only calls of the earlier one are known.
    ranks = {rank: calls for rank, calls in ranks.items() if calls.generation == newest or calls.source == "inferred"}
    backend = next((part.backend for part in parts if part.backend is not None), None)
    label = next((part.label for part in parts if part.label is not None), None)
    description = next((part.description for part in parts if part.description is not None), None)
    members = members or tuple(sorted(ranks))
    return GroupCalls(name, members, dict(sorted(ranks.items())), backend, label, description)


def _with_stack(first: RankCalls, second: RankCalls) -> RankCalls:
    """The record of a rank with the call in which its stack waits, if the record has no call that is not complete: torch does not
    record `monitored_barrier`, and a call is recorded only when it has been handed over."""
    if first.source == second.source == "recorder":
        return max(first, second, key=lambda calls: calls.generation)
    record, stack = (first, second) if first.source == "recorder" else (second, first)
    if record.pending or not stack.pending or record.source == "inferred":
        return record
    return record._replace(pending=(stack.pending[0]._replace(number=(record.made or 0) + 1),))


# --- the ranks of a run -----------------------------------------------------------------------------------------------


def ledger_of(ranks: Iterable[Rank], hosts: dict[str, Host]) -> Ledger:
    """The calls that some ranks have made in their process groups."""
    return put_together(part for rank in ranks for part in _parts_of_rank(rank, hosts))


def _parts_of_rank(rank: Rank, hosts: dict[str, Host]) -> Iterator[Part]:
    if rank.process is not None:
        host = hosts.get(rank.host)
        parts = recorded_parts(rank.rank, rank.host, host.wall_us if host is not None else None, rank.process)
        undated = host is not None and host.dumps is not None and host.wall_us is None
        yield from map(_without_ages, parts) if undated else parts
    if rank.wait is not None and rank.wait.kind == "collective" and rank.wait.sure:
        yield part_of_stack(rank, rank.wait)


def _without_ages(part: Part) -> Part:
    """A part of which it is not known when it was recorded."""
    pending = tuple(call._replace(age_seconds=None) for call in part.calls.pending)
    return part._replace(calls=part.calls._replace(pending=pending, last_age_seconds=None))


# --- from the record --------------------------------------------------------------------------------------------------


def recorded_parts(rank: int, host: str, wall_us: int | None, process: Process) -> Iterator[Part]:
    """What a rank's record has of each of its groups. `wall_us` is the host's clock when it was read, in microseconds."""
    recorder = process.recorder
    groups = recorded_groups(process)
    if not isinstance(recorder, FlightRecorder) or not groups:
        return
    forms = tuple(map(_call, recorder.forms))
    stopped = stopped_by(process) is not None
    for recorded in groups:
        if stopped and recorded.on_card:  # the thread that would notice the end of a call does not run
            recorded = replace(recorded, pending=())
        if recorder.whole and recorded.issued is None and recorded.transfers:
            recorded = replace(recorded, issued=0, issued_before=0)  # only sends and receives
        listed = _listed(process, recorded)
        members = recorded.ranks or (tuple(sorted(listed.ranks)) if listed is not None else ())
        yield Part(
            None if recorded.default else recorded.name,
            members if rank in members else (),
            listed.backend if listed is not None else None,
            _calls(rank, host, wall_us, recorded, forms),
            (listed.label if listed is not None else None) or label_group(process, recorded.name),
            recorded.description,
        )
    for group in _untouched(rank, process, groups) if recorder.whole else ():
        none = RankCalls(rank, host, made=0, made_before=0, whole=True)
        yield Part(None if group.default else group.name, tuple(sorted(group.ranks)), group.backend, none, group.label)


def _untouched(rank: int, process: Process, recorded: Sequence[RecordedGroup]) -> Iterator[Group]:
    """The groups of a rank in which it has made no call: those that its record, which is whole, would have, because it has groups
    of the same backend."""
    with_calls = [_listed(process, group) for group in recorded]
    backends = {group.backend for group in with_calls if group is not None}
    for group in observed.groups(process):
        if rank in group.ranks and group not in with_calls and group.backend in backends:
            yield group


def _listed(process: Process, recorded: RecordedGroup) -> Group | None:
    """The group in the table of groups in the process's memory."""
    for group in observed.groups(process):
        if group.default if recorded.default else not group.default and group.name == recorded.name:
            return group
    return None


def _calls(rank: int, host: str, wall_us: int | None, recorded: RecordedGroup, forms: Sequence[Call]) -> RankCalls:
    last, history = recorded.completed, recorded.history
    if recorded.pending and (last is None or recorded.pending[-1].seq > last.seq):
        last = recorded.pending[-1]
    made = RankCalls(
        rank,
        host,
        made=recorded.issued,
        made_before=recorded.issued_before,
        pending=tuple(Pending(r.seq, _call(r), r.age_seconds, r.timeout_seconds) for r in recorded.pending),
        last=_call(last) if last is not None else None,
        last_age_seconds=last.age_seconds if last is not None else None,
        generation=recorded.generation,
    )
    if history is None or not _is_whole(history, len(forms)):
        return made
    calls = tuple(forms[at] for at in history.forms)
    made = made._replace(
        made=max(recorded.issued or 0, history.numbers[-1]),
        last=calls[-1],
        numbers=history.numbers,
        calls=calls,
        made_us=history.made_us,
        whole=history.numbers[0] == 1,
    )
    return made if wall_us is None else _with_ages(made, wall_us)


def _with_ages(calls: RankCalls, wall_us: int) -> RankCalls:
    """Calls whose ages are those at the end of the window: the record was read a moment before."""
    ages = {
        number: max(0.0, (wall_us - made_us) / 1e6)
        for number, made_us in zip(calls.numbers, calls.made_us, strict=True)
    }
    pending = (call._replace(age_seconds=ages.get(call.number, call.age_seconds)) for call in calls.pending)
    return calls._replace(pending=tuple(pending), last_age_seconds=ages[calls.numbers[-1]])


def _is_whole(history: CallHistory, forms: int) -> bool:
    """Whether its columns have values, are of one length, and name only calls that the record has: a bundle may be damaged."""
    lengths = {len(history.numbers), len(history.forms), len(history.made_us)}
    return len(lengths) == 1 and bool(history.numbers) and 0 <= min(history.forms) <= max(history.forms) < forms


def _call(recorded: CallForm | Recorded) -> Call:
    frames = recorded.frames
    op = call_names.recorded_op(recorded.op)
    return Call(op, recorded.inputs, _sites(frames), _is_by_join(frames), name_operation(frames))


def _is_by_join(frames: Sequence[Frame]) -> bool:
    return any(file_names.JOIN.is_at(frame.file, frame.function) for frame in frames)


def _sites(frames: Sequence[Frame]) -> tuple[Site, ...]:
    return tuple(
        Site(frame.file.rpartition("/")[2], frame.line, frame.function, frame.file, frame.library)
        for frame in frames
        if not any(part in frame.file for part in file_names.ON_THE_WAY)
    )


# --- from the stack ---------------------------------------------------------------------------------------------------


def part_of_stack(rank: Rank, wait: Wait) -> Part:
    """The collective in which a rank waits by its stack: a record of length one, without a number, and marked as inferred."""
    where, operation = rank.where, wait.operation
    site = Site(where.file.rpartition("/")[2], where.line, where.function) if where is not None else None
    call = Call(operation.op, sites=(site,) if site is not None else ())
    pending = Pending(0, call, source="inferred")
    calls = RankCalls(rank.rank, rank.host, "inferred", pending=(pending,), last=call)
    return Part(operation.group, wait.members or (), operation.backend, calls, operation.group_label)
