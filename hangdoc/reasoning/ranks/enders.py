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
from hangdoc.reasoning.evidence.stack import user_frames
from hangdoc.reasoning.model.holds import (
    SHORTEST_TIMEOUT,
    Asleep,
    Elsewhere,
    OnNetwork,
    ReadsPipe,
    describe_holders,
    replies_to_polls,
)
from hangdoc.reasoning.ranks import sleeps
from hangdoc.reasoning.ranks.movement import kernel_thread, thread_of
from hangdoc.reasoning.ranks.thread_waits import CHILD_FILES, ThreadWait, Waiter
from hangdoc.snapshot import Clocks, KernelThread, Process, PythonThread

_AT_ONCE = 0.1
"""Seconds between the first and the last thread that an observer continues."""
_BY_THREADS = (Elsewhere, ReadsPipe)
"""What another thread, or a thread of a child process, may end."""
_BY_JOB = (Asleep, Elsewhere, OnNetwork, ReadsPipe)
"""What a process may end that the wait itself does not show."""


class Other(NamedTuple):
    """A thread that may end the wait of another one."""

    owner: Process
    thread: PythonThread
    kernel: KernelThread


def with_end(waiter: Waiter, wait: ThreadWait) -> ThreadWait:
    """A wait with what ends it: by itself, if a thread or process that may end it works or continues soon; or else the seconds
    that those which sleep need for a turn."""
    if wait.hold.ends != "unknown":
        return wait
    others = tuple(_others(waiter))
    return _ended_by_threads(wait, others) or _ended_by_job(waiter, wait) or _after_sleeps(waiter, wait, others)


def _others(waiter: Waiter) -> Iterator[Other]:
    """The other threads of the process, and all threads of the child processes."""
    for thread in observed.python_threads(waiter.process):
        kernel = thread_of(waiter.process, thread.tid if thread.tid is not None else waiter.process.pid)
        if thread is not waiter.thread and kernel is not None:
            yield Other(waiter.process, thread, kernel)
    for helper in waiter.helpers:
        for thread in observed.python_threads(helper):
            kernel = thread_of(helper, thread.tid if thread.tid is not None else helper.pid)
            if kernel is not None:
                yield Other(helper, thread, kernel)


def _ended_by_threads(wait: ThreadWait, others: Iterable[Other]) -> ThreadWait | None:
    """The wait, if another thread continues soon although it uses no processor; None if none does."""
    if not isinstance(wait.hold, _BY_THREADS):
        return None
    for _, thread, kernel in others:
        if not user_frames(thread) or kernel.syscall not in system_calls.SLEEP:
            continue
        # A short sleep between two pieces of work, not one between two checks of a condition.
        if (sleep := sleeps.describe_sleep(thread, kernel)).ends == "by-itself":
            soon = f"another thread or a child process sleeps for {sleep.seconds:.1f} s and then continues"
            return _by_itself(wait, soon)
    return None


def _ended_by_job(waiter: Waiter, wait: ThreadWait) -> ThreadWait | None:
    at_work = describe_holders(waiter.process.others_at_work)
    if not at_work or not isinstance(wait.hold, _BY_JOB):
        return None
    sleeps_now = waiter.kernel is not None and waiter.kernel.sleep_seconds is not None
    return _by_itself(wait, f"{at_work} {'belongs to the same job' if sleeps_now else 'is connected with it'}")


def _by_itself(wait: ThreadWait, soon: str) -> ThreadWait:
    return wait._replace(why=f"{wait.why}; {soon}", hold=replace(wait.hold, ends="by-itself"))


def _after_sleeps(waiter: Waiter, wait: ThreadWait, others: Iterable[Other]) -> ThreadWait:
    """The wait with the longest sleep of those that may end it: another thread, or if it polls a process of its job."""
    hold = wait.hold
    job = [
        (seconds, one) for one in waiter.process.others_asleep for seconds in one.sleeps if seconds <= SHORTEST_TIMEOUT
    ]
    if isinstance(hold, Asleep) and hold.polls and job:
        seconds, sleeper = max(job, key=lambda other: other[0])
        soon = f"{describe_holders([sleeper])} of the same job sleeps for {duration(seconds)}, and may then end it"
        wait = wait._replace(why=f"{wait.why}; {soon}", hold=replace(hold, period_of_others=seconds))
    if isinstance(hold, Elsewhere) and hold.period is None:
        threads = [one for one in others if one.owner is waiter.process]
        periods = (sleeps.seconds_of_turn(one.thread, one.kernel) for one in threads)
        longest = max((one for one in periods if one is not None and one <= SHORTEST_TIMEOUT), default=None)
        if longest is not None:
            soon = f"another thread sleeps for {duration(longest)}, and may then end it"
            return wait._replace(why=f"{wait.why}; {soon}", hold=replace(hold, period=longest))
    return wait


# --- ages ----------------------------------------------------------------------------------------------------------------


def renewed_seconds_ago(process: Process, thread: PythonThread | None, helpers: Sequence[Process]) -> float | None:
    """How long before the observation something came for which `thread` waited, or for which a thread waited that may end its
    wait; or since when it has had its newest child process, if it waits for one. The wait is not older than that. None if none
    of this is known."""
    ages = [*_woken(process, thread, helpers), *_newest_child(process, thread, helpers)]
    if process.arrival is not None:
        ages.append(process.arrival.seconds_ago)
    return min(ages, default=None)


def _woken(process: Process, thread: PythonThread | None, helpers: Sequence[Process]) -> Iterator[float]:
    """How long ago threads were woken that wait without a timeout. An observer wakes all threads of the process at once. The
    replies to a poll are not what the thread waits for."""
    own = kernel_thread(process, thread)
    others = [one for one in observed.python_threads(process) if one is not thread and one.tid is not None]
    waiting = [own] if own is None or not replies_to_polls(own.files) else []
    if own is not None and own.syscall == system_calls.FUTEX:  # a lock, a queue, a future: another thread ends the wait
        waiting += [thread_of(process, one.tid) for one in others if user_frames(one)]
    waiting += [thread_of(one, one.pid) for one in helpers if any(map(user_frames, _main_threads(one)))]
    woken = [
        one.idle_seconds for one in waiting if one is not None and one.timed is False and one.idle_seconds is not None
    ]
    in_python = {one.tid for one in others} | {own.tid if own is not None else None}
    dated = process.clocks.threads if isinstance(process.clocks, Clocks) else ()
    rest = [one.idle_seconds for one in dated if one.tid not in in_python and one.idle_seconds is not None]
    return (one for one in woken if not rest or any(abs(other - one) > _AT_ONCE for other in rest))


def _main_threads(process: Process) -> Iterator[PythonThread]:
    return (one for one in observed.python_threads(process) if one.tid in (None, process.pid))


def _newest_child(process: Process, thread: PythonThread | None, helpers: Iterable[Process]) -> Iterator[float]:
    if thread is not None and any(name in frame.file for frame in thread.frames for name in CHILD_FILES):
        yield from (one.started_seconds_ago for one in helpers if one.ppid == process.pid and one.state not in "ZX")
