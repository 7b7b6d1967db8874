"""How long to observe a run after its window: until short sleeps of ranks have ended, and until a stop has lasted.

A loop with a sleep in it (a rate limit) makes progress only after it. A CPU limiter stops a rank for seconds, again and again.
"""

import time

from hangdoc.observe import system_calls
from hangdoc.observe.observation import Observation
from hangdoc.procfs import ProcError, ProcFS

_MAX_SLEEP_SECONDS = 3.0
"""hangdoc does not wait for a longer sleep: the report would come too late."""
_STOP_SECONDS = 6.0
"""A rank that has been stopped for a shorter time may be stopped by a CPU limiter, which continues it."""
_WORK_SECONDS = 0.2
"""Time for the work after the sleep."""


def seconds_until_settled(observation: Observation) -> float:
    """Seconds until all main threads of ranks and helpers in a short sleep have woken up and worked, and until stopped ranks have
    been stopped for 6 seconds; 0 if none sleeps or is stopped."""
    sleeps = (
        _sleep_left(observation.proc, target.pid) for target in observation.alive() if target.role in ("rank", "helper")
    )
    longest = max((seconds for seconds in sleeps if seconds <= _MAX_SLEEP_SECONDS), default=0.0)
    now = time.monotonic()
    stops = [rank.last_run - now + _STOP_SECONDS for rank in observation.ranks() if rank.state == "T" and rank.last_run]
    return max([longest + _WORK_SECONDS if longest else 0.0, *stops])


def _sleep_left(proc: ProcFS, pid: int) -> float:
    """Seconds until the main thread wakes up; 0 if it does not sleep or can't be read."""
    try:
        call, arguments = system_calls.current(proc, str(pid))
        return (system_calls.sleep_seconds(proc, pid, call, arguments) or 0.0) if call and arguments else 0.0
    except (ProcError, ValueError):
        return 0.0
