"""How long to observe a run after its window: until a run in slow steps has made one, and until a stop has lasted.

A loop with a sleep in it (a rate limit) makes progress only after it, and ranks that wait for a service only when it has replied.
A CPU limiter stops a rank for seconds, again and again.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel import system_calls
from hangdoc.procfs import ProcError, ProcFS, Stat

CountCalls = Callable[[Iterable[Target]], object]
"""Counts the recorded calls of some ranks."""
_LONGEST_STEP_SECONDS = 5.0
"""hangdoc does not wait for the end of a longer sleep or step: the report would come too late."""
_STOP_SECONDS = 6.0
"""A rank that has been stopped for a shorter time may be stopped by a CPU limiter, which continues it."""
_WORK_SECONDS = 0.2
"""Time for the work after the sleep."""
_CHECK_SECONDS = 0.1
_WORKING, _LEAST_TICKS = 0.1, 3
"""Of a core, and the ticks that are no chance: threads of torch wake up now and then."""
_LARGEST_SHARE = 0.25
"""Of the time that a look has left."""


def wait_until_settled(
    observation: Observation, moving: frozenset[int] = frozenset(), count_calls: CountCalls = lambda targets: {}
) -> bool:
    """Wait until all main threads of ranks and helpers in a short sleep have woken up and worked, and until stopped ranks have
    been stopped for 6 seconds. If all ranks of one parent process wait for something else, wait until one of them runs again or
    all have waited for 5 seconds. `moving` are the ranks that have made calls in the window, which `count_calls` counts by pid.
    Returns whether all ranks of one parent process have stood still for 5 seconds although one had made calls: what the window
    shows of them has ended since."""
    limit = Deadline(observation.deadline.remaining() * _LARGEST_SHARE)
    watched = _find_waiting(observation, moving)
    watched += _find_moved(observation, moving, count_calls) if limit.remaining() > _LONGEST_STEP_SECONDS else []
    time.sleep(limit.remaining(seconds_until_settled(observation)))
    watched = [group for group in watched if group.moved or time.monotonic() < group.until]
    stopped = woken = False
    while watched and limit.remaining() > 0.0:
        now = time.monotonic()
        still = [group for group in watched if group.read() == group.before]
        woken |= any(group not in still for group in watched if not group.moved)
        stopped |= any(group.moved and group.until <= now for group in still)
        watched = [group for group in still if now < group.until]
        time.sleep(limit.remaining(_CHECK_SECONDS if watched else 0.0))
    time.sleep(limit.remaining(_WORK_SECONDS if woken else 0.0))
    return stopped


def seconds_until_settled(observation: Observation) -> float:
    """Seconds until all main threads of ranks and helpers in a short sleep have woken up and worked, and until stopped ranks have
    been stopped for 6 seconds; 0 if none sleeps or is stopped. Not more than a share of the time that the look has left."""
    sleeps = (
        (system_calls.sleep_of_thread(observation.proc, target.pid, str(target.pid)) or (0.0, True))[0]
        for target in observation.alive()
        if target.role in ("rank", "helper")
    )
    longest = max((seconds for seconds in sleeps if seconds <= _LONGEST_STEP_SECONDS), default=0.0)
    now = time.monotonic()
    stops = [rank.last_run - now + _STOP_SECONDS for rank in observation.ranks() if rank.state == "T" and rank.last_run]
    seconds = max([longest + _WORK_SECONDS if longest else 0.0, *stops])
    return min(seconds, observation.deadline.remaining() * _LARGEST_SHARE)


class _Watched(NamedTuple):
    """Ranks of one parent process, which are likely to be of one run."""

    read: Callable[[], object]
    """Reads what changes if one of them runs."""
    before: object
    until: float
    """When all will have waited for 5 seconds (monotonic)."""
    moved: bool = False
    """Whether one of them made calls in the window."""


def _find_waiting(observation: Observation, moving: frozenset[int]) -> list[_Watched]:
    """The runs that made no call in the window, and all of whose ranks waited when it began."""
    waiting = []
    for ranks in _list_runs(observation):
        rests = [since for rank in ranks if (since := rank.rests_since) is not None]
        pids = tuple(rank.pid for rank in ranks)
        if len(rests) == len(ranks) and moving.isdisjoint(pids):
            read = partial(_read_switches, observation.proc, pids)
            waiting.append(_Watched(read, read(), max(rests) + _LONGEST_STEP_SECONDS))
    return waiting


def _find_moved(observation: Observation, moving: frozenset[int], count_calls: CountCalls) -> list[_Watched]:
    """The runs that made calls in the window. Where they train in another thread, only the calls show that they go on; where a
    worker prepares data, only the CPU time of its process."""
    until, moved = time.monotonic() + _LONGEST_STEP_SECONDS, []
    for ranks in _list_runs(observation):
        pids = tuple(rank.pid for rank in ranks)
        if not moving.isdisjoint(pids):
            helpers = [each.pid for each in observation.alive() if each.role == "helper" and each.owner in pids]
            worked = _watch_cpu(observation.proc, (*pids, *helpers))
            read = partial(_read_progress, observation.proc, pids, partial(count_calls, ranks), worked)
            if not worked():
                moved.append(_Watched(read, read(), until, moved=True))
    return moved


def _list_runs(observation: Observation) -> Iterable[list[Target]]:
    runs: dict[int, list[Target]] = {}
    for rank in observation.ranks():
        if rank.state not in "ZX":
            runs.setdefault(rank.ppid, []).append(rank)
    return runs.values()


def _watch_cpu(proc: ProcFS, pids: tuple[int, ...]) -> Callable[[], bool]:
    """Asks whether one of some processes has used a share of a core since now, or is held by a tracer, which may let it go on."""

    def read(pid: int) -> Stat | None:
        try:
            return proc.stat(str(pid))
        except ProcError:
            return None

    began, first = time.monotonic(), {pid: stat.cpu_ticks for pid in pids if (stat := read(pid)) is not None}

    def has_worked() -> bool:
        least = max(_LEAST_TICKS, _WORKING * (time.monotonic() - began) * proc.ticks_per_second)
        now = {pid: stat for pid in first if (stat := read(pid)) is not None}
        return any(stat.state == "t" or stat.cpu_ticks - first[pid] >= least for pid, stat in now.items())

    return has_worked


def _read_progress(
    proc: ProcFS, pids: tuple[int, ...], count_calls: Callable[[], object], has_worked: Callable[[], bool]
) -> tuple[object, ...]:
    """The switches of the main threads, the calls of all, and whether a process works: who computes may not give up its processor
    for seconds."""
    return _read_switches(proc, pids), count_calls(), has_worked()


def _read_switches(proc: ProcFS, pids: tuple[int, ...]) -> list[str | None]:
    """How often the main threads have given up their processors; None for one that can't be read."""
    switches = []
    for pid in pids:
        try:
            switches += proc.fields(str(pid), "voluntary_ctxt_switches")
        except ProcError:
            switches.append(None)
    return switches
