"""Ranks wait in an operation for a rank that is alive but stuck elsewhere.

## What it finds

Some ranks wait in an operation. The rank that they wait for is alive but in no
operation: it computes, sleeps, or waits for a lock, a child process, a queue
that nobody fills, or the network.

## Why it hangs

A collective needs every rank of its group. Until the last one arrives, the
others wait, by default for 30 minutes (NCCL: 10). The error after that does not
name the missing rank.

## Example

```python
if dist.get_rank() == 0:
    while not ready.exists():  # <- the file never appears
        time.sleep(1)
dist.barrier()
```

## Use instead

```python
if dist.get_rank() == 0:
    deadline = time.monotonic() + 600
    while not ready.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{ready} did not appear within 10 minutes")
        time.sleep(1)
# It names the missing rank. It needs Gloo.
gloo = dist.new_group(backend="gloo")
dist.monitored_barrier(gloo, timeout=timedelta(minutes=15))
```

If the work is meant to take that long, raise the timeout of the process group.

## How hangdoc knows

It follows the chain of waiting ranks to its end, and reads the stack, CPU use
and counters of the missing rank twice. If that rank waits for a lock on a file
that another rank holds while it waits in an operation, neither can continue, and
the rank that holds the lock is the culprit. Both are named if the missing rank waits
for a reply from a rank that waits in an operation. That one has no other thread that
could reply, and the kernel shows that it has not read the request. A thread of the
rank may wait for other processes: for a lock on a file or in shared memory, for a
pipe, for a reply on a TCP or Unix connection. Then hangdoc looks on this host for the processes
that can end the wait. If one of them, or a process connected with it, is at work,
the wait may end by itself. If one of them is blocked in sending data itself, hangdoc
follows the data to the process that does not read. Of torch's dumps (`--dumps`), it
knows only that the rank had made no further call. Which key of a TCPStore a rank
waits for is read from the memory of the process that serves the store. If the stack
of the missing rank could not be read, torch's record shows that it is behind, and its
system call, its clocks and its other threads must show that it waits for no other
rank; the score is then 50.

## When it can be wrong

The rank is busy with legitimate work that takes longer than the patience and
that no counter shows, or it waits for a server of another host that is. Then
raise `--patience`. Before the patience has passed, or while its counters change,
the finding is an `info`, not an error.

Any activity of the rank restarts the clock of the patience. If somebody gave the
call a timeout above torch's 30 minutes, the patience is longer in the same
proportion: 24 minutes for a timeout of a day. A rank that polls has five attempts,
and at most 10 minutes. A request with a timeout of its own has that time, and at most
10 minutes too. If another process of its job, or in its directory, sleeps (an
exporter that writes a file every minute), it has two of these sleeps. One that works
there may make the file, also if it belongs to another run, which is then named as
one. The evidence shows what ends the rank's loop. If a path must be gone (`while
os.path.exists(lock)`), another run counts only if it was started before the path was
made: a younger one did not make it. Where all threads wait for results of tasks, a
callback of a library may still give one.

## References

- torch.distributed.monitored_barrier:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Iterable, Sequence

from hangdoc import phrases, settings
from hangdoc.parse import was_removed
from hangdoc.phrases import duration, shorten, verb
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import reading
from hangdoc.reasoning.model.holds import (
    Asleep,
    AtFileLock,
    AtOwnQueue,
    AtOwnTasks,
    AtSharedLock,
    BetweenCalls,
    Busy,
    ChildAtLock,
    ChildStopped,
    Elsewhere,
    ForOthers,
    GetsRequests,
    Hold,
    InEventLoop,
    InStore,
    OnNetwork,
    ProgramOver,
    ReadsPipe,
    Serves,
    Starves,
    Unread,
    WaitsForSignal,
    describe_holders,
)
from hangdoc.reasoning.model.kinds import HoldsLock, OutsideBarrier, OwesReply
from hangdoc.reasoning.model.rank import Rank, numbers_of
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.rules.sentences import describe_poll, find_path_in_the_way, find_polled_path, is_polling_for_file
from hangdoc.reasoning.text import children, next_steps, words
from hangdoc.reasoning.text.call_words import recorded_waits
from hangdoc.snapshot import Environment, Holder, Receiver

_CHILD_ENDED = "Find out why the child process ended. Give the read a timeout, so that such an end becomes an error."
_FIND_SETTER = "Find out which process should set the key, and compare the names of the key on both sides."
_WAKE_LOOP = (
    "Find the task that should wake this loop. It may have ended by an exception that nobody has looked at: await every task, or "
    "run with PYTHONASYNCIODEBUG=1."
)
_PROGRAM_OVER = (
    "Look at its log: an exception may have ended the program, or it did not make the call. Make the thread a daemon, or end it "
    "with the program, so that the launcher notices the end of the rank."
)
_WITHOUT_REQUEST = (
    "Look at {its} log for an early return or an error that was caught, and at the code that sends the requests. All ranks must "
    "leave a request together, also after an error."
)
_WITHOUT_FUNCTION = (
    "{} left the training function, in which the others are. Look for an early return in it, and for an error in {its} log. "
    "All ranks must make the same calls until its end."
)
_FORKED = (
    "os.fork copies locks, but no threads: fork before other threads start, or start the child with subprocess or with "
    "multiprocessing's start method spawn."
)
_NOBODY_AT_QUEUE = (
    "No thread of the rank is at the other end of the queue. Look at the rank's log: if one was and has ended by an exception, "
    "hand that over to the thread that waits, so that the rank fails with it."
)
_CLIENT_DOES_NOT_READ = (
    "The client does not read what the rank sends. If it reads again, the rank continues. If you end it, the write fails in the "
    "rank, and an error that nothing catches there ends the run. Give the write a timeout, and catch its errors."
)
_FIND_READER = "Find out why nothing is taken from the queue"
_READER_ENDED = "The thread that takes from it may have ended by an exception, which the log shows."
_NO_THREAD_LEFT = (
    "No thread is left for the task. In a task of a pool, do not wait for another one of that pool: call the function itself, or "
    "give the inner tasks a pool of their own."
)
_REMEDIES: dict[type[Hold], str] = {
    AtOwnQueue: _NOBODY_AT_QUEUE,
    AtOwnTasks: _NO_THREAD_LEFT,
    InEventLoop: _WAKE_LOOP,
    InStore: _FIND_SETTER,
    ProgramOver: _PROGRAM_OVER,
}
"""For what needs no more than its kind."""
_ABANDONED: dict[type[Hold], str] = {
    AtSharedLock: "The processes that could release the lock have ended. Find out why.",
    ReadsPipe: "Find out why the processes that could write have ended. Unless the pipe is that of a queue, close its write end "
    "in the rank once the writer has it: the read then ends with the writer.",
}
"""Where nobody is left who could end the wait."""
_TO_FIND = {
    "lock": "which process keeps the lock",
    "condition": "why no process notifies the condition or sets the event",
    "barrier": "which process does not come to the barrier",
}
_TELLING = 2
"""Ranks with another value at least, so that one is odd."""
_OTHERS_PERCENT = 0.5
"""If a rank whose thread rests uses more of a core, that is what its other threads use."""
_BEFORE_REST = 5.0
"""Seconds between the last call or byte and the rest."""
_SHOWN_TAKERS = 3
_SHOWN_THREADS = 3
_EXPECTED = "is expected, raise --patience and the timeout of the process group."
_WAITS_TOO_LONG = f"If it waits or loops without a limit, add a timeout. If this work {_EXPECTED}"
_LOOPS_TOO_LONG = f"Give the loop a limit. If this wait {_EXPECTED}"


@about(
    Asleep,
    AtFileLock,
    AtOwnQueue,
    AtOwnTasks,
    AtSharedLock,
    ChildAtLock,
    ChildStopped,
    Elsewhere,
    GetsRequests,
    InEventLoop,
    InStore,
    OnNetwork,
    ProgramOver,
    ReadsPipe,
    Serves,
    Busy,
    Starves,
    WaitsForSignal,
    Unread,
)
def describe_rank(run: Run, blockage: Blockage, kind: Hold) -> Draft:
    first = blockage.awaited[0].first
    dead, inside = children.ended(run, first), children.places(run, first)
    holders = (kind.holders if isinstance(kind, AtFileLock | AtSharedLock | OnNetwork) else None) or ()
    sender = _find_sender(kind)
    because = f"; {dead[0].text}" if dead and isinstance(kind, ReadsPipe) else ""
    beyond = f"; beyond it, {_describe_last(sender)}" if sender is not None else ""
    stopped = [holder.pid for holder in holders if holder.state == "T"]
    holds = (run.ranks[number].hold for number in numbers_of(blockage.awaited) if number in run.ranks)
    stopped += [hold.pid for hold in holds if isinstance(hold, ChildStopped) and hold.by == "signal"]
    beside = [holder.pid for holder in holders] + [each.pid for each in (sender.sends_to if sender is not None else ())]
    between = [
        *recorded_waits(run, blockage.awaited),
        Evidence(first.rank, "cpu", _progress(first, kind, blockage.age_seconds or 0.0)),
        *describe_poll(first, kind),
        *_own_paths(run, first, kind),
        *_chain(first, sender),
        *_missing_threads(run, first, kind),
        *(Evidence(first.rank, "stacks", f"thread {text}") for text in _list_threads(kind)),
        *_describe_own_enders(run, blockage, kind),
        *_arrival(first, blockage),
        *dead,
        *inside,
        *children.calls(run, first),
    ]
    return Draft(
        confidence=0.5
        if first.is_unread
        else 0.9
        if kind.ends == "never"
        else 0.6
        if first.label == "computing"
        else 0.75,
        summary=words.awaited(run, blockage) + beyond + because,
        evidence=words.sides(run, blockage, between),
        remedy=_CHILD_ENDED if because else _remedy(run, blockage, kind, inside),
        may_end=not because,
        commands=children.explain_end(run, first)
        or next_steps.continue_after_signal(stopped, "signal")
        or _show_takers(run, kind)
        or children.look(run, first)
        or next_steps.show(beside)
        or next_steps.list_file(find_path_in_the_way(first) or find_polled_path(first, kind))
        or None,
    )


def _show_takers(run: Run, kind: Hold) -> tuple[next_steps.Command, ...]:
    """The commands that show where the processes are that can end a wait at a lock or a queue in shared memory; none for any
    other wait. Those that started the ranks have all of that memory, and count only where no other can read the queue."""
    launchers = {process.pid for _, process in run.launchers} | {process.ppid for process in run.processes.values()}
    takers = (kind.holders if isinstance(kind, AtSharedLock) else None) or ()
    pids = [taker.pid for taker in takers if taker.pid not in launchers]
    if not pids and kind.gives:
        pids = [taker.pid for taker in takers]
    return tuple(command for pid in pids[:_SHOWN_TAKERS] for command in next_steps.stack_of(pid))


def _progress(rank: Rank, kind: Hold, age_seconds: float) -> str:
    """How much of its CPU a rank used, whether its counters changed, and why it is in its state. Where it has run since the wait
    began, an observer may have woken it: since when it rests shows nothing."""
    why = rank.why if rank.why != words.doing(rank) else ""
    cpu = words.cpu(rank, why)
    idle = rank.idle_seconds or 0.0
    who = "it" if (rank.cpu_percent or 0.0) < _OTHERS_PERCENT else "the thread at this line"
    still = (
        f"{who} had not run for {duration(idle)} when the observation began"
        if idle >= max(1.0, age_seconds - _BEFORE_REST)
        else "its loop counters did not change"
    )
    progress = "its loop counters changed" if rank.counters_moved else still
    if rank.counters_moved and isinstance(kind, Busy) and kind.ends != "by-itself":
        progress = ""  # only those of the loop that it does not leave
    return "; ".join(dict.fromkeys(filter(None, (", ".join(filter(None, (cpu, progress))), why))))


def _own_paths(run: Run, rank: Rank, kind: Hold) -> list[Evidence]:
    """Paths in the environment of a rank that polls, if the other ranks have another one or none: it may look in another place.
    Those that are meant to differ are known."""
    read = (process.environment for number, process in run.processes.items() if number != rank.rank)
    others = [each.variables for each in read if isinstance(each, Environment)]
    if not isinstance(kind, Asleep) or not kind.polls or len(others) < _TELLING:
        return []
    own = observed.environment(rank.process)
    odd = [
        f"{name} is {shorten(value, 60)}, on the others {shorten(theirs, 60) if theirs is not None else 'not set'}"
        for name, value in sorted(own.items())
        if value.startswith("/")
        and settings.variable(name) is None
        and (theirs := others[0].get(name)) != value
        and all(other.get(name) == theirs for other in others)
    ]
    return [Evidence(rank.rank, "environment", text) for text in odd[:2]]


def _find_sender(kind: Hold) -> Holder | None:
    """The process for which a rank waits, if that one waits to send data; None for none."""
    holders = kind.holders if isinstance(kind, ForOthers) else None
    return next((holder for holder in holders or () if holder.sends_to), None)


def _describe_last(sender: Holder) -> str:
    """`pid 9 (python) does not read what it is sent`."""
    last = sender.sends_to[-1]
    return f"pid {last.pid} ({last.name}) {'is stopped' if last.state in 'Tt' else 'does not read what it is sent'}"


def _chain(rank: Rank, sender: Holder | None) -> list[Evidence]:
    """The processes beyond the one for which a rank waits, each of which waits to send data to the next."""
    if sender is None:
        return []
    names = [
        f"pid {sender.pid} ({sender.name})",
        *(f"pid {receiver.pid} ({receiver.name})" for receiver in sender.sends_to),
    ]
    sends = ", which is ".join(
        [f"{names[0]} is sending data to {names[1]}", *(f"sending data to {name}" for name in names[2:])]
    )
    return [Evidence(rank.rank, "processes", f"{sends}; {_describe_last(sender)}")]


def _list_threads(kind: Hold) -> tuple[str, ...]:
    """The threads whose waits show that none can end the wait of the rank."""
    return kind.threads if isinstance(kind, AtOwnTasks) else ()


def _missing_threads(run: Run, rank: Rank, kind: Hold) -> list[Evidence]:
    """The names of the Python threads that all other ranks have, and that one does not that waits for a thread of its own."""
    if not isinstance(kind, AtOwnQueue) or rank.process is None:
        return []
    own = {thread.name for thread in observed.python_threads(rank.process)}
    others = {
        number: {thread.name for thread in threads if thread.name} - own
        for number, process in run.processes.items()
        if number != rank.rank and (threads := observed.python_threads(process))
    }
    common = set[str].intersection(*others.values()) if others else set[str]()
    names = [shorten(name, 40) for name in sorted(common) if not was_removed(name)]
    have = f"{words.ranks(sorted(others))} {verb(others, 'has', 'have')}"
    return [
        Evidence(rank.rank, "stacks", f"{have} a thread {name}, and it has none") for name in names[:_SHOWN_THREADS]
    ]


def _arrival(rank: Rank, blockage: Blockage) -> list[Evidence]:
    """The newest file in the directories of a rank that polls for files, if it has come since the others began to wait."""
    newest = rank.process.arrival if rank.process is not None else None
    if newest is None or blockage.age_seconds is None or newest.seconds_ago > blockage.age_seconds:
        return []
    if newest.folder == find_path_in_the_way(rank):  # the evidence of the poll has its age
        return []
    text = f"a file appeared in {newest.folder} {duration(newest.seconds_ago)} ago"
    return [Evidence(rank.rank, "processes", text)]


@about(BetweenCalls)
def describe_dump(run: Run, blockage: Blockage, kind: BetweenCalls) -> Draft:
    """A rank that was in no call when torch wrote its dump."""
    who, first = blockage.culprits, blockage.awaited[0].first
    its = words.verb(who, "its", "their")
    dumps = words.verb(who, "its dump", "their dumps")
    last = f"; its last call is {words.place(first)}" if first.where is not None else ""
    waiting = words.waiting_in(blockage.waiting, words.ranks(who))
    return Draft(
        confidence=0.85,
        summary=f"{waiting}, which had made no further call when torch wrote {dumps}{last}",
        evidence=words.class_evidence(blockage.waiting),
        remedy=f"Find out what {words.ranks(who)} did after {its} last call: look at the log, and at the code that follows. If "
        "this work is expected, raise the timeout of the process group.",
        commands=(),
    )


@about(HoldsLock)
def describe_lock(run: Run, blockage: Blockage, kind: HoldsLock) -> Draft:
    holder, needs = kind.holder, kind.needs
    held = f"a lock on {kind.path} that {words.do(holder.ranks, 'holds', 'hold')}"
    return Draft(
        confidence=0.9,
        summary=f"{words.are(needs.ranks)} waiting for {held}, and {words.are(holder.ranks)} waiting for "
        f"{words.ranks(needs.ranks)} in {words.operation(holder.first)}",
        evidence=[*words.class_evidence([needs, holder]), *words.standstill(run)],
        remedy="Release the lock before the ranks meet: commit the transaction, or leave the `with` block, before the "
        "collective.",
        may_end=True,
    )


@about(OutsideBarrier)
def describe_barrier(run: Run, blockage: Blockage, kind: OutsideBarrier) -> Draft:
    absent, inside = kind.absent, kind.inside
    return Draft(
        confidence=0.8,
        summary=f"{words.are(inside.ranks)} waiting at a multiprocessing.Barrier to which "
        f"{words.ranks(absent.ranks)} may have to come: {words.are(absent.ranks)} waiting for {words.ranks(inside.ranks)} in "
        f"{words.operation(absent.first)}",
        evidence=[*words.class_evidence([inside, absent]), *words.standstill(run)],
        remedy=f"Find out whether {words.ranks(absent.ranks)} went past the barrier, e.g. by an exception that was caught: look "
        "at the lines before the call.",
        may_end=True,
        commands=next_steps.stack_of(absent.first.pid) if absent.first.pid is not None else None,
    )


@about(OwesReply)
def describe_reply(run: Run, blockage: Blockage, kind: OwesReply) -> Draft:
    owes, needs = kind.owes, kind.needs
    hold = needs.first.hold
    at = f" ({hold.peer})" if isinstance(hold, OnNetwork) and hold.peer is not None else ""
    sends = isinstance(hold, OnNetwork) and hold.sends
    what = "sending data to" if sends else "waiting for a reply from"
    direct = run.waits is not None and run.waits.awaited_by(owes) & set(needs.ranks)
    for_whom = f" for {words.ranks(needs.ranks)}" if direct else ""
    return Draft(
        confidence=0.85 if kind.ends == "never" else 0.6,
        summary=f"{words.are(needs.ranks)} {what} {words.ranks(owes.ranks)}{at}, and {words.are(owes.ranks)} waiting in "
        f"{words.operation(owes.first)}{for_whom}: neither can continue",
        evidence=[
            *words.class_evidence([needs, owes]),
            Evidence(
                owes.first.rank,
                "sockets",
                f"pid {owes.first.pid} has not read what was sent over that connection",
            ),
            *words.standstill(run),
        ],
        remedy=f"Let {words.ranks(owes.ranks)} serve the connection in a thread of its own, or before the call. Give the "
        f"request of {words.ranks(needs.ranks)} a timeout.",
        may_end=kind.ends != "never",
    )


def _find_own_enders(run: Run, blockage: Blockage, kind: Hold) -> dict[int, int]:
    """The ranks that can end a wait outside of the calls, by a pipe or a semaphore, but wait for it themselves, with their
    pids."""
    pids = {holder.pid for holder in (kind.holders if isinstance(kind, ReadsPipe | AtSharedLock) else None) or ()}
    hosts = {alike.first.host for alike in blockage.awaited}
    waiting = [run.ranks[number] for number in numbers_of(blockage.waiting) if number in run.ranks]
    return {rank.rank: rank.pid for rank in waiting if rank.pid is not None and rank.pid in pids and rank.host in hosts}


def _describe_own_enders(run: Run, blockage: Blockage, kind: Hold) -> list[Evidence]:
    """Those ranks, with their pids: `kind` names only pids."""
    enders = _find_own_enders(run, blockage, kind)
    if not enders:
        return []
    who, pids = sorted(enders), sorted(enders.values())
    first = blockage.awaited[0].first
    can = f"{words.ranks(who)} (pid {phrases.numbers(pids)}) can {'write to' if isinstance(kind, ReadsPipe) else 'end'} it"
    waits = f"{verb(who, 'waits', 'wait')} for {words.ranks(numbers_of(blockage.awaited))}"
    return [Evidence(first.rank, "processes", f"{can}, and {waits}: each waits for the other")]


def _remedy(run: Run, blockage: Blockage, kind: Hold, inside: Sequence[Evidence]) -> str:
    if enders := _find_own_enders(run, blockage, kind):
        without = "writing to the pipe first" if isinstance(kind, ReadsPipe) else "ending that wait"
        return f"Find out why {words.ranks(sorted(enders))} came to the call without {without}: look at the lines before it."
    if (remedy := _REMEDIES.get(type(kind))) is not None:
        return remedy
    match kind:
        case GetsRequests():
            return _describe_missing_request(blockage)
        case ChildAtLock(forked=True):
            return _FORKED
        case ChildStopped(by=by):
            return next_steps.RESUME[by]
        case AtFileLock(ends="never", holders=()):
            return (
                f"No process holds the lock: an earlier program left {kind.path} behind. Stop the run, check that no other host "
                "uses this file, and delete it."
            )
        case AtFileLock(holders=holders) if holders:
            return _resume(holders) or f"Let {describe_holders(holders)} release the lock: wait for its end, or end it."
        case AtFileLock(path=path):
            return f"Find out which process holds {path}: hangdoc sees no process of other containers and hosts."
        case OnNetwork(holders=holders) if holders is not None and any(holder.state in "Tt" for holder in holders):
            return f"The server is stopped. {_resume(holders)}"
        case ForOthers() if sender := _find_sender(kind):
            return _let_read(sender.sends_to[-1])
        case OnNetwork(serves=True, sends=True):
            return _CLIENT_DOES_NOT_READ
        case AtSharedLock(holders=holders) if holders:
            return _find_releaser(kind, holders)
        case ForOthers(ends="never") if type(kind) in _ABANDONED:
            return _ABANDONED[type(kind)]
        case OnNetwork(peer=peer) if peer is not None:
            limit = " Give the request a timeout." if kind.timeout_seconds is None else ""
            return f"Check the server at {peer}.{limit}"
    return _say_where_to_look(blockage, kind, inside)


def _describe_missing_request(blockage: Blockage) -> str:
    """The remedy for ranks that wait for a request while others are in one: nothing shows whether they got that. Where a
    framework has started the training function in a thread, they have left it."""
    who = tuple(numbers_of(blockage.awaited))
    has, it, was, its = (
        words.verb(who, *forms) for forms in (("has", "have"), ("it", "they"), ("was", "were"), ("its", "their"))
    )
    inside = [
        (alike.first, reading(alike.first.thread)) for alike in blockage.waiting if alike.first.thread is not None
    ]
    if any(read.trains for _, read in inside):
        return _WITHOUT_FUNCTION.format(f"{words.ranks(who).capitalize()} {has}", its=its)
    asked = next((rank for rank, read in inside if rank.own and read.in_request), None)
    other = f"`{asked.own[-1].function}`, in which rank {asked.rank} is" if asked is not None else "the next one"
    either = f"{words.ranks(who).capitalize()} {has} no request: {it} left the last one, or {was} not sent {other}."
    return f"{either} {_WITHOUT_REQUEST.format(its=its)}"


def _say_where_to_look(blockage: Blockage, kind: Hold, inside: Sequence[Evidence]) -> str:
    """The remedy where only the program shows what would end the wait."""
    who = blockage.culprits or tuple(numbers_of(blockage.awaited))
    if (path := find_path_in_the_way(blockage.awaited[0].first)) is not None:
        return f"If what made {path} has ended, remove it. {_LOOPS_TOO_LONG}"
    if is_polling_for_file(blockage.awaited[0].first, kind):
        looks = words.do(who, "looks", "look")
        return f"Find out which process makes or removes the file for which {looks}. {_LOOPS_TOO_LONG}"
    where = f"line where {words.are(who)}"
    if inside:
        where = f"lines where {words.ranks(who)} and the child processes are"
    return f"Look at the {where}. {_WAITS_TOO_LONG}"


def _resume(processes: Iterable[Holder | Receiver]) -> str:
    """What continues the stopped ones of some processes; empty if none is stopped."""
    states = "".join(process.state for process in processes)
    return next_steps.RESUME["tracer" if "t" in states else "signal"] if set("Tt") & set(states) else ""


def _find_releaser(kind: AtSharedLock, holders: Sequence[Holder]) -> str:
    """The remedy for a wait in shared memory that some processes can end."""
    if kind.ends == "never" and (resume := _resume(holders)):
        return resume
    at = f"look at {describe_holders(holders)}."
    return f"{_FIND_READER}: {at} {_READER_ENDED}" if kind.in_queue else f"Find out {_TO_FIND[kind.of]}: {at}"


def _let_read(last: Receiver) -> str:
    """The remedy for a process that does not read, while others wait to send."""
    read = f"Let pid {last.pid} read, or end it. Give the writes a timeout, so that such a receiver holds up nobody."
    return _resume([last]) or read
