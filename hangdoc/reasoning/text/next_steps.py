"""The commands that a person runs next: to see a process again, or to let it continue."""

from collections.abc import Iterable, Sequence

from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.text.command_lines import Command, command
from hangdoc.snapshot import Process


def show(pids: Iterable[int]) -> tuple[Command, ...]:
    """The command that shows some processes; none for no process."""
    listed = ",".join(map(str, pids))
    return (command("ps", "-o", "pid,ppid,stat,etime,args", "-p", listed),) if listed else ()


RESUME = {
    "freezer": "Thaw the control group: write 0 to its cgroup.freeze (version 1: THAWED to freezer.state).",
    "tracer": "Let the debugger continue or detach.",
    "signal": "Find out who stopped the process, then continue it with SIGCONT.",
}
"""The remedy for a stopped process, by what stopped it (`holds.Stopped.by`)."""


def resume(processes: Sequence[Process], by: str) -> tuple[Command, ...]:
    """The command that continues processes of one host, or shows what stopped them; none for the freezer."""
    tracers = sorted({one.tracer_pid for one in processes if one.tracer_pid})
    if by == "tracer" and tracers:
        return (command("ps", "-p", ",".join(map(str, tracers)), "-o", "pid,user,args"),)
    return (command("kill", "-CONT", *(str(one.pid) for one in processes)),) if by == "signal" and processes else ()


def look_again(which: Rank | Process) -> tuple[Command, ...]:
    """The command that shows the stack of a process."""
    return stack_of(which.pid) if which.pid is not None else ()


def stack_of(pid: int) -> tuple[Command, ...]:
    """The same for a pid."""
    return (command("py-spy", "dump", "--pid", str(pid)),)
