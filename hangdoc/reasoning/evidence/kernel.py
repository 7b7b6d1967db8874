"""What the kernel says: of a process, whether it is stopped, how it ended, and what it waits for in a system call; of a card, its
errors in the kernel log.
"""

import signal
from typing import Literal, NamedTuple, get_args

from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.holds import Stopped
from hangdoc.snapshot import AwaitedFile, CardEvent, KernelState, KernelThread, Process

_SIGNALS = frozenset(signal.Signals)
_OBSERVERS = frozenset({"py-spy"})
"""Tracers that let go by themselves. On a busy machine, a dump of native frames may take longer than the observation."""
_RAN_NS = 1_000_000
_RAN_SWITCHES = 4
"""A tracer that attaches to a stopped process and leaves it stopped lets it run for some microseconds, once or twice."""
STOPPED_BY_SIGNAL = "stopped by a signal (state T)"
"""It follows `is` in a sentence."""


def stopped_by(process: Process) -> Stopped | None:
    """What stops a process during the whole observation (a signal, a frozen control group or a tracer); None for a
    process that can run. A short stop does not count: a tracer that attaches for a moment is another observer (py-spy,
    hangdoc), and a CPU limiter stops and continues a rank several times a second."""
    start = process.at_start or KernelState(
        state=process.state, tracer_pid=process.tracer_pid, tracer=process.tracer, frozen=process.frozen
    )
    if process.frozen and start.frozen:
        return Stopped(by="freezer", why="frozen by its control group")
    if process.state not in "Tt" or start.state not in "Tt":
        return None
    if "T" in (process.state, start.state):
        continued = _ran(process, ns=_RAN_NS, switches=_RAN_SWITCHES)
        return None if continued else Stopped(by="signal", why=STOPPED_BY_SIGNAL)
    if process.tracer in _OBSERVERS or process.tracer_pid != start.tracer_pid or _ran(process, ns=1, switches=1):
        return None
    who = f"{process.tracer or 'a debugger'} (pid {process.tracer_pid})" if process.tracer_pid else "a tracer"
    return Stopped(by="tracer", why=f"held by {who}")


def _ran(process: Process, *, ns: int, switches: int) -> bool:
    """Whether the main thread ran during the observation, for at least `ns` or `switches`. A debugger may hold it alone."""
    main = [thread for thread in observed.threads(process) if thread.tid == process.pid]
    return any(t.cpu_ns >= ns or (t.voluntary_switches or 0) >= switches for t in main)


def how_it_ended(process: Process) -> str:
    """The exit code or signal of a process that has ended, as text (waitpid(2))."""
    return describe_exit_code(process.exit_code) if process.exit_code is not None else "exit status unknown"


def describe_exit_code(code: int) -> str:
    """An exit code or signal as text. `code`: as waitpid(2) and /proc/PID/stat have it."""
    if code & 0x7F:
        number = code & 0x7F
        return f"killed by {signal.Signals(number).name if number in _SIGNALS else f'signal {number}'}"
    return f"exited with code {code >> 8 & 0xFF}"


def was_ended_by_signal(process: Process) -> bool:
    """Whether a signal has ended a process."""
    return bool(_find_ending_signal(process))


def was_terminated(process: Process) -> bool:
    """Whether SIGTERM has ended a process."""
    return _find_ending_signal(process) == signal.SIGTERM


def was_killed(process: Process) -> bool:
    """Whether SIGKILL has ended a process."""
    return _find_ending_signal(process) == signal.SIGKILL


def _find_ending_signal(process: Process) -> int | None:
    """The signal that has ended a process, 0 for none (waitpid(2)); None if its exit code is not known."""
    return process.exit_code & 0x7F if process.exit_code is not None else None


# --- system calls by what a thread waits for in them (names as in `KernelThread.syscall`) -----------------------------


SLEEP = frozenset({"nanosleep", "clock_nanosleep"})
CHILD = frozenset({"wait4", "waitid"})
READ = frozenset({"read", "pread64", "readv", "preadv", "mq_timedreceive"})
WRITE = frozenset({"write", "pwrite64", "writev", "pwritev", "sendfile", "splice", "mq_timedsend"})
ON_FILES = frozenset({"open", "openat", "openat2", "fsync", "fdatasync", "msync", "fallocate", "getdents64"})
FILE_LOCK = frozenset({"fcntl", "flock"})
NETWORK = frozenset(
    ["connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg", "recvmmsg", "sendmmsg", "poll", "ppoll",
     "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"]
)  # fmt: skip
EPOLL = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2"})
POLL = frozenset({"poll", "ppoll"})
EVENT_LOOP = EPOLL | POLL | {"pselect6", "select"}
RECEIVE = READ | {"recvfrom", "recvmsg", "recvmmsg"}
SEND = WRITE | {"sendto", "sendmsg", "sendmmsg"}
SIGNAL = frozenset({"pause", "rt_sigsuspend", "rt_sigtimedwait"})
FUTEX = "futex"
_EVENTS = {
    "anon_inode:inotify": "changes of files",
    "anon_inode:[fanotify]": "changes of files",
}
"""Files by which the kernel tells of what others do: inotify(7), fanotify(7)."""
_SIGNAL_FILE = "anon_inode:[signalfd]"
_TIMER = "anon_inode:[timerfd]"
_AT_DATAGRAM_SOCKET = "__skb_wait_for_more_packets"
"""The function of the kernel in which a read of an empty datagram socket waits. So does who accepts connections at a Unix
socket."""


def awaited_from_outside(thread: KernelThread) -> str | None:
    """What a thread waits for that only comes from outside of its process; None if it waits for anything else. Other sockets may
    be those of ranks, and a thread that accepts connections may do it for them."""
    if (told := next(filter(None, map(tells_of, thread.files)), None)) is not None:
        return told
    return "datagrams" if thread.wchan == _AT_DATAGRAM_SOCKET and thread.syscall in RECEIVE else None


def is_timer(file: AwaitedFile) -> bool:
    """Whether a file is a timer, by which a thread wakes itself (timerfd_create(2))."""
    return file.name == _TIMER


def brings_signals(file: AwaitedFile) -> bool:
    """Whether a read of a file waits for a signal (signalfd(2))."""
    return file.name == _SIGNAL_FILE


def tells_of(file: AwaitedFile) -> str | None:
    """What others do of which the kernel tells by a file; None for any other file."""
    return _EVENTS.get(file.name)


# --- errors of cards --------------------------------------------------------------------------------------------------
# From NVIDIA's catalog: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html


Weight = Literal["ends", "program", "link", "hint", "consequence"]
WEIGHTS: tuple[Weight, ...] = get_args(Weight)
"""`ends`: kernels on the card end or never finish. `program`: a kernel of a process did something that is not allowed, and all
its kernels end. `link`: data may not pass between cards. `hint`: the card may fail. `consequence`: it follows from another error
or from the end of a process, and alone shows nothing. The strongest first."""


class Xid(NamedTuple):
    """One kind of error."""

    weight: Weight
    meaning: str
    """One clause about the card."""


_XIDS = {
    13: Xid("program", "a kernel failed (graphics engine exception)"),
    31: Xid("program", "a kernel used an invalid address (MMU fault)"),
    43: Xid("consequence", "the driver ended the kernels of a process"),
    45: Xid("consequence", "a process with kernels on it ended"),
    46: Xid("ends", "it stopped processing"),
    48: Xid("ends", "its memory has an error that ECC could not correct"),
    62: Xid("ends", "one of its controllers halted"),
    63: Xid("consequence", "a row of its memory is going to be replaced"),
    64: Xid("hint", "a row of its memory could not be replaced"),
    74: Xid("link", "an NVLink has an error"),
    79: Xid("ends", "it has fallen off the bus"),
    92: Xid("hint", "its memory has many errors that ECC corrects"),
    94: Xid("ends", "its memory has an uncorrected error, and the kernels of one process ended"),
    95: Xid("ends", "its memory has an uncorrected error, and the kernels of all processes ended"),
    109: Xid("ends", "a context switch on it took too long"),
    119: Xid("ends", "its system processor (GSP) does not answer the driver"),
    120: Xid("ends", "its system processor (GSP) has failed"),
    137: Xid("program", "another card made an access over NVLink that is not allowed"),
    140: Xid("ends", "its memory has an error that ECC could not correct"),
    143: Xid("ends", "it could not be initialized"),
    **dict.fromkeys(range(144, 151), Xid("link", "an NVLink has an error")),
    154: Xid("hint", "the driver asks for a reset of it"),
    155: Xid("link", "an NVLink is down"),
    158: Xid("ends", "it has a fatal timeout"),
    167: Xid("ends", "it has a fatal timeout on the PCI bus"),
}
_OTHER = Xid("consequence", "its driver reports an error")
_OF_PROCESS = frozenset((13, 31, 43, 45, 94, 109, 137))
"""Errors that end only the kernels of the process that the message names."""
_NOT_FATAL = ("Nonfatal", "Non-fatal")


def meaning_of(event: CardEvent) -> Xid:
    """What an error means. A link error that calls itself not fatal is a hint."""
    if event.kind == "SXid":
        weight: Weight = "link" if event.text.startswith("Fatal") else "hint"
        return Xid(weight, "a switch between the cards has an error")
    xid = _XIDS.get(event.number, _OTHER)
    if xid.weight == "link" and any(word in event.text.split() for word in _NOT_FATAL):
        return xid._replace(weight="hint")
    return xid


def concerns_process_alone(event: CardEvent) -> bool:
    """Whether an error concerns only the process that its message names, and not the other ones on the card."""
    return event.kind == "Xid" and event.pid is not None and event.number in _OF_PROCESS


def name_of(event: CardEvent) -> str:
    """`Xid 79`."""
    return f"{event.kind} {event.number}"
