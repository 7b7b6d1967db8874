"""The call that the card of a rank has not finished, by torch's record (NCCL, RCCL).

Such a call returns at once, and the thread goes on until it needs a result. Then it waits for the card, and the card for the
oldest call in the record. So where a thread waits in the driver, what counts is the call, and the line that made it.
"""

from collections.abc import Sequence
from re import Pattern
from typing import NamedTuple

from msgspec.structs import replace

from hangdoc.diagnosis import Operation
from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import stopped_by
from hangdoc.reasoning.evidence.records import recorded_groups
from hangdoc.reasoning.evidence.stack import Reading, frames_at, origin, reading, short
from hangdoc.reasoning.model.rank import BUSY, Wait
from hangdoc.reasoning.ranks import movement
from hangdoc.reasoning.ranks.counters import counters_moved
from hangdoc.snapshot import (
    Clocks,
    FlightRecorder,
    Frame,
    Loop,
    Process,
    PythonThread,
    Recorded,
    RecordedGroup,
)
from hangdoc.torch_facts import call_names, cpp_names

_INNER_FRAMES = 24
"""Of a native stack in which a frame of the driver is looked for: torch's dispatcher has a dozen frames around it."""


class CardCall(NamedTuple):
    """The oldest call of a rank that its card has not finished."""

    wait: Wait
    thread: PythonThread | None
    """The thread at the line that made it; None if the record has no lines."""
    why: str


def find_card_call(process: Process, thread: PythonThread | None, read: Reading | None) -> CardCall | None:
    """The call for which a rank waits in the driver of its card; None if its card has none, or if its thread is elsewhere.
    `thread` is the one that trains and `read` its lines."""
    oldest = _find_oldest_call(process)
    if stopped_by(process) is not None:
        return None
    if oldest is None:
        return _find_call_of_gloo(process) if thread is None else None
    in_driver = _is_in_driver(process, thread, read)
    if in_driver is False or counters_moved(process):
        return None
    group, call, peer = oldest
    age = f" for {call.age_seconds:.0f} s" if call.age_seconds is not None else ""
    why = f"its card has not finished the call{age}"
    wait = _make_wait(process, group, call, peer, sure=bool(in_driver))
    if thread is not None and read is not None and call.frames:
        wait = replace(wait, thread_at=_describe_place(frames_at(thread.frames, read.own)))
    return CardCall(wait, _restore_thread(call, thread) if call.frames else None, why)


def _find_call_of_gloo(process: Process) -> CardCall | None:
    """The call in which a rank waits whose stack could not be read, by its record: the oldest one that is not complete, while its
    main thread does nothing, and waits at a futex without a timeout, as a thread does for Gloo."""
    kernel = movement.kernel_thread(process, None)
    oldest = _find_oldest_call(process, on_card=False)
    if oldest is None or kernel is None or not movement.rests(process, kernel):
        return None
    if observed.why_stack_is_missing(process) is None:
        return None
    if kernel.syscall != system_calls.FUTEX or kernel.timed is not False:
        return None
    group, call, peer = oldest
    wait = _make_wait(process, group, call, peer, sure=False)
    if wait.members is None and not group.default:
        return None
    wait = replace(wait.with_details(backend="gloo"), number=None)
    why = "by its record it has not finished this call, and its thread waits; its stack could not be read"
    return CardCall(wait, None, why)  # the record has no counters, which tell how often a loop has come to the line


def works_on_card(process: Process, thread: PythonThread) -> bool:
    """Whether a thread waits in the driver, while the record has no call for which its card waits: the card executes kernels of
    the rank's own or a CUDA graph, or it finishes one call after another."""
    record = process.recorder
    recorded = isinstance(record, FlightRecorder) and any(group.on_card for group in record.groups)
    if not recorded or _find_oldest_call(process) is not None:
        return False
    # In its own frames NCCL waits for other ranks: torch records a call only after the communicator for it was made.
    return bool(_has_frame(process, thread, cpp_names.GPU_SPIN)) and not _has_frame(process, thread, cpp_names.IN_NCCL)


def may_wait_for_card(process: Process, thread: PythonThread | None) -> bool:
    """Whether a rank waits in the driver of its card, or may, because it is busy at one line and none of its counters changes."""
    if process.deep_seconds_ago or stopped_by(process) is not None or thread is None:
        return False
    return _is_in_driver(process, thread, reading(thread)) is not False and not counters_moved(process)


def first_transfers(process: Process, peer: int) -> set[bool]:
    """Whether the oldest transfers with a peer that are not finished are sends (True), receives (False), or both in one batch. A
    card executes those of one pair of ranks in their order."""
    pending = [
        (each.pending[0].age_seconds or 0.0, each.sends)
        for group in recorded_groups(process)
        for each in group.transfers
        if each.peer == peer and each.pending
    ]
    oldest = max((age for age, _ in pending), default=0.0)
    return {sends for age, sends in pending if age == oldest}  # those of one batch are of one age


def find_dumped_call(process: Process) -> CardCall | None:
    """The call in which a rank waited when torch wrote its dump: the oldest one that was not complete, of all its groups."""
    calls: list[tuple[RecordedGroup, Recorded, int | None]] = []
    for made in recorded_groups(process):
        calls += [(made, call, None) for call in made.pending[:1]]
        calls += [(made, call, each.peer) for each in made.transfers for call in each.pending[:1]]
    if not calls:
        return None
    group, call, peer = max(calls, key=lambda each: _made_first(*each[:2]))
    wait = _make_wait(process, group, call, peer, sure=True).with_details(backend="nccl" if group.on_card else "gloo")
    return CardCall(wait, _restore_thread(call, None) if call.frames else None, "the call is not complete in its dump")


def _find_oldest_call(process: Process, *, on_card: bool = True) -> tuple[RecordedGroup, Recorded, int | None] | None:
    """The oldest call that a card has not finished, with its group and the peer of a send or receive. None if it was made in the
    window, or if any call was made or finished in it."""
    record, clocks = process.recorder, process.clocks
    if not isinstance(record, FlightRecorder) or record.made_in_window:
        return None
    # A thread that waits in the driver for a call stays there until the call is finished, so an older stack is still true.
    window = max(clocks.window_seconds if isinstance(clocks, Clocks) else 0.0, process.deep_seconds_ago)
    if record.finished_seconds_ago is not None and record.finished_seconds_ago < window:
        return None
    oldest = max(_list_unfinished(process, on_card=on_card), key=lambda each: _made_first(*each[:2]), default=None)
    return oldest if oldest is not None and (oldest[1].age_seconds or 0.0) > window else None


def _made_first(group: RecordedGroup, call: Recorded) -> tuple[float, int]:
    """Larger for a call that was made earlier: by its age, and by the clock of the record where ages are equal."""
    history = group.history
    made = zip(reversed(history.numbers), reversed(history.made_us), strict=False) if history is not None else ()
    return call.age_seconds or 0.0, -next((at for number, at in made if number == call.seq), 0)


def _list_unfinished(process: Process, *, on_card: bool) -> list[tuple[RecordedGroup, Recorded, int | None]]:
    calls: list[tuple[RecordedGroup, Recorded, int | None]] = []
    for group in recorded_groups(process):
        if group.on_card is on_card:
            calls += [(group, call, None) for call in group.pending[:1]]
            calls += [(group, call, each.peer) for each in group.transfers for call in each.pending[:1]]
    return calls


def _is_in_driver(process: Process, thread: PythonThread | None, read: Reading | None) -> bool | None:
    """Whether the thread waits for the card: True by its native frames or by torch's own frame of a call, None if it may, because
    it is busy at one line, and False if it is elsewhere."""
    if thread is None or read is None:
        share = movement.share_of(process, movement.kernel_thread(process, None))
        return None if share is not None and share >= BUSY else False
    if not movement.is_at_same_lines(process, thread, read):
        return False
    native = _has_frame(process, thread, cpp_names.GPU_SPIN)
    if native is not None:
        return native
    share = movement.share_of(process, movement.kernel_thread(process, thread))
    busy = thread.active if share is None else share >= BUSY
    if read.in_c10d and busy:
        return True
    if not busy:
        return False
    return None if _may_synchronise(thread) else False


def _may_synchronise(thread: PythonThread) -> bool:
    """Whether the innermost Python line may wait for the card, by its source; True if that was not read."""
    source = thread.frames[0].source if thread.frames else None
    return source is None or call_names.SYNCHRONISING.search(source) is not None


def _has_frame(process: Process, thread: PythonThread, pattern: Pattern[str]) -> bool | None:
    """Whether native frames of a thread match a pattern; None if there are none."""
    native = observed.native_of(process, thread)
    if native is None:
        return None
    inner = native.frames[:_INNER_FRAMES]
    compiled = (frame for frame in inner if frame.native or not frame.file.endswith(".py"))
    return any(pattern.search(f"{frame.function} {frame.file}") for frame in compiled)


def _make_wait(process: Process, group: RecordedGroup, call: Recorded, peer: int | None, *, sure: bool) -> Wait:
    listed = next((each for each in observed.groups(process) if not each.default and each.name == group.name), None)
    members = None if group.default else (group.ranks or (listed.ranks if listed is not None else None))
    operation = Operation(
        op=call_names.recorded_op(call.op),
        origin=_find_origin(call),
        group=None if group.default else group.name,
        peer=peer,
        backend="nccl",
        seq=call.seq,
    )
    if peer is not None:
        return Wait("p2p", operation, members, sure=sure)
    return Wait("collective", operation, members, sure=sure, number=call.seq)


def _describe_place(own: Sequence[Frame]) -> str | None:
    return f"{short(own[0].file)}:{own[0].line}" if own else None


def _find_origin(call: Recorded) -> str | None:
    """Who made a call: one without Python frames was made by a thread of autograd, for DDP."""
    if call.frames:
        return origin(call.frames)
    return "ddp-backward" if call.op == "all_reduce" else None


def _restore_thread(call: Recorded, thread: PythonThread | None) -> PythonThread:
    """The thread as it was when it made the call: at the lines of the record, with the variables of its frames as they are now,
    without the counters of loops that it has entered, left or repeated since."""
    now = {(frame.file, frame.function): frame for frame in (thread.frames if thread is not None else ())}
    frames = tuple(_add_variables(frame, now.get((frame.file, frame.function))) for frame in call.frames)
    if thread is None:
        return PythonThread(tid=None, name=None, active=True, owns_gil=False, frames=frames)
    return replace(thread, frames=frames)


def _add_variables(frame: Frame, now: Frame | None) -> Frame:
    if now is None:
        return frame
    loops = {loop.line: loop for loop in (*frame.loops, *now.loops)}.values()
    moved = {name for loop in loops if _has_gone_on(loop, frame.line, now.line) for name in loop.counters}
    return replace(frame, locals=tuple(local for local in now.locals if local.name not in moved))


def _has_gone_on(loop: Loop, line: int, now: int) -> bool:
    """Whether a thread that was at `line` and is at `now` has entered, left or repeated a loop in between: then its counter has
    another value."""
    then_inside, now_inside = (loop.line <= at <= loop.end_line for at in (line, now))
    return then_inside != now_inside or (then_inside and now < line)
