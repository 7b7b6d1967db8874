"""Whether a process is stopped during the whole observation (by a signal, a frozen control group or a tracer), and how it ended.

A short stop does not count: a tracer that attaches for a moment is another observer (py-spy, hangdoc), and a CPU limiter stops
and continues a rank several times a second.
"""

import signal

from hangdoc.reasoning.evidence import known
from hangdoc.reasoning.model.holds import Stopped
from hangdoc.snapshot import KernelState, Process

_SIGNALS = frozenset(signal.Signals)
_OBSERVERS = frozenset({"py-spy"})
"""Tracers that let go by themselves. On a busy machine, a dump of native frames may take longer than the observation."""
_RAN_NS = 1_000_000
_RAN_SWITCHES = 4
"""A tracer that attaches to a stopped process and leaves it stopped lets it run for some microseconds, once or twice."""


def stopped_by(process: Process) -> Stopped | None:
    """What stops a process during the whole observation; None for a process that can run."""
    start = process.at_start or KernelState(
        state=process.state, tracer_pid=process.tracer_pid, tracer=process.tracer, frozen=process.frozen
    )
    if process.frozen and start.frozen:
        return Stopped(by="freezer", why="frozen by its control group")
    if process.at_start is None and process.tracer_pid:  # an older bundle, without the state at the start
        return Stopped(by="tracer", why=f"held by a debugger (pid {process.tracer_pid})")
    if process.state not in "Tt" or start.state not in "Tt":
        return None
    if "T" in (process.state, start.state):
        continued = process.at_start is not None and _ran(process, ns=_RAN_NS, switches=_RAN_SWITCHES)
        return None if continued else Stopped(by="signal", why="stopped by a signal (state T)")
    if process.tracer in _OBSERVERS or process.tracer_pid != start.tracer_pid or _ran(process, ns=1, switches=1):
        return None
    who = f"{process.tracer or 'a debugger'} (pid {process.tracer_pid})" if process.tracer_pid else "a tracer"
    return Stopped(by="tracer", why=f"held by {who}")


def _ran(process: Process, *, ns: int, switches: int) -> bool:
    """Whether the main thread ran during the observation, for at least `ns` or `switches`. A debugger may hold it alone."""
    main = [thread for thread in known.threads(process) if thread.tid == process.pid]
    return any(t.cpu_ns >= ns or (t.voluntary_switches or 0) >= switches for t in main)


def how_it_ended(process: Process) -> str:
    """The exit code or signal of a process that has ended, as text (waitpid(2))."""
    code = process.exit_code
    if code is None:
        return "exit status unknown"
    if code & 0x7F:
        number = code & 0x7F
        return f"killed by {signal.Signals(number).name if number in _SIGNALS else f'signal {number}'}"
    return f"exited with code {code >> 8 & 0xFF}"
