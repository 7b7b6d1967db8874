"""The label and state of one rank, from all its clocks together: never from CPU alone. What a rank that is not blocked is doing
decides between waiting and hung."""

from msgspec import Struct
from msgspec.structs import replace

from hangdoc.phrases import duration
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import how_it_ended, stopped_by
from hangdoc.reasoning.evidence.stack import Reading, frames_at, reading, user_frames
from hangdoc.reasoning.model.holds import Asleep, Busy, Elsewhere, Hold, OnNetwork, Starves, Unreadable, Works
from hangdoc.reasoning.model.rank import BUSY, WAITING_IN, AtRest, Rank, State
from hangdoc.reasoning.ranks import iterators, locks, movement, operations, recorded, sleeps
from hangdoc.reasoning.ranks.counters import comes_on, counters_moved, goes_round
from hangdoc.reasoning.ranks.enders import with_end
from hangdoc.reasoning.ranks.loader import is_fetching, is_starving, is_worker
from hangdoc.reasoning.ranks.network_waits import find_peer
from hangdoc.reasoning.ranks.on_card import CardCall, find_card_call, works_on_card
from hangdoc.reasoning.ranks.thread_waits import find_wait
from hangdoc.reasoning.ranks.waiter import Surroundings, ThreadWait, Waiter
from hangdoc.reasoning.ranks.without_stack import find_rest
from hangdoc.snapshot import Clocks, FileBytes, Frame, KernelThread, Process, Progress, PythonThread, Stack
from hangdoc.torch_facts import call_names, file_names

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

    @property
    def outside_models(self) -> tuple[Frame, ...]:
        """Those of `own` that no module of torch has called: a loop in a forward goes over layers."""
        if self.thread is None or self.read is None:
            return self.own
        frames = self.thread.frames
        calls = (at for at, frame in enumerate(frames) if file_names.MODULE_CALL.is_at(frame.file, frame.function))
        model = max(calls, default=-1)
        return frames_at(frames, tuple(at for at in self.read.own if at > model))


def find_training(process: Process) -> Training:
    """Where a process that is a rank trains."""
    thread = operations.find_training_thread(process) if process.state not in "ZX" else None
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
    around: Surroundings,
) -> State:
    """The state of a process that is a rank."""
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
        return _judge_without_stack(process, kernel, share, around)
    if process.deep_seconds_ago:  # where it was then says nothing of where it is now, but that it is not there any more
        why = (
            f"it has run since its stack was read {process.deep_seconds_ago:.0f} s ago, and may be at another line now"
        )
        return State("computing", _name_work(process, thread), why, moving=True, training_share=share)
    return _judge_stack(process, thread, trains.read, trains.own, kernel, share, around)


def _judge_without_stack(
    process: Process, kernel: KernelThread | None, share: float | None, around: Surroundings
) -> State:
    if (counted := movement.own_counts(process)) is not None:
        beacon = observed.beacon(process)
        seen = "loading-data" if iterators.asks_for_batch(process) else "computing"
        state = _PHASES.get(beacon.phase, seen) if beacon is not None else seen
        passing = operations.find_passing(process) if state == "computing" else None
        return State(
            "computing", state, counted, moving=True, counters_moved=True, training_share=share, passing=passing
        )
    if (before := movement.counted_before(process)) is not None:
        return State("computing", "computing", before, moving=True, training_share=share)
    moved = counters_moved(process) or movement.has_transferred(process, around.pairs)
    # A rank that waits for its card is as busy as one that works.
    delay = movement.describe_delay(process, kernel)
    busy = share is not None and share >= BUSY
    if (busy or delay) and (moved or not observed.uses_nccl(process)):
        why = f"{delay or f'uses {share:.0%} of a core'}; its stack could not be read"
        # Who asks in a loop whether a call is done is as busy as who works. A stack that was not to be read may come later.
        hold = Unreadable() if not moved and observed.why_stack_is_missing(process) is not None else None
        return State("computing", "computing", why, moving=True, training_share=share, hold=hold)
    if not moved and kernel is not None and (rest := find_rest(process, kernel, around)) is not None:
        return State("blocked", rest.state, rest.why, rest.wait, training_share=share, hold=rest.hold)
    return State(None, "unknown", "its stack could not be read", moving=moved, training_share=share)


def _judge_stack(
    process: Process,
    thread: PythonThread,
    read: Reading,
    own: tuple[Frame, ...],
    kernel: KernelThread | None,
    share: float | None,
    around: Surroundings,
) -> State:
    """The state of a rank whose stack was read and that can run."""
    wait = operations.find_operation(process, thread, read)
    # What another thread counts is no progress of a main thread that waits: a monitor thread counts in every hang.
    attempts = sleeps.polls_for_files(thread, kernel)
    among = own if wait is not None and operations.is_main(thread, process.pid) else None
    stood = kernel is not None and movement.rests_itself(kernel)
    if wait is not None and read.own[:1] != (0,) and recorded.was_in_call(process, wait, stood=stood):
        among = ()  # whatever its functions share with other threads: it has run none of their lines
    counters = counters_moved(process, among, attempts)
    same, bytes_moved = (
        movement.is_at_same_lines(process, thread, read),
        movement.has_transferred(process, around.pairs),
    )
    moved = counters or not same or bytes_moved
    base = State("blocked", "unknown", "", None, moved, counters, training_share=share)
    busy = thread.active if share is None else share >= BUSY
    delay = movement.describe_delay(process, kernel)
    spun = busy and same and not counters and not works_on_card(process, thread)
    if spun and (spin := operations.find_gpu_spin(process, thread)) is not None:
        return replace(base, state="in-collective", why="busy-waits in the GPU driver", wait=spin, moving=False)
    if not (busy or moved or delay) and (lock := locks.find_gil_wait(process, thread, kernel)) is not None:
        return replace(base, state="waiting-lock", why=lock.what, hold=lock)
    if wait is not None and not busy:
        if counters or not same or (bytes_moved and movement.keeps_waking(process, kernel)):
            passing = wait if wait.operation.seq is not None else None
            why = "its loop is making progress"
            return replace(base, label="computing", state="computing", why=why, moving=True, passing=passing)
        if wait.operation.op in call_names.RPC_MEETINGS.values() and movement.serves_requests(process):
            why = "its threads do what other ranks request"  # until all ranks have come to the end
            return replace(base, label="computing", state="computing", why=why, moving=True, work=why)
        return replace(base, state=WAITING_IN[wait.kind], why=_describe_idleness(share), wait=wait)
    moved_bytes = movement.describe_moved_bytes(
        process, around.helpers, around.others, polls=sleeps.is_polling(process, thread, kernel)
    )
    peer = find_peer(Waiter(process, thread, kernel, around.helpers, around.others))
    asks = peer if isinstance(peer, OnNetwork) and peer.peer is not None and not peer.serves else None
    working = replace(base, label="computing", moving=True, work=moved_bytes, asks=asks)
    if same and not counters and works_on_card(process, thread):
        why = "its card executes kernels"
        return replace(working, state=_name_work(process, thread), why=why, work=working.work or why)
    if share is None and busy and not (moved or delay or working.work):
        # A stack of one moment does not tell a thread that works from one that just asks again whether its call is done.
        why = "its CPU time could not be measured, and nothing else changed"
        return State(None, "unknown", why, hold=Unreadable())
    if busy or delay:
        why, work = (
            delay or (f"uses {share:.0%} of a core" if share else "active"),
            working.work or _describe_imports(thread.frames),
        )
        return replace(working, state=_name_work(process, thread), why=why, work=work)
    waiter = Waiter(process, thread, kernel, around.helpers, (*around.pairs, *around.others), engine=around.engine)
    of_its_own = counters and counters_moved(process, frames_at(thread.frames, read.program), attempts)
    if not same or of_its_own:  # one that counts between its sleeps does the work itself
        why = "its counters changed" if same else "its stack changed"
        others = _describe_busy_threads(process, thread)
        work = working.work or _describe_imports(thread.frames) or others
        at_rest = _find_long_sleep(process, thread) if others is None else None
        return replace(working, state=_name_work(process, thread), why=why, work=work, at_rest=at_rest)
    return _judge_standing_thread(waiter, around, base, working)


def _judge_standing_thread(
    waiter: Waiter,
    around: Surroundings,
    base: State,
    working: State,
) -> State:
    """The state of a rank whose own thread is not making progress and is in no operation: others may work for it."""
    process, thread, kernel, helpers = waiter.process, waiter.thread, waiter.kernel, around.helpers
    children = movement.children_at_work(process, helpers)
    if children and any(f in frame.file for frame in thread.frames for f in file_names.COMPILER):
        return replace(working, state="compiling", why="its compiler processes are busy", work=None)
    if (between := sleeps.find_work_between_sleeps(process, thread, kernel, around.clocks)) is not None:
        return replace(working, state=_name_work(process, thread), why=between, work=working.work or between)
    state, why, hold = wait = find_wait(waiter)
    working = replace(working, at_rest=_find_at_rest(waiter, wait))
    if state == "waiting-input" or hold.ends == "never":
        # Other work of its processes does not help. Its engine may show more of the reason.
        state, why, hold = with_end(waiter, wait)
        return replace(base, state=state, why=why, hold=hold)
    if working.work is not None:
        return replace(working, state=_name_work(process, thread), why=working.work)
    if base.counters_moved:
        why = "counters of its other threads changed"
        return replace(
            working, state=_name_work(process, thread), why=why, work=_describe_busy_threads(process, thread)
        )
    if children and state == "waiting-data":
        why = "its dataloader workers are busy"
        return replace(working, state="loading-data", why=why, work=why)
    awaited = _list_awaited_helpers(waiter, state)
    if (read := movement.describe_read_file(awaited)) is not None:
        why = f"a process that it waits for has {read}"
        return replace(working, state=_name_work(process, thread), why=why, work=why)
    if state == "waiting-child" and movement.children_transfer(awaited):
        why = "its child processes read or write files"
        return replace(working, state="computing", why=why, work=why)
    if children:  # a pool's results, a build, a tokenizer: however it waits for them
        return replace(working, state="computing", why=movement.CHILDREN_BUSY, work=movement.CHILDREN_BUSY)
    # It waits for a future, a queue or a lock.
    if isinstance(hold, Elsewhere) and (work := _describe_busy_threads(process, thread)) is not None:
        return replace(working, state="computing", why=work, work=work)
    state, why, hold = with_end(waiter, wait)
    return replace(base, state=state, why=why, hold=hold)


def _list_awaited_helpers(waiter: Waiter, state: str) -> list[Process]:
    """The helpers for which a thread may wait: those at the other end of what it waits at with their child processes; or, if that
    shows none, all of one that waits for data or for child processes. A service that stores logs reads them in every hang."""
    files = waiter.kernel.files if waiter.kernel is not None else ()
    awaited = {holder.pid for file in files for holder in waiter.other_holders(file)}
    awaited &= {helper.pid for helper in waiter.helpers}
    if not awaited and state == "waiting-data":
        awaited = {helper.pid for helper in waiter.helpers if is_worker(helper)}
    if not awaited:
        return list(waiter.helpers) if state == "waiting-child" else []
    while below := {helper.pid for helper in waiter.helpers if helper.ppid in awaited} - awaited:
        awaited |= below
    return [helper for helper in waiter.helpers if helper.pid in awaited]


def _find_long_sleep(process: Process, thread: PythonThread) -> AtRest | None:
    """The sleep in which a thread that moved is now, at a line of the user's code."""
    seconds = sleeps.find_long_sleep(process, thread)
    return AtRest("sleeping", f"in a sleep of {duration(seconds)}") if seconds is not None else None


def _find_at_rest(waiter: Waiter, wait: ThreadWait) -> AtRest | None:
    """The wait of a thread that did not run in the window, if no thread of its process computes. None for one that waits for its
    card or its child processes: their work is its own."""
    process, kernel = waiter.process, waiter.kernel
    if kernel is None or kernel.voluntary_switches is None or not isinstance(process.clocks, Clocks):
        return None
    if not movement.rests(process, kernel) or works_on_card(process, waiter.thread):
        return None
    by_children = wait.state == "waiting-child" or movement.children_at_work(process, waiter.helpers)
    unknown = wait.state == "sleeping" and not isinstance(wait.hold, Asleep)
    if by_children or unknown:
        return None
    return AtRest(wait.state, wait.why)


def _describe_busy_threads(process: Process, thread: PythonThread) -> str | None:
    return "its other threads are busy" if movement.threads_at_work(process, thread) else None


def _describe_idleness(share: float | None) -> str:
    return "at the same line in both stacks" + (f", {share:.1%} of a core" if share is not None else "")


def _leave_out_imports(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames that do not belong to the import of a package's module: torch imports its compiler when it is first used."""
    for at in range(len(frames) - 2, -1, -1):
        body, caller = frames[at], frames[at + 1]
        if body.library and body.function == "<module>" and "importlib" in caller.file:
            return frames[at + 1 :]
    return frames


def _describe_imports(frames: tuple[Frame, ...]) -> str | None:
    return "it imports modules" if _leave_out_imports(frames) is not frames else None


def _name_work(process: Process, thread: PythonThread) -> str:
    """What kind of work a busy stack is in, by what the trainer publishes, by torch's files, then by what people call
    such functions."""
    frames = _leave_out_imports(thread.frames)
    beacon = observed.beacon(process)
    if beacon is not None and (published := _PHASES.get(beacon.phase)):
        return published
    if any(part in f.file for f in frames for part in file_names.COMPILING):
        return "compiling"
    if any(part in f.file for f in frames for part in file_names.SAVING):
        return "checkpointing"
    if is_fetching(thread) or any(f.file.endswith(file_names.DATALOADER) for f in frames):
        return "loading-data"
    names = [file_names.bare_name(f.function).lower() for f in user_frames(thread)]
    if any("checkpoint" in name for name in names):
        return "checkpointing"
    if any(word in name for name in names for word in ("eval", "validat", "generate")):
        return "evaluating"
    return "computing"


_LOADS = "it loads data"
_LOADS_NOTHING = "it loads data, but while it was observed, no element came and it was not seen to read"
_BY_TORCH = ("compiling", "checkpointing")
_LONG = {
    "evaluating": "it evaluates",
    "checkpointing": "it writes a checkpoint",
    "compiling": "it compiles",
    "loading-data": _LOADS,
}


def find_announced(rank: Rank) -> Works | None:
    """A phase that the trainer announced, with a patience that has not run out."""
    beacon = observed.beacon(rank.process)
    if beacon is None or beacon.patience_seconds is None or beacon.age_seconds > beacon.patience_seconds:
        return None
    if rank.waits or rank.state in ("stopped", "waiting-input"):
        return None
    age, patience = duration(beacon.age_seconds), duration(beacon.patience_seconds)
    return Works(what=f"it announced phase {beacon.phase} {age} ago, with a patience of {patience}")


def find_work(rank: Rank) -> Hold:
    """What a computing rank is doing, for the ranks that wait for it.

    A rank that uses CPU or transfers bytes is working until the opposite is shown: that it runs a loop that has no end, counts
    nothing, and yields nothing to the loop around it.
    """
    process, thread = rank.process, rank.thread
    if process is not None and thread is None and (own := movement.own_counts(process)) is not None:
        return Works(what=own, certain=True)
    if process is not None and (before := movement.counted_before(process)) is not None:
        return Works(what=before)
    if process is None or thread is None or _is_unclear(rank, process):
        return Unreadable()
    if process.deep_seconds_ago:  # never more than that: an old stack is no evidence against a rank
        return Works(what=rank.why)
    counted = comes_on(process, thread)
    what = rank.work or ("its counters changed" if counted else _LONG.get(rank.state))
    fetches = is_fetching(thread)
    beside = rank.state in _BY_TORCH or (rank.work is not None and not fetches)
    # Another thread of the program may make what a thread that fetches data goes round for.
    beside = beside or (fetches and movement.has_other_user_thread_run(process, thread))
    if not beside and not movement.has_read_files(process) and goes_round(process, thread):
        return Starves() if is_starving(process, thread) else Busy()
    if what is not None:
        if what == _LOADS and (received := iterators.describe_received(process)) is not None:
            return Works(what=received, certain=True)
        unread = isinstance(process.files, FileBytes) and not movement.has_read_files(process)
        nothing_came = what == _LOADS and unread and is_starving(process, thread)
        return Works(what=_LOADS_NOTHING if nothing_came else what, certain=counted)
    seen = isinstance(process.progress, Progress) and all(frame.source for frame in rank.own)
    if rank.counters_moved or not seen:
        return Busy(ends="by-itself" if rank.counters_moved else "unknown")
    if (delay := movement.describe_delay(process, movement.kernel_thread(process, thread))) is not None:
        return Works(what=delay)
    share = rank.training_share or 0.0
    return Works(what=f"it is working ({share:.0%} of a core)") if share >= BUSY else Busy()


def _is_unclear(rank: Rank, process: Process) -> bool:
    """Whether a rank is in its loader, and two stacks and its counters are missing that would show whether batches arrive."""
    seen = isinstance(process.stack_before, Stack) and isinstance(process.progress, Progress)
    return rank.state == "loading-data" and not seen
