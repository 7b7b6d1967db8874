"""The phrases that findings are made of: which rank is waiting, where, in what, and for how long."""

from collections.abc import Iterable
from functools import lru_cache

from hangdoc.diagnosis import Evidence, Operation
from hangdoc.phrases import also as also
from hangdoc.phrases import amount, caller, duration
from hangdoc.phrases import do as do
from hangdoc.phrases import ranks as ranks
from hangdoc.phrases import values_by_rank as values_by_rank
from hangdoc.phrases import verb as verb
from hangdoc.program import package_of
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import innermost_user_frame, short
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.holds import (
    Asleep,
    AtFileLock,
    AtSharedLock,
    BlocksItsChild,
    ChildAtLock,
    ChildStopped,
    Elsewhere,
    EngineOrphaned,
    EngineStopped,
    GetsRequests,
    OnNetwork,
    ProgramOver,
    ReadsPipe,
    Serves,
    describe_holders,
)
from hangdoc.reasoning.model.kinds import Standstill
from hangdoc.reasoning.model.rank import BUSY, Class, Rank, Wait, numbers_of, ranks_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.loader import list_asking
from hangdoc.reasoning.text.call_words import recorded_waits
from hangdoc.reasoning.text.next_steps import WithRemedy
from hangdoc.snapshot import Connection, Counter, Host, Process, Unavailable
from hangdoc.torch_facts import call_names
from hangdoc.torch_facts.file_names import Function, bare_name

_SIGKILL = 9
_AT_EXIT = Function("/multiprocessing/util.py", "_exit_function")
"""Where Python waits for child processes after the end of the program."""
_NOT_NEEDED = "not needed"
"""Why C++ frames were not read that would show nothing more."""
_MORE_MEMORY = (
    "Give the control group (the container or pod) more memory, or use less: smaller batches, fewer dataloader workers. Then "
    "restart the run."
)
_STATES = {
    "computing": "computing",
    "loading-data": "loading data",
    "compiling": "compiling",
    "checkpointing": "writing a checkpoint",
    "evaluating": "evaluating",
    "waiting-data": "waiting for the next batch",
    "waiting-lock": "waiting for a lock",
    "waiting-input": "waiting for user input",
    "waiting-io": "stuck in file or pipe I/O",
    "waiting-child": "waiting for a child process",
    "sleeping": "sleeping",
    "stopped": "stopped",
    "zombie": "dead (zombie)",
    "exited": "dead (exited)",
    "missing": "dead (process gone)",
}


# --- the number of ranks -----------------------------------------------------------------------------------------------


def are(which: Iterable[int]) -> str:
    """`rank 3 is`, `ranks 0-2 are`."""
    return do(which, "is", "are")


def have(which: Iterable[int]) -> str:
    """`rank 3 has`, `ranks 0-2 have`."""
    return do(which, "has", "have")


def be(which: Iterable[int]) -> str:
    """`is` or `are`, by the number of ranks."""
    return verb(which, "is", "are")


def them(which: Iterable[int]) -> str:
    """`it` or `them`, by the number of ranks."""
    return verb(which, "it", "them")


# --- what a rank is doing ----------------------------------------------------------------------------------------------


def place(rank: Rank) -> str:
    """Where a rank is in the user's code, with the source line; or, if it waits for another of its threads, where that is."""
    other = rank.hold.thread if rank.hold is not None else None
    if other is not None and (frame := innermost_user_frame(other)) is not None:
        return f"{_at(short(frame.file), frame.line, frame.source)}, in its thread {other.name or other.tid}"
    if rank.where is None:
        frames = rank.thread.frames if rank.thread is not None else ()
        ends = any(_AT_EXIT.is_at(frame.file, frame.function) for frame in frames)
        return "at the exit of its program" if ends else "at an unknown line"
    return _at(rank.where.file, rank.where.line, rank.where.source)


def _at(file: str, line: int, source: str | None) -> str:
    return f"at {file}:{line}" + (f" `{source}`" if source else "")


_LOCKS: dict[type, str] = {AtFileLock: "at a file lock", AtSharedLock: "at a lock in shared memory"}


def operation(rank: Rank) -> str:
    """The operation that a rank waits in, by torch's name."""
    return _operation(rank.wait.kind, rank.wait.operation, _worker(rank.wait)) if rank.wait is not None else rank.state


def _in_what(rank: Rank) -> str:
    """`in all_reduce`, or at what else a rank waits for another one."""
    return _LOCKS.get(type(rank.hold), f"in {operation(rank)}") if rank.wait is None else f"in {operation(rank)}"


@lru_cache(4096)  # there are far fewer operations than ranks
def _operation(kind: str, op: Operation, worker: str | None = None) -> str:
    text = "store.wait" if kind == "store" and op.op == "wait" else "a collective" if op.op == "wait" else op.op
    if op.peer is not None:
        text += f" {'to' if 'send' in op.op or op.op in call_names.RPC_CALLS else 'from'} rank {op.peer}"
    elif worker is not None:
        text += f" to {worker}"
    text += op.of_group
    return text + (f" ({caller(op.origin)})" if op.origin not in (None, "user", "store") else "")


def _worker(wait: Wait) -> str | None:
    """The worker that an RPC goes to, if it is not a peer: `worker 'server' (rank 0)`."""
    rank = "" if wait.answered_by is None else f" (rank {wait.answered_by})"
    return None if wait.asked is None else f"worker '{wait.asked}'{rank}"


def doing(rank: Rank) -> str:
    """What a rank is doing, as a phrase that follows `is` or `are`."""
    if rank.wait is not None:
        return f"waiting in {operation(rank)}"
    match rank.hold:
        case (
            Asleep()
            | AtSharedLock()
            | ChildAtLock()
            | ChildStopped()
            | EngineOrphaned()
            | EngineStopped()
            | GetsRequests()
            | OnNetwork()
            | Serves()
        ):
            return str(rank.hold)
        case BlocksItsChild():
            return rank.why
        case Elsewhere(what=str(what)):
            return what
        case ReadsPipe(holders=writers, fifo=fifo) if writers is not None or fifo is not None:
            who = describe_holders(writers or ()) or (
                "no process that hangdoc sees" if writers is None else "no other process"
            )
            return f"waiting for data from {fifo or 'a pipe'} that {who} can write to"
        case AtFileLock(path=path, holders=holders):
            held = (
                f" (held by {describe_holders(holders)})"
                if holders
                else " (held by no process)"
                if holders is not None
                else ""
            )
            return f"waiting for a lock on {path}{held}"
    if rank.at_rest is not None and rank.state == "computing":
        return rank.at_rest.why
    if (
        rank.state == "computing"
        and rank.work is not None
        and rank.training_share is not None
        and rank.training_share < BUSY
    ):
        # Others compute for it, or it waits for bytes that come.
        return f"in a request to {rank.asks.other_end}" if rank.asks is not None else "at work"
    return f"{_STATES.get(rank.state, f'in state {rank.state}')}{_for_whom(rank)}"


def _for_whom(rank: Rank) -> str:
    """` for evaluate()`: the function that asks for the data which a rank loads itself; empty for the program's own lines."""
    asking = list_asking(rank.thread)[:1] if rank.state == "loading-data" else []
    return "".join(f" for {bare_name(frame.function)}()" for frame in asking if frame.function != "<module>")


def doing_at(rank: Rank) -> str:
    """The same, and where."""
    if isinstance(rank.hold, ProgramOver):  # which is at no line of the user's
        return doing(rank)
    return f"{doing(rank)}{', last call' if rank.at_last_call else ''} {place(rank)}"


def launcher(process: Process) -> str:
    """`torchrun (pid 7), started 48 s ago,`."""
    tool = process.launch.tool if process.launch is not None else "torchrun"
    return f"{tool} (pid {process.pid}), started {duration(process.started_seconds_ago)} ago,"


# --- who waits for whom ------------------------------------------------------------------------------------------------


def awaited(run: Run, blockage: Blockage) -> str:
    """Which ranks wait for the culprits, directly or indirectly, and what the culprits are doing instead."""
    blamed = set(blockage.culprits or numbers_of(blockage.awaited))
    first = blockage.awaited[0].first
    blocked = f"{are(blamed)} blocked in the same way, rank {first.rank} {doing_at(first)}"
    each_by_its_child = _names_its_child(first) and len(blamed) > 1
    if not blockage.waiting:
        what = blocked if each_by_its_child else f"{are(blamed)} {doing_at(first)}"
        return f"{what}, and no rank is making progress"
    direct = [alike for alike in blockage.waiting if run.waits is not None and run.waits.awaited_by(alike) & blamed]
    direct = direct or list(blockage.waiting)
    waited = _in_what(direct[0].first)
    nearest = set(numbers_of(alike for alike in direct if _in_what(alike.first) == waited))
    others = set(blockage.victims) - nearest
    peer = direct[0].first.wait.operation.peer if direct[0].first.wait is not None else None
    for_whom = f" for {ranks(blamed)}" if peer is None else ""  # `in recv from rank 2` names it
    if each_by_its_child:
        does = f"; {blocked}"
    elif peer is None or blamed == {peer}:
        does = f", which {be(blamed)} {doing_at(first)}"
    else:
        does = f"; {are(blamed)} {doing_at(first)}"
    return f"{are(nearest)} waiting {waited}{for_whom}{does}" + (
        f"; {are(others)} waiting indirectly" if others else ""
    )


def _names_its_child(rank: Rank) -> bool:
    return rank.hold is not None and rank.hold.names_its_child


def waiting_in(classes: Iterable[Class], whom: str = "") -> str:
    """`ranks 0-2 are waiting for rank 3 in barrier`. The operation is left out where it is not the same for all; empty for no
    rank."""
    classes = tuple(classes)
    return _waiting(set(numbers_of(classes)), classes, whom)


def and_victims(text: str, blockage: Blockage) -> str:
    """A text about the culprits, and which ranks wait for them."""
    return "; ".join(filter(None, (text, victims_wait(blockage))))


def victims_wait(blockage: Blockage) -> str:
    """`ranks 0-2 are waiting for it in barrier`; empty where no rank is waiting."""
    victims = set(blockage.victims)
    classes = [alike for alike in (*blockage.waiting, *blockage.awaited) if victims & set(alike.ranks)]
    return _waiting(victims, classes, them(blockage.blamed))


def _waiting(who: Iterable[int], classes: Iterable[Class], whom: str) -> str:
    what = {_in_what(alike.first) for alike in classes}
    text = f"{are(who)} waiting{f' for {whom}' if whom else ''}{f' {what.pop()}' if len(what) == 1 else ''}"
    return text if who else ""


# --- evidence ----------------------------------------------------------------------------------------------------------


def probe_of(rank: Rank) -> str:
    """The probe that shows where a rank is."""
    return "recorder" if rank.by_record else "stacks"


def stacks(run: Run, classes: Iterable[Class]) -> list[Evidence]:
    """What the stacks of some classes show, which keys and answers they wait for, and how long the run has exchanged no data."""
    classes = tuple(classes)
    return [*class_evidence(classes), *recorded_waits(run, classes), *standstill(run)]


def sides(run: Run, blockage: Blockage, between: Iterable[Evidence] = ()) -> list[Evidence]:
    """What the stacks show of the ranks that others wait for; what a rule adds about them; and the stacks of the others."""
    return [*class_evidence(blockage.awaited), *between, *stacks(run, blockage.waiting)]


def class_evidence(classes: Iterable[Class]) -> list[Evidence]:
    """One line for all ranks that do the same at the same line, the largest group first."""
    groups: dict[tuple[object, ...], list[Class]] = {}
    for alike in classes:
        rank = alike.first
        way = rank.wait.way if rank.wait is not None else ()
        groups.setdefault((rank.state, operation(rank), rank.where, way), []).append(alike)
    lines = []
    for group in sorted(groups.values(), key=lambda group: (-len(ranks_of(group)), group[0].ranks)):
        first = min(group, key=lambda alike: alike.ranks).first
        others = also(numbers_of(group), "likewise" if _names_its_child(first) else "also")
        elsewhere = [other[0].first for other in groups.values() if other is not group]
        path = _in_package(first, [other for other in elsewhere if other.where == first.where])
        maker = name_maker(first)
        made_by = f", within that call in {' > '.join(path)}" if path else f", made by {maker}" if maker else ""
        text = f"{doing_at(first)}{made_by}{_called_at(first)}{_inferred(first)}{_thread_at(first)}{others}"
        lines.append(Evidence(first.rank, probe_of(first), text))
        if asks := _asked_at(first):
            lines.append(Evidence(first.rank, "stacks", asks))
    return lines


def name_maker(rank: Rank) -> str | None:
    """`_run_train of lightning`: the function of a package that makes the call of a rank, where the user's line shows only what
    the package was asked for (`trainer.fit()`). None elsewhere."""
    if rank.wait is None or rank.thread is None or not rank.own:
        return None
    own_package = rank.wait.operation.op.partition(".")[0]  # `ray.train.report`
    made_by = (
        f for f in rank.thread.frames if f == rank.own[0] or package_of(f.file) not in (None, "torch", own_package)
    )
    frame = next(made_by, rank.own[0])
    function = frame.function.rpartition("<locals>.")[2]
    return f"{function} of {package_of(frame.file)}" if frame.library else None


def _called_at(rank: Rank) -> str:
    """The line that called the function in which a rank waits, other than that of the wait."""
    way = rank.wait.way if rank.wait is not None else ()
    caller = next((place for place in way[1:] if place != way[0]), None)
    return f", called at {short(caller[0])}:{caller[1]}" if caller is not None else ""


def _asked_at(rank: Rank) -> str:
    """Where the data is asked for that a rank loads itself, and the line that called that function."""
    asking = list_asking(rank.thread) if rank.state == "loading-data" else []
    places = [_at(short(frame.file), frame.line, frame.source) for frame in asking[:2]]
    return f"asks for that data {', called '.join(places)}" if places else ""


def _inferred(rank: Rank) -> str:
    """Why a finding is less sure: no frame of the stack is the operation's own."""
    wait = rank.wait
    if wait is None or wait.sure or wait.operation.op == "wait":
        return ""
    if wait.number is not None or wait.thread_at is not None:
        return ", by its record: its thread is busy and makes no other call"
    if rank.is_unread:
        return f": {rank.why}"
    return f", inferred from its line: {describe_unread_call(rank) or 'no frame shows the call'}"


def describe_unread_call(rank: Rank) -> str | None:
    """Why the frames that would show the call of a rank were not read; None if its call is sure, or if no more can be read."""
    wait, native = rank.wait, rank.process.native if rank.process is not None else None
    if wait is None or wait.sure or wait.operation.op == "wait" or rank.is_unread:
        return None
    if wait.number is not None or wait.thread_at is not None:
        return None
    return native.reason if isinstance(native, Unavailable) and native.reason != _NOT_NEEDED else None


def _thread_at(rank: Rank) -> str:
    """Where the thread of a rank is whose card waits in an earlier call."""
    at = rank.wait.thread_at if rank.wait is not None else None
    where = f"{rank.where.file}:{rank.where.line}" if rank.where is not None else None
    return f"; its thread is at {at}" if at is not None and at != where else ""


def _in_package(rank: Rank, others: Iterable[Rank]) -> list[str]:
    """Where ranks that are at one line of the user's differ in the package that it calls (`trainer.fit()`): the functions that
    only this rank is in, the outermost of each file, and the one that makes the call. Empty for no others."""
    theirs = {(frame.file, frame.function) for other in others for frame in other.program}
    outermost: dict[str, str] = {}
    for frame in reversed(rank.program) if theirs else ():
        if frame.library and (frame.file, frame.function) not in theirs and "<locals>" not in frame.function:
            outermost.setdefault(frame.file, frame.function)
    makes = rank.program[0].function if outermost and rank.program[0].library else ""
    return list(dict.fromkeys(filter(None, (*outermost.values(), makes))))


def cpu(rank: Rank, why: str) -> str:
    """`18% CPU`: what a whole rank used, where `why` does not say already what its thread did; else empty."""
    is_told = "CPU" in why or "core" in why
    return f"{rank.cpu_percent:.0f}% CPU" if rank.cpu_percent is not None and not is_told else ""


def stack_evidence(rank: Rank) -> Evidence:
    """What the stack of one rank shows, or its record if the stack was not read."""
    return Evidence(rank.rank, probe_of(rank), doing_at(rank) + _thread_at(rank))


def standstill(run: Run) -> list[Evidence]:
    """How long the waiting ranks have exchanged no data."""
    is_standstill = any(isinstance(blockage.kind, Standstill) for blockage in run.blockages)
    still = run.waiting or (run.classes if is_standstill else ())
    silent = [number for number in numbers_of(still) if run.ranks[number].silent_seconds is not None]
    if not silent or run.quiet_seconds is None:
        return []
    text = f"{have(silent)} exchanged no data with other ranks for {duration(run.quiet_seconds)}"
    return [Evidence(None, "sockets", text)]


def restarts(classes: Iterable[Class]) -> list[Evidence]:
    """That torchrun has started ranks again (TORCHELASTIC_RESTART_COUNT)."""
    processes = [alike.first.process for alike in classes]
    identities = [process.identity for process in processes if process is not None and process.identity is not None]
    last = max(identities, key=lambda who: who.restart_count or 0, default=None)
    if last is None or not last.restart_count:
        return []
    text = f"torchrun has started these ranks again after a failure (restart {last.restart_count})"
    return [Evidence(last.rank, "environment", text)]


def unseen(run: Run, which: Iterable[int]) -> list[Evidence]:
    """Why some of the first eight ranks were not observed."""
    return [Evidence(n, "processes", run.unseen[n].why) for n in tuple(which)[:8] if n in run.unseen]


def counters(rank: Rank) -> list[Evidence]:
    """The counters of a rank that changed during the observation, at most three."""
    moved = observed.moved_counters(rank.process)
    return [
        Evidence(
            rank.rank, "progress", f"`{c.name}` in {c.function}{_of_thread(rank, c)} went from {c.before} to {c.after}"
        )
        for c in sorted(moved, key=lambda c: (not c.looped, c.function, c.name))[:3]
    ]


def _of_thread(rank: Rank, counter: Counter) -> str:
    """` (thread collector)` for a counter of another thread than the one in which the rank trains; empty for its own."""
    at = (counter.file, counter.function)
    threads = observed.python_threads(rank.process) if rank.process is not None else ()
    running = [each for each in threads if any((frame.file, frame.function) == at for frame in each.frames)]
    if not running or any(rank.thread is not None and each.tid == rank.thread.tid for each in running):
        return ""
    return f" (thread {running[0].name or running[0].tid})"


def oom_kills(hosts: Iterable[Host], ended: Iterable[Process | None]) -> list[Evidence]:
    """OOM kills in the control groups of some hosts, if they may explain one of the ended processes: killed by SIGKILL, or gone
    without a trace (None)."""
    if not any(process is None or (process.exit_code or 0) & 0x7F == _SIGKILL for process in ended):
        return []
    groups = [group for host in hosts for group in host.control_groups if group.oom_kills]
    return [
        WithRemedy(
            None,
            "control groups",
            f"the OOM killer has killed {amount(group.oom_kills or 0, 'process', 'es')} in {group.path}",
            remedy=_MORE_MEMORY,
        )
        for group in groups
    ]


def ends(connection: Connection) -> str:
    """`10.0.0.1:40312 to 10.0.0.2:29500`."""
    c = connection
    return f"{c.local_address}:{c.local_port} to {c.remote_address}:{c.remote_port}"
