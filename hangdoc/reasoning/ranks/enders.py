"""Whether the wait of a thread ends by itself: the threads and processes that can end it, and what each of them does now.

This is the only home of periods and ages of waits beyond ranks. What the kernel shows as the holder of a pipe, a lock or a
connection is in the wait itself (`holds.ForOthers`); here are those that may end a wait although it does not show them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from hangdoc.ended_caller import find_last_call, find_left_loop, has_ended
from hangdoc.phrases import duration
from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import STOPPED_BY_SIGNAL, awaited_from_outside, stopped_by
from hangdoc.reasoning.evidence.stack import user_frames
from hangdoc.reasoning.model.holds import (
    SHORTEST_TIMEOUT,
    Asleep,
    AtSharedLock,
    Elsewhere,
    Ends,
    EngineOrphaned,
    EngineStopped,
    ForOthers,
    GetsRequests,
    Hold,
    OnNetwork,
    ReadsPipe,
    ServersLock,
    Serves,
    Stopped,
    describe_holders,
    replies_to_polls,
)
from hangdoc.reasoning.ranks import locks, sleeps
from hangdoc.reasoning.ranks.child_waits import CHILD_FILES, waits_for_children
from hangdoc.reasoning.ranks.movement import find_kernel_thread, kernel_thread, own_kernel_thread
from hangdoc.reasoning.ranks.network_waits import find_unix_server
from hangdoc.reasoning.ranks.waiter import Engine, ThreadWait, Waiter
from hangdoc.snapshot import Clocks, Connection, Holder, KernelThread, Process, PythonThread
from hangdoc.torch_facts.file_names import Function
from hangdoc.torch_facts.frameworks import ENGINE_LOOPS, ENGINE_REPLIES

TURNS_OF_OTHERS = 2
"""Sleeps that a process of the job gets to end a wait."""
_LEAST_TURN = 1.0
"""Seconds. Nobody waits longer for one that sleeps less: it is at work, or it waits for something else."""
_AT_ONCE = 0.1
"""Seconds between the first and the last thread that an observer continues."""
_BY_THREADS = (Elsewhere, ReadsPipe)
"""What another thread, or a thread of a child process, may end."""
_FROM_OUTSIDE = (Elsewhere, AtSharedLock)
"""What a thread may end that gets its data from outside."""
_HOLDER_IS_KNOWN = 0.85
"""The certainty of a lock of which the source shows who keeps it. A consumer that waits for work may be at any other."""
_BY_JOB = (Asleep, Elsewhere, OnNetwork, ReadsPipe)
"""What a process may end that the wait itself does not show."""


class Ender(NamedTuple):
    """A thread that may end the wait of another one."""

    owner: Process
    thread: PythonThread
    kernel: KernelThread


def with_end(waiter: Waiter, wait: ThreadWait) -> ThreadWait:
    """A wait with what ends it: by itself, if a thread or process that may end it works or continues soon; or else the seconds
    that those which sleep need for a turn."""
    if isinstance(wait.hold, Serves):
        return _without_caller(waiter, _with_lock_of_handler(waiter, wait, wait.hold))
    if wait.hold.ends != "by-itself" and (for_engine := _find_end_by_engine(waiter, wait)) is not None:
        return for_engine
    if wait.hold.ends != "unknown":
        return wait
    enders = tuple(_find_enders(waiter))
    if isinstance(wait.hold, Asleep) and any(user_frames(ender.thread) for ender in enders):
        wait = wait._replace(hold=replace(wait.hold, asks_nothing=False))  # another thread may do the work of the rank
    return (
        _find_stopped_sender(waiter, wait)
        or _find_end_by_memory(waiter, wait)
        or _find_end_by_outside(waiter, wait)
        or _find_end_by_threads(wait, enders)
        or _find_end_by_job(waiter, wait)
        or _add_sleeps(waiter, wait, enders)
    )


def _find_enders(waiter: Waiter) -> Iterator[Ender]:
    """The other threads of the process, and all threads of the child processes."""
    for process in (waiter.process, *waiter.helpers):
        yield from (ender for ender in _find_enders_in(process) if ender.thread is not waiter.thread)


def _find_enders_in(process: Process) -> Iterator[Ender]:
    for thread in observed.python_threads(process):
        if (kernel := own_kernel_thread(process, thread)) is not None:
            yield Ender(process, thread, kernel)


def _with_lock_of_handler(waiter: Waiter, wait: ThreadWait, hold: Serves) -> ThreadWait:
    """The wait of a thread of a server at a lock of its process that is never released: no request passes it any more. Or the
    server's wait with a lock that may be the reason why it does not answer."""
    enders = _find_enders(waiter._replace(helpers=()))
    found = [lock for ender in enders if (lock := locks.find_lock(*ender)) is not None]
    worst = max(found, key=lambda lock: (lock.ends == "never", lock.certainty), default=None)
    if worst is None:
        return wait
    if worst.ends == "never":
        return ThreadWait("waiting-lock", worst.what, worst)
    if hold.unanswered is None:  # a consumer that waits for work may be at a lock
        return wait
    return wait._replace(hold=replace(hold, lock=ServersLock(waiter.process.pid, worst.what, sure=False)))


def _without_caller(waiter: Waiter, wait: ThreadWait) -> ThreadWait:
    """The wait of a server, with where the thread was that made its calls, if that left a loop without an end."""
    last = find_last_call(waiter.process.recorder)
    left = find_left_loop(last) if last is not None and has_ended(last, waiter.process.stack) else None
    if left is None or not isinstance(wait.hold, Serves) or wait.hold.lock is not None:
        return wait
    return wait._replace(hold=replace(wait.hold, ended=f"{left.file.rpartition('/')[2]}:{left.line}"))


def _find_end_by_engine(waiter: Waiter, wait: ThreadWait) -> ThreadWait | None:
    """The wait for the next request, if the rank receives or polls, and the process that has started it takes requests from
    outside; or for that process to take a reply. None for any other wait."""
    if waiter.engine is None:
        return None
    engine = waiter.engine.process.pid
    holders = {holder.pid for holder in wait.hold.holders or ()} if isinstance(wait.hold, ForOthers) else set()
    for_engine = engine in holders and holders <= {engine, *waiter.engine.ranks}
    if wait.hold.gives:
        return _name_reader(wait, engine) if for_engine else None
    if not for_engine and (waiter.engine.passes_on or not wait.hold.is_from_anybody):
        return None
    hold = _describe_wait_for_engine(waiter.engine)
    return ThreadWait(wait.state, str(hold), hold)  # the next request, and no reply


def _name_reader(wait: ThreadWait, engine: int) -> ThreadWait | None:
    """The wait for room in a queue that a rank shares with its engine, without the other ranks, which may only have inherited it:
    what requests lead to goes back to where they come from. A stopped one may be the reader."""
    hold = wait.hold
    if not isinstance(hold, AtSharedLock):
        return None
    able = tuple(holder for holder in hold.holders or () if holder.pid == engine or holder.state == "T")
    hold = AtSharedLock.ended_by(
        able, hold.ends, in_queue=hold.in_queue, of=hold.of, file=hold.file, thread=hold.thread
    )
    return ThreadWait(wait.state, str(hold), hold)


def _describe_wait_for_engine(engine: Engine) -> Hold:
    """It never ends if the kernel does not run the engine, or if nobody can send requests to the engine."""
    process, sender = engine.process, next(iter(engine.process.others_stopped), None)
    if (stop := stopped_by(process)) is not None:
        return EngineStopped(pid=process.pid, name=process.name, stop=stop)
    if not engine.listens and sender is not None:
        ends: Ends = "never" if sender.pid == process.ppid else "unknown"
        return _describe_stopped_sender(sender, ends, through=process.pid)
    if not engine.listens and process.launcher_gone:
        return EngineOrphaned(pid=process.pid, name=process.name)
    found = (lock for ender in _find_enders_in(process) if (lock := locks.find_lock(*ender)) is not None)
    lock = next((lock for lock in found if lock.certainty >= _HOLDER_IS_KNOWN), None)
    return GetsRequests(
        sender=f"pid {process.pid} ({process.name})",
        owed=engine.waits_for_reply,
        lock=ServersLock(process.pid, lock.what, sure=lock.ends == "never") if lock is not None else None,
    )


def _find_stopped_sender(waiter: Waiter, wait: ThreadWait) -> ThreadWait | None:
    """The wait for a task of a framework, if a process that may give it is stopped; None for any other wait."""
    sender = next(iter(waiter.process.others_stopped), None)
    if sender is None or not isinstance(wait.hold, GetsRequests):
        return None
    hold = _describe_stopped_sender(sender, "unknown", sender.through)
    return ThreadWait(wait.state, str(hold), hold)


def _find_end_by_memory(waiter: Waiter, wait: ThreadWait) -> ThreadWait | None:
    """The wait of a rank that polls memory, for requests, if it shares memory with processes of which each works or waits for the
    outside itself; None for any other wait."""
    others = waiter.process.others_in_memory
    can_send = all(other.works or other.waits_for_events for other in others)
    if not others or not can_send or not wait.hold.is_from_anybody:
        return None
    hold = GetsRequests(sender=describe_holders(others))
    return ThreadWait(wait.state, f"{wait.why}; {hold}", hold)


def _find_end_by_outside(waiter: Waiter, wait: ThreadWait) -> ThreadWait | None:
    """The wait, as one for requests, if another thread or a child process waits for what only comes from outside, and may pass it
    on by a queue or a semaphore; None for any other wait."""
    if not isinstance(wait.hold, _FROM_OUTSIDE) or wait.hold.gives:
        return None
    files = waiter.kernel.files if waiter.kernel is not None else ()
    accepting = {holder.pid for file in files for holder in file.holders or () if holder.accepts}
    for process in (waiter.process, *waiter.helpers):
        for kernel in observed.threads(process):
            awaited = awaited_from_outside(kernel) or ("connections" if kernel.tid in accepting else None)
            if kernel.tid != waiter.tid and awaited is not None:
                who = "one of its threads" if process is waiter.process else f"its child process ({process.name})"
                hold = GetsRequests(sender=f"{who}, which waits for {awaited}")
                return ThreadWait(wait.state, str(hold), hold)
    return None


def _describe_stopped_sender(sender: Holder, ends: Ends, through: int | None) -> EngineStopped:
    stop = Stopped(by="signal", why=STOPPED_BY_SIGNAL)
    return EngineStopped(pid=sender.pid, name=sender.name, stop=stop, connected=True, through=through, ends=ends)


def find_engine(
    process: Process, connections: Iterable[Connection], ranks: Collection[int] = frozenset()
) -> Engine | None:
    """A process that started ranks, if it listens for requests, receives them from a process that takes requests itself, or is a
    known engine; None for any other process. One whose main thread waits for the end of its child processes takes none. No thread
    of it need be at the socket now: a server looks after other things between two polls. `connections`: all of it, with the
    sockets at which it listens. `ranks`: the pids of the run on its host."""
    waiters = [
        Waiter(process, thread, own_kernel_thread(process, thread)) for thread in observed.python_threads(process)
    ]
    if any(waiter.tid == process.pid and waits_for_children(waiter) for waiter in waiters):
        return None
    is_known = _is_in(process, ENGINE_LOOPS)  # it may listen for its own ranks
    at_unix_socket = any(find_unix_server(waiter) is not None for waiter in waiters)
    listens = not is_known and (at_unix_socket or any(connection.state == "LISTEN" for connection in connections))
    senders = [holder for waiter in waiters for holder in _find_senders(waiter, ranks)]
    if not listens and not is_known and not senders:
        return None
    passes_on = not listens and not is_known
    listens = listens or any(sender.state != "T" for sender in senders)
    return Engine(process, listens, waits_for_reply=_is_in(process, ENGINE_REPLIES), passes_on=passes_on, ranks=ranks)


def _find_senders(waiter: Waiter, ranks: Collection[int]) -> tuple[Holder, ...]:
    """The processes from which a thread of the user's code receives at a connection, if they are no ranks, and each of them
    works, waits for the outside itself, or is stopped; none for any other thread. Libraries have connections of their own."""
    if waiter.call not in system_calls.RECEIVE or waiter.file is None or not user_frames(waiter.thread):
        return ()
    holders = waiter.other_holders(waiter.file)
    can_send = all(
        holder.pid not in ranks and (holder.works or holder.waits_for_events or holder.state == "T")
        for holder in holders
    )
    return holders if can_send else ()


def _is_in(process: Process, functions: Iterable[Function]) -> bool:
    """Whether a thread is in one of some functions."""
    frames = tuple(observed.frames(process))
    return any(function.is_at(frame.file, frame.function) for function in functions for frame in frames)


def _find_end_by_threads(wait: ThreadWait, enders: Iterable[Ender]) -> ThreadWait | None:
    """The wait, if another thread continues soon although it uses no processor; None if none does."""
    if not isinstance(wait.hold, _BY_THREADS):
        return None
    for process, thread, kernel in enders:
        if not user_frames(thread) or kernel.syscall not in system_calls.SLEEP:
            continue
        # A short sleep between two pieces of work, not one between two checks of a condition.
        if (sleep := sleeps.describe_sleep(process, thread, kernel)).ends == "by-itself":
            reason = f"another thread or a child process sleeps for {sleep.seconds:.1f} s and then continues"
            return _add_end_by_itself(wait, reason)
    return None


def _find_end_by_job(waiter: Waiter, wait: ThreadWait) -> ThreadWait | None:
    """The wait, if a process of the job is at work that may end it; None if none is."""
    at_work = describe_holders(waiter.process.others_at_work)
    if not at_work or not isinstance(wait.hold, _BY_JOB) or _asks_nothing(wait.hold):
        return None
    sleeps_now = waiter.kernel is not None and waiter.kernel.sleep_seconds is not None
    how = "in its process group or directory" if sleeps_now else "connected with it"
    reason = f"{at_work}, {how}, may end it"
    wait = _add_end_by_itself(wait, reason)
    return wait._replace(hold=replace(wait.hold, bystanders=reason)) if sleeps_now else wait


def _asks_nothing(hold: Hold) -> bool:
    return isinstance(hold, Asleep) and hold.asks_nothing


def _add_end_by_itself(wait: ThreadWait, reason: str) -> ThreadWait:
    return wait._replace(why=f"{wait.why}; {reason}", hold=replace(wait.hold, ends="by-itself"))


def _add_sleeps(waiter: Waiter, wait: ThreadWait, enders: Iterable[Ender]) -> ThreadWait:
    """The wait with the longest sleep of those that may end it: another thread or, if it polls, a process of its job."""
    hold = wait.hold
    job = [
        (seconds, sleeper)
        for sleeper in waiter.process.others_asleep
        for seconds in sleeper.sleeps
        if _LEAST_TURN <= seconds <= SHORTEST_TIMEOUT
    ]
    if isinstance(hold, Asleep) and hold.polls and not hold.asks_nothing and job:
        seconds, sleeper = max(job, key=lambda sleep: sleep[0])
        who = f"{describe_holders([sleeper])}, in its process group or directory,"
        reason = f"{who} sleeps for {duration(seconds)} at a time, and gets {TURNS_OF_OTHERS} of these sleeps to end it"
        wait = wait._replace(why=f"{wait.why}; {reason}", hold=replace(hold, period_of_others=seconds))
    if isinstance(hold, Elsewhere) and hold.period is None:
        own = [ender for ender in enders if ender.owner is waiter.process]
        periods = (sleeps.seconds_of_turn(ender.thread, ender.kernel) for ender in own)
        longest = max(
            (seconds for seconds in periods if seconds is not None and seconds <= SHORTEST_TIMEOUT), default=None
        )
        if longest is not None:
            reason = f"another thread sleeps for {duration(longest)}, and may then end it"
            return wait._replace(why=f"{wait.why}; {reason}", hold=replace(hold, period=longest))
    return wait


# --- ages ----------------------------------------------------------------------------------------------------------------


def renewed_seconds_ago(process: Process, thread: PythonThread | None, helpers: Sequence[Process]) -> float | None:
    """The greatest age that the wait of a thread may have, in seconds before the observation. It began after the last thing that
    came for the thread, or for a thread that may end its wait; and after the start of the newest child process, if it waits for
    one. None if none of this is known."""
    ages = [
        *_list_seconds_since_woken(process, thread, helpers),
        *_list_seconds_since_children_started(process, thread, helpers),
    ]
    if process.arrival is not None:
        ages.append(process.arrival.seconds_ago)
    return min(ages, default=None)


def _list_seconds_since_woken(
    process: Process, thread: PythonThread | None, helpers: Sequence[Process]
) -> Iterator[float]:
    """How long ago threads were woken that wait without a timeout. An observer wakes all threads of the process at once. The
    replies to a poll and the timers of an event loop are not what the thread waits for."""
    own = kernel_thread(process, thread)
    others = [other for other in observed.python_threads(process) if other is not thread and other.tid is not None]
    wakes_itself = own is not None and (replies_to_polls(own.files) or any(map(system_calls.is_timer, own.files)))
    waiting = [] if wakes_itself else [own]
    if own is not None and own.syscall == system_calls.FUTEX:  # a lock, a queue, a future: another thread ends the wait
        waiting += [find_kernel_thread(process, other.tid) for other in others if user_frames(other)]
    waiting += [find_kernel_thread(helper, helper.pid) for helper in helpers if _is_in_user_code(helper)]
    woken = [
        kernel.idle_seconds
        for kernel in waiting
        if kernel is not None and kernel.timed is False and kernel.idle_seconds is not None
    ]
    window = process.clocks.window_seconds if isinstance(process.clocks, Clocks) else 0.0
    in_python = {other.tid for other in others} | {own.tid if own is not None else None}
    rest = [
        kernel.idle_seconds
        for kernel in observed.threads(process)
        if kernel.tid not in in_python and kernel.idle_seconds is not None
    ]
    return (seconds + window for seconds in woken if not rest or any(abs(seconds - other) > _AT_ONCE for other in rest))


def may_have_been_woken(process: Process, kernel: KernelThread) -> bool:
    """Whether an observer may have made a thread run when it last ran. That wakes all threads of a process, so not if another one
    has rested for longer."""
    rests = (each.idle_seconds for each in observed.threads(process) if each.idle_seconds is not None)
    return kernel.idle_seconds is not None and max(rests, default=0.0) <= kernel.idle_seconds + _AT_ONCE


def _is_in_user_code(process: Process) -> bool:
    """Whether the main thread of a process is in the user's code."""
    threads = observed.python_threads(process)
    return any(user_frames(thread) for thread in threads if thread.tid in (None, process.pid))


def _list_seconds_since_children_started(
    process: Process, thread: PythonThread | None, helpers: Iterable[Process]
) -> Iterator[float]:
    """How long ago the child processes were started, if a thread waits for child processes."""
    if thread is not None and any(name in frame.file for frame in thread.frames for name in CHILD_FILES):
        yield from (
            helper.started_seconds_ago for helper in helpers if helper.ppid == process.pid and helper.state not in "ZX"
        )
