"""Whether the wait of a thread ends by itself: the threads and processes that can end it, and what each of them does now.

This is the only home of periods and ages of waits beyond ranks. What the kernel shows as the holder of a pipe, a lock or a
connection is in the wait itself (`holds.ForOthers`); here are those that may end a wait although it does not show them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from hangdoc.phrases import duration
from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import STOPPED_BY_SIGNAL, stopped_by
from hangdoc.reasoning.evidence.stack import user_frames
from hangdoc.reasoning.model.holds import (
    SHORTEST_TIMEOUT,
    Asleep,
    Elsewhere,
    EngineStopped,
    GetsRequests,
    Hold,
    OnNetwork,
    ReadsPipe,
    Stopped,
    describe_holders,
    replies_to_polls,
)
from hangdoc.reasoning.ranks import sleeps
from hangdoc.reasoning.ranks.movement import find_kernel_thread, kernel_thread, own_kernel_thread
from hangdoc.reasoning.ranks.thread_waits import (
    CHILD_FILES,
    Engine,
    ThreadWait,
    Waiter,
    find_unix_server,
    waits_for_children,
)
from hangdoc.snapshot import KernelThread, Process, PythonThread
from hangdoc.torch_facts.frameworks import ENGINE_LOOPS

_AT_ONCE = 0.1
"""Seconds between the first and the last thread that an observer continues."""
_BY_THREADS = (Elsewhere, ReadsPipe)
"""What another thread, or a thread of a child process, may end."""
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
    if wait.hold.ends != "unknown":
        return wait
    enders = tuple(_find_enders(waiter))
    return (
        _find_end_by_engine(waiter, wait)
        or _find_stopped_sender(waiter, wait)
        or _find_end_by_threads(wait, enders)
        or _find_end_by_job(waiter, wait)
        or _add_sleeps(waiter, wait, enders)
    )


def _find_enders(waiter: Waiter) -> Iterator[Ender]:
    """The other threads of the process, and all threads of the child processes."""
    for process in (waiter.process, *waiter.helpers):
        for thread in observed.python_threads(process):
            kernel = own_kernel_thread(process, thread)
            if thread is not waiter.thread and kernel is not None:
                yield Ender(process, thread, kernel)


def _find_end_by_engine(waiter: Waiter, wait: ThreadWait) -> ThreadWait | None:
    """The wait for the next request, if the rank receives or polls, and the process that has started it takes requests from
    outside; None for any other wait. It never ends if the kernel does not run that process."""
    if waiter.engine is None or not _receives(wait.hold) or not takes_requests(waiter.engine):
        return None
    engine = waiter.engine.process
    stop, sender = stopped_by(engine), f"pid {engine.pid} ({engine.name})"
    hold = GetsRequests(sender=sender) if stop is None else EngineStopped(pid=engine.pid, name=engine.name, stop=stop)
    return ThreadWait(wait.state, f"{wait.why}; {hold}", hold)


def _find_stopped_sender(waiter: Waiter, wait: ThreadWait) -> ThreadWait | None:
    """The wait for a task of a framework, if a process that may give it is stopped; None for any other wait."""
    sender = next(iter(waiter.process.others_stopped), None)
    if sender is None or not isinstance(wait.hold, GetsRequests):
        return None
    stop = Stopped(by="signal", why=STOPPED_BY_SIGNAL)
    hold = EngineStopped(pid=sender.pid, name=sender.name, stop=stop, connected=True, ends="unknown")
    return ThreadWait(wait.state, str(hold), hold)


def _receives(hold: Hold) -> bool:
    """Whether a thread waits for data, and nothing shows from whom."""
    match hold:
        case Asleep():
            return hold.polls
        case OnNetwork():
            return hold.peer is None and not hold.holders
        case _:
            return isinstance(hold, ReadsPipe)


def takes_requests(engine: Engine) -> bool:
    """Whether a process listens for requests, or is a known engine. One whose main thread waits for the end of its child
    processes takes none. No thread of it need be at the socket now: a server looks after other things between two polls."""
    process = engine.process
    waiters = [
        Waiter(process, thread, own_kernel_thread(process, thread)) for thread in observed.python_threads(process)
    ]
    if any(waiter.tid == process.pid and waits_for_children(waiter) for waiter in waiters):
        return False
    at_unix_socket = any(find_unix_server(waiter) is not None for waiter in waiters)
    return (
        at_unix_socket
        or any(connection.state == "LISTEN" for connection in engine.connections)
        or any(loop.is_at(frame.file, frame.function) for frame in observed.frames(process) for loop in ENGINE_LOOPS)
    )


def _find_end_by_threads(wait: ThreadWait, enders: Iterable[Ender]) -> ThreadWait | None:
    """The wait, if another thread continues soon although it uses no processor; None if none does."""
    if not isinstance(wait.hold, _BY_THREADS):
        return None
    for _, thread, kernel in enders:
        if not user_frames(thread) or kernel.syscall not in system_calls.SLEEP:
            continue
        # A short sleep between two pieces of work, not one between two checks of a condition.
        if (sleep := sleeps.describe_sleep(thread, kernel)).ends == "by-itself":
            reason = f"another thread or a child process sleeps for {sleep.seconds:.1f} s and then continues"
            return _add_end_by_itself(wait, reason)
    return None


def _find_end_by_job(waiter: Waiter, wait: ThreadWait) -> ThreadWait | None:
    """The wait, if a process of the job is at work that may end it; None if none is."""
    at_work = describe_holders(waiter.process.others_at_work)
    if not at_work or not isinstance(wait.hold, _BY_JOB):
        return None
    sleeps_now = waiter.kernel is not None and waiter.kernel.sleep_seconds is not None
    return _add_end_by_itself(wait, f"{at_work} {'belongs to the same job' if sleeps_now else 'is connected with it'}")


def _add_end_by_itself(wait: ThreadWait, reason: str) -> ThreadWait:
    return wait._replace(why=f"{wait.why}; {reason}", hold=replace(wait.hold, ends="by-itself"))


def _add_sleeps(waiter: Waiter, wait: ThreadWait, enders: Iterable[Ender]) -> ThreadWait:
    """The wait with the longest sleep of those that may end it: another thread or, if it polls, a process of its job."""
    hold = wait.hold
    job = [
        (seconds, sleeper)
        for sleeper in waiter.process.others_asleep
        for seconds in sleeper.sleeps
        if seconds <= SHORTEST_TIMEOUT
    ]
    if isinstance(hold, Asleep) and hold.polls and job:
        seconds, sleeper = max(job, key=lambda sleep: sleep[0])
        reason = f"{describe_holders([sleeper])} of the same job sleeps for {duration(seconds)}, and may then end it"
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
    replies to a poll are not what the thread waits for."""
    own = kernel_thread(process, thread)
    others = [other for other in observed.python_threads(process) if other is not thread and other.tid is not None]
    waiting = [own] if own is None or not replies_to_polls(own.files) else []
    if own is not None and own.syscall == system_calls.FUTEX:  # a lock, a queue, a future: another thread ends the wait
        waiting += [find_kernel_thread(process, other.tid) for other in others if user_frames(other)]
    waiting += [find_kernel_thread(helper, helper.pid) for helper in helpers if _is_in_user_code(helper)]
    woken = [
        kernel.idle_seconds
        for kernel in waiting
        if kernel is not None and kernel.timed is False and kernel.idle_seconds is not None
    ]
    in_python = {other.tid for other in others} | {own.tid if own is not None else None}
    rest = [
        kernel.idle_seconds
        for kernel in observed.threads(process)
        if kernel.tid not in in_python and kernel.idle_seconds is not None
    ]
    return (seconds for seconds in woken if not rest or any(abs(seconds - other) > _AT_ONCE for other in rest))


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
