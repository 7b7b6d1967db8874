"""How long to observe a run after its window: until a run in slow steps has made one, and until a stop has lasted.

A loop with a sleep in it (a rate limit) makes progress only after it, and ranks that wait for a service only when it has replied.
A CPU limiter stops a rank for seconds, again and again.
"""

import time
from typing import NamedTuple

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel import system_calls
from hangdoc.procfs import ProcError, ProcFS

_LONGEST_STEP_SECONDS = 5.0
"""hangdoc does not wait for the end of a longer sleep or step: the report would come too late."""
_STOP_SECONDS = 6.0
"""A rank that has been stopped for a shorter time may be stopped by a CPU limiter, which continues it."""
_WORK_SECONDS = 0.2
"""Time for the work after the sleep."""
_CHECK_SECONDS = 0.1
_LARGEST_SHARE = 0.25
"""Of the time that a look has left."""


def wait_until_settled(observation: Observation, moving: frozenset[int] = frozenset()) -> bool:
    """Wait until all main threads of ranks and helpers in a short sleep have woken up and worked, and until stopped ranks have
    been stopped for 6 seconds. If all ranks of one parent process wait for something else, wait until one of them runs again or
    all have waited for 5 seconds. `moving` are the ranks that have made calls in the window. Returns whether all ranks of one
    parent process have waited for 5 seconds although one had made calls: what the window shows of them has ended since."""
    limit = Deadline(observation.deadline.remaining() * _LARGEST_SHARE)
    waiting = _find_waiting(observation, moving)
    stopped = False
    time.sleep(limit.remaining(seconds_until_settled(observation)))
    waiting = [group for group in waiting if time.monotonic() < group.until]
    moved = False
    while waiting and limit.remaining() > 0.0:
        now = time.monotonic()
        still = [group for group in waiting if _read_switches(observation.proc, group.pids) == group.switches]
        moved |= len(still) < len(waiting)
        stopped |= any(group.moved and group.until <= now for group in still)
        waiting = [group for group in still if now < group.until]
        time.sleep(limit.remaining(_CHECK_SECONDS if waiting else 0.0))
    time.sleep(limit.remaining(_WORK_SECONDS if moved else 0.0))
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


class _Waiting(NamedTuple):
    """Ranks of one parent process, which are likely to be of one run, all of which waited when the window began."""

    pids: tuple[int, ...]
    until: float
    """When all will have waited for 5 seconds (monotonic)."""
    switches: list[str | None]
    moved: bool
    """Whether one of them made calls in the window: they wait since then at the earliest."""


def _find_waiting(observation: Observation, moving: frozenset[int]) -> list[_Waiting]:
    groups: dict[int, list[Target]] = {}
    for rank in observation.ranks():
        if rank.state not in "ZX":
            groups.setdefault(rank.ppid, []).append(rank)
    waiting = []
    for ranks in groups.values():
        rests = [since for rank in ranks if (since := rank.rests_since) is not None]
        if len(rests) == len(ranks):
            pids = tuple(rank.pid for rank in ranks)
            moved = not moving.isdisjoint(pids)
            since = time.monotonic() if moved else max(rests)
            waiting.append(_Waiting(pids, since + _LONGEST_STEP_SECONDS, _read_switches(observation.proc, pids), moved))
    return waiting


def _read_switches(proc: ProcFS, pids: tuple[int, ...]) -> list[str | None]:
    """How often the main threads have given up their processors; None for one that can't be read."""
    switches = []
    for pid in pids:
        try:
            switches += proc.fields(str(pid), "voluntary_ctxt_switches")
        except ProcError:
            switches.append(None)
    return switches
