"""The calls that torch's flight recorder has of a process."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hangdoc.reasoning.evidence.records import recorded_groups
from hangdoc.reasoning.evidence.stopped import stopped_by
from hangdoc.reasoning.ledger.put_together import Part
from hangdoc.reasoning.model.ledger import Call, Pending, RankCalls, Site
from hangdoc.snapshot import (
    CallForm,
    CallHistory,
    FlightRecorder,
    Frame,
    Group,
    Interpreter,
    Process,
    Recorded,
    RecordedGroup,
)
from hangdoc.torch_facts import call_names, file_names


def parts_of(rank: int, host: str, wall_us: int | None, process: Process) -> Iterator[Part]:
    """What a rank's record has of each of its groups. `wall_us` is the host's clock when it was read, in microseconds."""
    recorder = process.recorder
    groups = recorded_groups(process)
    if not isinstance(recorder, FlightRecorder) or not groups:
        return
    forms = tuple(map(_call_of, recorder.forms))
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
        )
    for group in _untouched(rank, process, groups) if recorder.whole else ():
        none = RankCalls(rank, host, made=0, made_before=0, whole=True)
        yield Part(None if group.default else group.name, tuple(sorted(group.ranks)), group.backend, none)


def _untouched(rank: int, process: Process, recorded: Sequence[RecordedGroup]) -> Iterator[Group]:
    """The groups of a rank in which it has made no call: those that its record, which is whole, would have, because it has groups
    of the same backend."""
    groups = process.interpreter.groups if isinstance(process.interpreter, Interpreter) else ()
    with_calls = [_listed(process, group) for group in recorded]
    backends = {group.backend for group in with_calls if group is not None}
    yield from (
        group for group in groups if rank in group.ranks and group not in with_calls and group.backend in backends
    )


def _listed(process: Process, recorded: RecordedGroup) -> Group | None:
    """The group in the table of groups in the process's memory."""
    groups = process.interpreter.groups if isinstance(process.interpreter, Interpreter) else ()
    return next(
        (
            group
            for group in groups
            if (group.default if recorded.default else not group.default and group.name == recorded.name)
        ),
        None,
    )


def _calls(rank: int, host: str, wall_us: int | None, recorded: RecordedGroup, forms: Sequence[Call]) -> RankCalls:
    pending = tuple(map(_pending, recorded.pending))
    history, last, age = recorded.history, recorded.completed, None
    if recorded.pending and (last is None or recorded.pending[-1].seq > last.seq):
        last = recorded.pending[-1]
    call = _call(last) if last is not None else None
    age = last.age_seconds if last is not None else None
    if history is None or not _is_whole(history, len(forms)):
        return RankCalls(
            rank, host, made=recorded.issued, made_before=recorded.issued_before, pending=pending, last=call,
            last_age_seconds=age, generation=recorded.generation,
        )  # fmt: skip
    calls = tuple(forms[at] for at in history.forms)
    if wall_us is not None:  # the record was read a moment before the end of the window, from which all ages are
        age = max(0.0, (wall_us - history.made_us[-1]) / 1e6)
        made = dict(zip(history.numbers, history.made_us, strict=True))
        pending = tuple(
            call._replace(age_seconds=max(0.0, (wall_us - made[call.number]) / 1e6)) if call.number in made else call
            for call in pending
        )
    return RankCalls(
        rank,
        host,
        made=max(recorded.issued or 0, history.numbers[-1]),
        made_before=recorded.issued_before,
        pending=pending,
        last=calls[-1],
        last_age_seconds=age,
        numbers=history.numbers,
        calls=calls,
        made_us=history.made_us,
        whole=history.numbers[0] == 1,
        generation=recorded.generation,
    )


def _is_whole(history: CallHistory, forms: int) -> bool:
    """Whether its columns have values, are of one length, and name only calls that the record has: a bundle may be damaged."""
    lengths = {len(history.numbers), len(history.forms), len(history.made_us)}
    return len(lengths) == 1 and bool(history.numbers) and 0 <= min(history.forms) <= max(history.forms) < forms


def _pending(recorded: Recorded) -> Pending:
    return Pending(recorded.seq, _call(recorded), recorded.age_seconds, recorded.timeout_seconds)


def _call(recorded: Recorded) -> Call:
    return Call(
        call_names.recorded_op(recorded.op), recorded.inputs, _sites(recorded.frames), _is_by_join(recorded.frames)
    )


def _call_of(form: CallForm) -> Call:
    return Call(call_names.recorded_op(form.op), form.inputs, _sites(form.frames), _is_by_join(form.frames))


def _is_by_join(frames: Sequence[Frame]) -> bool:
    return any(file_names.JOIN.is_at(frame.file, frame.function) for frame in frames)


def _sites(frames: Sequence[Frame]) -> tuple[Site, ...]:
    return tuple(
        Site(frame.file.rpartition("/")[2], frame.line, frame.function, frame.file, frame.library)
        for frame in frames
        if not any(part in frame.file for part in file_names.ON_THE_WAY)
    )
