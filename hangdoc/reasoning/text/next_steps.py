"""The commands that findings suggest: to see a process again, or to let it continue.

People paste them into a shell, often root's, and agents run them; and hosts, bundles and processes choose the addresses, paths
and names in them. So a command is a list of words, and only this module makes a line of it.
"""

import ipaddress
import shlex
from collections.abc import Iterable, Sequence

from msgspec import Struct

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.model.rank import Rank
from hangdoc.regex import regex
from hangdoc.snapshot import Process, Unavailable

_HOST = regex(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?(?:#\d{1,6})?")
"""A host name, with the number that machines of one name get."""


class Command(Struct, frozen=True):
    """One command."""

    words: tuple[str, ...]
    into: tuple[str, ...] = ()
    """The words of a command that reads its output."""
    host: str = ""
    """Where to run it; empty for the host of the rank."""
    note: str = ""
    """A remark in hangdoc's own words."""
    constant: str = ""
    """Instead of words: a line of which hangdoc has written every character."""

    @property
    def line(self) -> str:
        """For a shell. Every word is quoted; the host is left out if it is no host name."""
        line = self.constant or " | ".join(shlex.join(words) for words in (self.words, self.into) if words)
        note = f"on {self.host}" if is_host(self.host) else self.note
        return f"{line}   # {note}" if note else line


def command(*words: str, host: str = "", note: str = "") -> Command:
    """A command of these words."""
    return Command(words, host=host, note=note)


def constant(line: str, note: str = "") -> Command:
    """A line that is written in the source, for shell syntax such as `$(hostname)`."""
    return Command((), constant=line, note=note)


def to_host(*words: str, address: str, host: str = "", note: str = "") -> tuple[Command, ...]:
    """A command about an address or a host name, which is one of the words; none if the text is neither."""
    return (Command(words, host=host, note=note),) if is_host(address) else ()


def operand(path: str) -> str:
    """A path as a word that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def is_host(text: str) -> bool:
    """Whether a text can be an IP address or the name of a host."""
    if _HOST.fullmatch(text):
        return True
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return isinstance(address, ipaddress.IPv4Address) or is_host(address.scope_id or "x")


class WithRemedy(Evidence, frozen=True):
    """Evidence that shows what must change: its remedy replaces the usual one of the rule. Where a finding has several, the first
    one counts."""

    remedy: str


# --- what to do next --------------------------------------------------------------------------------------------------


def show(pids: Iterable[int]) -> tuple[Command, ...]:
    """The command that shows some processes and where in the kernel each waits; none for no process."""
    listed = ",".join(map(str, pids))
    return (command("ps", "-o", "pid,ppid,stat,wchan:20,etime,args", "-p", listed),) if listed else ()


def list_file(path: str | None) -> tuple[Command, ...]:
    """The command that shows the owner and the age of a file, or that it is not there; none for no path."""
    return (command("ls", "-l", operand(path)),) if path is not None else ()


RESUME = {
    "freezer": "Thaw the control group: write 0 to its cgroup.freeze (version 1: THAWED to freezer.state).",
    "tracer": "Let the debugger continue or detach.",
    "signal": "Find out who stopped the process, then continue it with SIGCONT.",
}
"""The remedy for a stopped process, by what stopped it (`holds.Stopped.by`)."""


def resume(processes: Sequence[Process], by: str) -> tuple[Command, ...]:
    """The command that continues processes of one host, or shows what stopped them; none for the freezer."""
    tracers = sorted({process.tracer_pid for process in processes if process.tracer_pid})
    if by == "tracer" and tracers:
        return (command("ps", "-p", ",".join(map(str, tracers)), "-o", "pid,user,args"),)
    return continue_after_signal([process.pid for process in processes], by)


def continue_after_signal(pids: Sequence[int], by: str) -> tuple[Command, ...]:
    """The command that continues processes, if a signal has stopped them; none for anything else."""
    return (command("kill", "-CONT", *map(str, pids)),) if by == "signal" and pids else ()


KERNEL_LOG = constant("dmesg -T | grep -i -E 'oom|killed process|segfault|traps:' | tail")
"""The command that shows whether the kernel has killed a process for its memory, or reported a fault of its code (`traps:` is a
general protection fault, an invalid instruction or a division by zero)."""

_REFUSED = ("permission denied", "ptrace")
"""In the reason for which a stack could not be read: rights are missing."""


def settle(process: Process | None) -> tuple[Command, ...]:
    """The command that shows what a process does whose stack could not be read; none for no process."""
    if process is None or not process.pid:
        return ()
    reason = process.stack.reason if isinstance(process.stack, Unavailable) else ""
    if any(word in reason for word in _REFUSED):
        return (command("sudo", "hangdoc", "diagnose", "--pid", str(process.owner or process.pid)),)
    if "not installed" in reason:
        return (command("pip", "install", "py-spy", note="in the environment of hangdoc, then run hangdoc again"),)
    return stack_of(process.pid)


def look_again(which: Rank | Process) -> tuple[Command, ...]:
    """The command that shows the stack of a process, also if hangdoc could not read it."""
    process = which if isinstance(which, Process) else which.process
    return settle(process) if process is not None else ()


def stack_of(pid: int) -> tuple[Command, ...]:
    """The same for a pid."""
    return (command("py-spy", "dump", "--pid", str(pid)),)
