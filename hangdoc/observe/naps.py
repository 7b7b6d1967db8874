"""Short sleeps that end soon after the window. What works between two of them (a rate limit, a paced loop) shows it then."""

from hangdoc.observe import files
from hangdoc.observe.observation import Observation
from hangdoc.observe.procfs import ProcError, ProcFS

_MAX_SLEEP_SECONDS = 3.0
"""Seconds. A longer sleep is not waited for: the report would come too late."""
_WORK_SECONDS = 0.2
"""Seconds for the work after the sleep."""


def seconds_until_awake(observation: Observation) -> float:
    """Seconds until each rank and helper whose main thread is in a short sleep has woken and worked; 0 where none is."""
    sleeps = (
        _sleep_left(observation.proc, target.pid) for target in observation.alive() if target.role in ("rank", "helper")
    )
    longest = max((seconds for seconds in sleeps if seconds <= _MAX_SLEEP_SECONDS), default=0.0)
    return longest + _WORK_SECONDS if longest else 0.0


def _sleep_left(proc: ProcFS, pid: int) -> float:
    """Seconds that the main thread's sleep goes on; 0 for none, and where it can't be read."""
    try:
        call, arguments = files.system_call(proc, str(pid))
        return (files.sleep_seconds(proc, pid, call, arguments) or 0.0) if call and arguments else 0.0
    except (ProcError, ValueError):
        return 0.0
