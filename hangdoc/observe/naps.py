"""Short sleeps that end soon after the window. What works between two of them (a rate limit, a paced loop) shows it then."""

from hangdoc.observe import files, syscalls
from hangdoc.observe.observation import Observation
from hangdoc.observe.procfs import ProcError, ProcFS
from hangdoc.parse import integer

_LONGEST = 3.0
"""Seconds. A longer sleep is not waited for: the report would come too late."""
_AWAKE = 0.2
"""Seconds for the work after the sleep."""


def until_awake(observation: Observation) -> float:
    """Seconds until each rank and helper whose main thread is in a short sleep has woken and worked; 0 where none is."""
    sleeps = (
        _rest(observation.proc, target.pid) for target in observation.alive() if target.role in ("rank", "helper")
    )
    longest = max((seconds for seconds in sleeps if seconds <= _LONGEST), default=0.0)
    return longest + _AWAKE if longest else 0.0


def _rest(proc: ProcFS, pid: int) -> float:
    """Seconds that the main thread's sleep goes on; 0 for none, and where it can't be read."""
    try:
        words = proc.text(f"{pid}/syscall").split()
        number = integer(words[0]) if words else None
        call = syscalls.name(number) if number is not None else None
        if call is None or len(words) < 7:
            return 0.0
        return files.sleep_seconds(proc, pid, call, [int(word, 16) for word in words[1:7]]) or 0.0
    except (ProcError, ValueError):
        return 0.0
