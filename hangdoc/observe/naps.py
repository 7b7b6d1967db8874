"""Short sleeps of ranks that end soon after the window. A loop with a sleep in it (a rate limit) makes progress only after it."""

from hangdoc.observe import files
from hangdoc.observe.observation import Observation
from hangdoc.procfs import ProcError, ProcFS

_MAX_SLEEP_SECONDS = 3.0
"""hangdoc does not wait for a longer sleep: the report would come too late."""
_WORK_SECONDS = 0.2
"""Time for the work after the sleep."""


def seconds_until_awake(observation: Observation) -> float:
    """Seconds until all main threads of ranks and helpers in a short sleep have woken up and worked; 0 if none sleeps."""
    sleeps = (
        _sleep_left(observation.proc, target.pid) for target in observation.alive() if target.role in ("rank", "helper")
    )
    longest = max((seconds for seconds in sleeps if seconds <= _MAX_SLEEP_SECONDS), default=0.0)
    return longest + _WORK_SECONDS if longest else 0.0


def _sleep_left(proc: ProcFS, pid: int) -> float:
    """Seconds until the main thread wakes up; 0 if it does not sleep or can't be read."""
    try:
        call, arguments = files.system_call(proc, str(pid))
        return (files.sleep_seconds(proc, pid, call, arguments) or 0.0) if call and arguments else 0.0
    except (ProcError, ValueError):
        return 0.0
