"""The label and state of one rank, from all its clocks together: never from CPU alone."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hangdoc.phrases import duration
from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.evidence.kernel import how_it_ended, stopped_by
from hangdoc.reasoning.evidence.stack import Reading, frames_at, reading, user_frames
from hangdoc.reasoning.model.holds import (
    SHORTEST_TIMEOUT,
    Asleep,
    Elsewhere,
    ForOthers,
    Hold,
    OnNetwork,
    ReadsPipe,
    in_words,
)
from hangdoc.reasoning.model.rank import BUSY, State
from hangdoc.reasoning.ranks import locks, movement, operations, sleeps
from hangdoc.reasoning.ranks.counters import counters_moved
from hangdoc.reasoning.ranks.feeding import fetching
from hangdoc.reasoning.ranks.on_card import CardCall, find_card_call, works_on_card
from hangdoc.reasoning.ranks.standing import continues, standing_of
from hangdoc.snapshot import Connection, Frame, Holder, KernelThread, Process, PythonThread
from hangdoc.torch_facts import call_names, file_names

_CHILDREN = "its child processes are busy"
_MAY_BE_ENDED = (Asleep, Elsewhere, OnNetwork, ReadsPipe)
"""What a process may end that the wait itself does not show."""
_WAITS = {"collective": "in-collective", "p2p": "in-p2p", "rendezvous": "in-rendezvous", "store": "in-store"}
_PHASES = {
    "evaluate": "evaluating",
    "metric": "evaluating",
    "sample": "evaluating",
    "checkpoint": "checkpointing",
}


class Training(Struct, frozen=True, gc=False):
    """Where a rank trains."""

    thread: PythonThread | None = None
    """None if its stack could not be read."""
    read: Reading | None = None
    """What the lines of the thread say."""
    own: tuple[Frame, ...] = ()
    """Frames of the user's own code in it, innermost first."""
    kernel: KernelThread | None = None
    """The same thread, as the kernel counts it; the main thread if its stack could not be read."""
    card: CardCall | None = None
    """The call in which its card waits; then `thread` is where it made that call."""


def training(process: Process) -> Training:
    """Where a process that is a rank trains."""
    thread = operations.training_thread(process) if process.state not in "ZX" else None
    kernel, read = movement.kernel_thread(process, thread), reading(thread) if thread is not None else None
    card = find_card_call(process, thread, read) if process.state not in "ZX" else None
    if card is not None and card.thread is not None:
        thread, read = card.thread, reading(card.thread)
    if thread is None or read is None:
        return Training(kernel=kernel, card=card)
    return Training(thread, read, frames_at(thread.frames, read.own), kernel, card)


def state_of(
    process: Process,
    trains: Training,
    helpers: Sequence[Process],
    pairs: Iterable[Connection],
    others: Iterable[Connection] = (),
) -> State:
    """The state of a process that is a rank; `pairs` are its connections to other ranks, `others` those of its process tree to
    the world."""
    if process.state in "ZX":
        return State("dead", "zombie" if process.state == "Z" else "exited", how_it_ended(process))
    thread, kernel = trains.thread, trains.kernel
    share = movement.share_of(process, kernel)
    if (stopped := stopped_by(process)) is not None:
        return State("blocked", "stopped", stopped.why, training_share=share, hold=stopped)
    if (card := trains.card) is not None:
        state = "in-p2p" if card.wait.kind == "p2p" else "in-collective"
        return State("blocked", state, card.why, wait=card.wait, training_share=share)
    if thread is None or trains.read is None:
        return _without_stack(process, share, pairs)
    if process.deep_seconds_ago:  # where it was then says nothing of where it is now, but that it is not there any more
        why = (
            f"it has run since its stack was read {process.deep_seconds_ago:.0f} s ago, and may be at another line now"
        )
        return State("computing", _working(process, thread), why, moving=True, training_share=share)
    return _with_stack(process, thread, trains.read, trains.own, kernel, share, helpers, pairs, others)


def _without_stack(process: Process, share: float | None, pairs: Iterable[Connection]) -> State:
    if (counted := movement.own_counts(process)) is not None:
        beacon = known.beacon(process)
        state = _PHASES.get(beacon.phase, "computing") if beacon is not None else "computing"
        return State("computing", state, counted, moving=True, counters_moved=True, training_share=share)
    moved = counters_moved(process) or movement.transferred(process, pairs)
    # A rank that waits for its card is as busy as one that works.
    if share is not None and share >= BUSY and (moved or not known.uses_nccl(process)):
        why = f"uses {share:.0%} of a core; its stack could not be read"
        return State("computing", "computing", why, moving=True, training_share=share)
    return State(None, "unknown", "its stack could not be read", moving=moved, training_share=share)


def _with_stack(
    process: Process,
    thread: PythonThread,
    read: Reading,
    own: tuple[Frame, ...],
    kernel: KernelThread | None,
    share: float | None,
    helpers: Sequence[Process],
    pairs: Iterable[Connection],
    others: Iterable[Connection],
) -> State:
    """The state of a rank whose stack was read and that can run."""
    wait = operations.wait_of(process, thread, read)
    # What another thread counts is no progress of a main thread that waits: a monitor thread counts in every hang.
    attempts = sleeps.polls_for_files(thread, kernel)
    among = own if wait is not None and operations.is_main(thread, process.pid) else None
    counters = counters_moved(process, among, attempts)
    same, bytes_moved = movement.same_place(process, thread, read), movement.transferred(process, pairs)
    moved = counters or not same or bytes_moved
    base = State("blocked", "unknown", "", None, moved, counters, training_share=share)
    busy = thread.active if share is None else share >= BUSY
    spun = busy and same and not counters and not works_on_card(process, thread)
    if spun and (spin := operations.gpu_spin(process, thread)) is not None:
        return replace(base, state="in-collective", why="busy-waits in the GPU driver", wait=spin, moving=False)
    if not (busy or moved) and (lock := locks.held_by_the_gil(process, thread, kernel)) is not None:
        return replace(base, state="waiting-lock", why=lock.what, hold=lock)
    if wait is not None and not busy:
        if counters or not same or (bytes_moved and movement.wakes(process, kernel)):
            return replace(base, label="computing", state="computing", why="its loop is making progress", moving=True)
        if wait.operation.op in call_names.RPC_MEETINGS.values() and movement.serves_requests(process):
            why = "its threads do what other ranks request"  # until all ranks have come to the end
            return replace(base, label="computing", state="computing", why=why, moving=True, work=why)
        return replace(base, state=_WAITS[wait.kind], why=_idle(share), wait=wait)
    working = replace(base, label="computing", moving=True, work=movement.moved_bytes(process, helpers, others))
    if same and not counters and works_on_card(process, thread):
        why = "its card executes kernels"
        return replace(working, state=_working(process, thread), why=why, work=working.work or why)
    if busy:
        why, work = f"uses {share:.0%} of a core" if share else "active", working.work or _imports(thread.frames)
        return replace(working, state=_working(process, thread), why=why, work=work)
    if not same or (counters and counters_moved(process, frames_at(thread.frames, read.program), attempts)):
        why = "its counters changed" if same else "its stack changed"
        work = working.work or _imports(thread.frames) or _threads(process, thread)
        return replace(working, state=_working(process, thread), why=why, work=work)
    return _standing(process, thread, kernel, helpers, (*pairs, *others), base, working)


def _standing(
    process: Process,
    thread: PythonThread,
    kernel: KernelThread | None,
    helpers: Sequence[Process],
    connections: Sequence[Connection],
    base: State,
    working: State,
) -> State:
    """The state of a rank whose own thread is not making progress and is in no operation: others may work for it."""
    children = movement.children_at_work(process, helpers)
    if children and any(f in frame.file for frame in thread.frames for f in file_names.COMPILER):
        return replace(working, state="compiling", why="its compiler processes are busy", work=None)
    state, why, hold = standing_of(process, thread, kernel, helpers, connections)
    if state == "waiting-input" or hold.ends == "never":  # other work of its processes does not help
        return replace(base, state=state, why=why, hold=hold)
    if working.work is not None:
        return replace(working, state=_working(process, thread), why=working.work)
    if base.counters_moved:
        why = "counters of its other threads changed"
        return replace(working, state=_working(process, thread), why=why, work=_threads(process, thread))
    if children and state == "waiting-data":
        why = "its dataloader workers are busy"
        return replace(working, state="loading-data", why=why, work=why)
    if state == "waiting-child" and movement.children_transfer(helpers):
        return replace(working, state="computing", why=_CHILDREN, work=_CHILDREN)
    if children:  # a pool's results, a build, a tokenizer: however it waits for them
        return replace(working, state="computing", why=_CHILDREN, work=_CHILDREN)
    if isinstance(hold, Elsewhere) and (work := _threads(process, thread)) is not None:  # a future, a queue, a lock
        return replace(working, state="computing", why=work, work=work)
    if isinstance(hold, Elsewhere | ReadsPipe) and (soon := continues(process, thread, helpers)) is not None:
        why, hold = f"{why}; {soon}", replace(hold, ends="by-itself")
    elif hold.ends == "unknown" and isinstance(hold, _MAY_BE_ENDED) and (others := in_words(process.others_at_work)):
        sleeps_now = kernel is not None and kernel.sleep_seconds is not None
        how = "belongs to the same job" if sleeps_now else "is connected with it"
        why, hold = f"{why}; {others} {how}", replace(hold, ends="by-itself")
    elif isinstance(hold, Asleep) and hold.polls and (sleepers := _asleep(process)):
        seconds, one = max(sleepers, key=lambda other: other[0])
        why = f"{why}; {in_words([one])} of the same job sleeps for {duration(seconds)}, and may then end it"
        hold = replace(hold, period_of_others=seconds)
    if state == "waiting-child" or _polls_a_child(hold, helpers):
        hold = replace(hold, period=sleeps.longest(helpers))
    elif isinstance(hold, Elsewhere) and (period := sleeps.longest_of_others(process, thread)) is not None:
        why, hold = (
            f"{why}; another thread sleeps for {duration(period)}, and may then end it",
            replace(hold, period=period),
        )
    return replace(base, state=state, why=why, hold=hold)


def _asleep(process: Process) -> list[tuple[float, Holder]]:
    """The processes of its job that sleep, and for how many seconds at a time."""
    return [(seconds, one) for one in process.others_asleep for seconds in one.sleeps if seconds <= SHORTEST_TIMEOUT]


def _polls_a_child(hold: Hold, helpers: Sequence[Process]) -> bool:
    """Whether it asks a child process for the results of others, like the manager of a pool: any of them may give one."""
    children = {one.pid for one in helpers}
    return isinstance(hold, ForOthers) and any(one.replies and one.pid in children for one in hold.holders or ())


def _threads(process: Process, thread: PythonThread) -> str | None:
    return "its other threads are busy" if movement.threads_at_work(process, thread) else None


def _idle(share: float | None) -> str:
    return "at the same line in both stacks" + (f", {share:.1%} of a core" if share is not None else "")


def _outside_imports(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames that do not belong to the import of a package's module: torch imports its compiler when it is first used."""
    for at in range(len(frames) - 2, -1, -1):
        body, caller = frames[at], frames[at + 1]
        if body.library and body.function == "<module>" and "importlib" in caller.file:
            return frames[at + 1 :]
    return frames


def _imports(frames: tuple[Frame, ...]) -> str | None:
    return "it imports modules" if _outside_imports(frames) is not frames else None


def _working(process: Process, thread: PythonThread) -> str:
    """What kind of work a busy stack is in, by what the trainer publishes, by torch's files, then by what people call
    such functions."""
    frames = _outside_imports(thread.frames)
    beacon = known.beacon(process)
    if beacon is not None and (published := _PHASES.get(beacon.phase)):
        return published
    if any(part in f.file for f in frames for part in file_names.COMPILING):
        return "compiling"
    if any(part in f.file for f in frames for part in file_names.SAVING):
        return "checkpointing"
    if fetching(thread) or any(f.file.endswith(file_names.DATALOADER) for f in frames):
        return "loading-data"
    names = [file_names.bare_name(f.function).lower() for f in user_frames(thread)]
    if any("checkpoint" in name for name in names):
        return "checkpointing"
    if any(word in name for name in names for word in ("eval", "validat", "generate")):
        return "evaluating"
    return "computing"
