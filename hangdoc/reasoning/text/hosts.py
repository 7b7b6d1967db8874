"""Sentences about hosts."""

from hangdoc.phrases import amount, numbers
from hangdoc.snapshot import Host, Machine, Process, Unavailable

_OVERLOADED = 2.0
"""The load for each core from which on programs wait at least as long for a core as they run."""
_NAMES = {
    "clocks": "CPU times",
    "stack": "stacks",
    "recorder": "records of calls",
    "interpreter": "variables",
    "loops": "loops",
    "files": "files",
}
"""What people call the evidence of a process, by its field."""


def describe_lateness(host: Host) -> tuple[str, ...]:
    """What of a host could not be read in time. Of an overloaded host, one sentence that says so."""
    machine = host.machine
    if not host.late or not isinstance(machine, Machine) or machine.load_1m < _OVERLOADED * machine.cores:
        return host.late
    missing = [
        f"{what} of pid{'s' * (len(pids) > 1)} {numbers(pids)}"
        for field, what in _NAMES.items()
        if (pids := [process.pid for process in host.processes if _was_missed(process, field)])
    ]
    return (
        f"the host is overloaded (load {machine.load_1m:.0f} on {amount(machine.cores, 'core')}): not read in time: "
        + "; ".join([*missing, f"{amount(len(host.late), 'reading')} in all"])
        + ". --verbose lists them",
    )


def _was_missed(process: Process, field: str) -> bool:
    value = getattr(process, field)
    return process.role == "rank" and isinstance(value, Unavailable) and value.was_tried
