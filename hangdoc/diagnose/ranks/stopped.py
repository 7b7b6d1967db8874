"""Whether a process is stopped: by a signal, a frozen control group or a tracer, at both ends of the window.

A tracer that is there for a moment is another observer (py-spy, hangdoc), and so is one that comes back: its py-spy is
another process, or the rank has run in between.
"""

from typing import Literal, NamedTuple

from hangdoc.snapshot import Clocks, KernelState, Process


class Stop(NamedTuple):
    """What holds a process, and how that is said."""

    by: Literal["freezer", "tracer", "signal"]
    why: str


def stopped_by(process: Process) -> Stop | None:
    """What holds a process over the whole window; None for one that can run."""
    start = process.at_start or KernelState(
        state=process.state, tracer_pid=process.tracer_pid, tracer=process.tracer, frozen=process.frozen
    )
    if process.frozen and start.frozen:
        return Stop("freezer", "its control group is frozen")
    if process.at_start is None and process.tracer_pid:  # an older bundle: nobody looked at the start
        return Stop("tracer", f"held by a debugger (pid {process.tracer_pid})")
    if process.state not in "Tt" or start.state not in "Tt":
        return None
    if "T" in (process.state, start.state):
        return Stop("signal", "stopped by a signal (state T)")
    if process.tracer_pid != start.tracer_pid or _ran(process):
        return None
    who = f"{process.tracer or 'a debugger'} (pid {process.tracer_pid})" if process.tracer_pid else "a tracer"
    return Stop("tracer", f"held by {who}")


def _ran(process: Process) -> bool:
    """Whether the main thread was on a processor in the window: a debugger may hold it alone."""
    threads = process.clocks.threads if isinstance(process.clocks, Clocks) else ()
    return any(t.cpu_ns or t.voluntary_switches for t in threads if t.tid == process.pid)
