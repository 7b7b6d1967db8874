"""The system call that a thread is in: its name, its arguments, and how long it lasts at most.

The names depend on this machine's architecture: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of
Linux. The tables have only the calls that a diagnosis distinguishes. Importing a library with all calls of all architectures
would take longer than a diagnosis.
"""

import os
import struct
import time
from collections.abc import Sequence

from hangdoc.parse import integer
from hangdoc.procfs import ProcError, ProcFS

RESTART = "restart_syscall"
"""Shown for a call with a timeout that a ptrace pause has interrupted (restart_syscall(2)). The registers still have the
arguments of the original call."""
_INTERRUPTED = {
    "poll_schedule_timeout": "poll",
    "futex_": "futex",
    "hrtimer_nanosleep": "nanosleep",
    "do_nanosleep": "nanosleep",
    "do_syscall_64": "nanosleep",
}
"""The original call, by the kernel function in which the thread waits. In Linux 6.18, wchan shows no more than do_syscall_64 of a
sleep that was restarted; the other calls have functions of their own there too."""
_LEAST_ADDRESS = 4096
_X86_64 = {
    0: "read", 1: "write", 2: "open", 4: "stat", 6: "lstat", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv",
    20: "writev", 21: "access", 23: "select", 26: "msync", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync",
    75: "fdatasync", 83: "mkdir", 87: "unlink", 128: "rt_sigtimedwait", 130: "rt_sigsuspend", 202: "futex", 217: "getdents64",
    219: RESTART, 230: "clock_nanosleep", 232: "epoll_wait", 242: "mq_timedsend", 243: "mq_timedreceive",
    247: "waitid", 257: "openat", 262: "newfstatat", 269: "faccessat", 270: "pselect6", 271: "ppoll", 275: "splice",
    281: "epoll_pwait", 285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg", 307: "sendmmsg",
    332: "statx", 437: "openat2", 439: "faccessat2", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip
_AARCH64 = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 34: "mkdirat", 35: "unlinkat", 47: "fallocate", 48: "faccessat",
    56: "openat", 61: "getdents64", 63: "read", 64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64",
    69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6", 73: "ppoll", 76: "splice", 79: "newfstatat", 82: "fsync",
    83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep",
    128: RESTART, 133: "rt_sigsuspend", 137: "rt_sigtimedwait", 182: "mq_timedsend", 183: "mq_timedreceive", 202: "accept",
    203: "connect",
    206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 227: "msync", 242: "accept4", 243: "recvmmsg",
    260: "wait4", 269: "sendmmsg", 291: "statx", 437: "openat2", 439: "faccessat2", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip
_TABLES = {"x86_64": _X86_64, "aarch64": _AARCH64}

WITH_FILE = frozenset(
    ["read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "connect", "accept", "accept4", "sendto",
     "recvfrom", "sendmsg", "recvmsg", "recvmmsg", "sendmmsg", "fcntl", "flock", "fsync", "fdatasync", "getdents64", "ioctl",
     "fallocate", "sendfile", "splice", "mq_timedsend", "mq_timedreceive"]
)  # fmt: skip
"""Their first argument is a file descriptor."""
WRITES = frozenset({"write", "writev"})
SENDS = WRITES | {"sendto", "sendmsg", "sendmmsg", "sendfile"}
"""Of these, those that write to it. At a socket or a pipe, they wait until the other end reads."""
MESSAGE_QUEUES = {"mq_timedsend": True, "mq_timedreceive": False}
"""The calls at a POSIX message queue (mq_overview(7)), and whether each one writes."""
WITH_PATH = {
    "open": 0, "stat": 0, "lstat": 0, "access": 0, "mkdir": 0, "unlink": 0, "openat": 1, "newfstatat": 1, "faccessat": 1,
    "statx": 1, "openat2": 1, "faccessat2": 1, "mkdirat": 1, "unlinkat": 1,
}  # fmt: skip
"""Index of the argument that is a path."""
FUTEX = "futex"
SLEEPS = frozenset({"nanosleep", "clock_nanosleep"})
CHILD_WAITS = frozenset({"wait4", "waitid"})
"""They wait for the end of a child process. torch has none to wait for in C++."""
LOCKS = frozenset({"fcntl", "flock"})
"""They wait for a lock on a file."""
POLLS = frozenset({"poll", "ppoll"})
"""Their arguments are an array of `struct pollfd` and its length."""
SELECTS = frozenset({"select", "pselect6"})
EPOLLS = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2"})
_ABSOLUTE = 1
"""TIMER_ABSTIME: the argument is the time at which the sleep ends. Python uses it."""


_SIGN = 1 << 31
"""Of an int. The upper half of a register with an int is undefined."""
_TIMEOUTS = {
    "futex": 3,
    "ppoll": 2,
    "select": 4,
    "pselect6": 4,
    "epoll_pwait2": 3,
    "futex_waitv": 3,
    "rt_sigtimedwait": 2,
    "mq_timedsend": 4,
    "mq_timedreceive": 4,
}
"""Index of the argument that points to the timeout."""
_MILLISECONDS = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}
"""Index of the argument that is the timeout, negative for none."""
_OTHER_UNITS = frozenset({"select", "futex_waitv", *MESSAGE_QUEUES})
"""Their timeouts are in microseconds, have a clock of their own, or are times of day."""
_FUTEX_COMMAND = 0x7F
_FUTEX_WAIT_BITSET = 9
"""Its timeout is absolute (futex(2)); that of FUTEX_WAIT is a duration."""
_FUTEX_CLOCK_REALTIME = 256
_UNTIMED = WITH_FILE - {"connect", "ioctl", *MESSAGE_QUEUES} | {"wait4", "waitid", "pause", "rt_sigsuspend"}


def timed(call: str, arguments: list[int]) -> bool | None:
    """Whether a call ends after some time even if nothing else happens; None if that is not known. A socket that was given a
    timeout (socket(7)) is not recognised; Python's sockets poll instead."""
    if call in SLEEPS:
        return True
    if call in _TIMEOUTS and len(arguments) > _TIMEOUTS[call]:
        return arguments[_TIMEOUTS[call]] != 0
    if call in _MILLISECONDS and len(arguments) > _MILLISECONDS[call]:
        return not arguments[_MILLISECONDS[call]] & _SIGN
    return False if call in _UNTIMED else None


def milliseconds(call: str, arguments: list[int]) -> int | None:
    """The timeout of a call that takes it as a number; None for a call without one, or without a timeout."""
    place = _MILLISECONDS.get(call, len(arguments))
    return arguments[place] & _SIGN - 1 if place < len(arguments) and timed(call, arguments) else None


def timeout_address(call: str, arguments: list[int]) -> tuple[int, int | None] | None:
    """Where the timeout of a call is that takes a pointer to two integers, seconds and nanoseconds, and the clock whose time it
    is; no clock if it is a duration. None for another call, or without a timeout."""
    place = _TIMEOUTS.get(call, len(arguments))
    if place >= len(arguments) or not arguments[place] or call in _OTHER_UNITS:
        return None
    clock = None
    if call == FUTEX and arguments[1] & _FUTEX_COMMAND == _FUTEX_WAIT_BITSET:
        clock = time.CLOCK_REALTIME if arguments[1] & _FUTEX_CLOCK_REALTIME else time.CLOCK_MONOTONIC
    return arguments[place], clock


def interrupted(wchan: str | None, arguments: Sequence[int] = ()) -> str | None:
    """The original call of a restart_syscall with these arguments; None if `wchan` does not show it."""
    call = next((call for function, call in _INTERRUPTED.items() if (wchan or "").startswith(function)), None)
    # Both sleeps wait in one function. The first argument is the address of a time, or the number of a clock.
    return "clock_nanosleep" if call == "nanosleep" and arguments and arguments[0] < _LEAST_ADDRESS else call


def name(number: int, machine: str | None = None) -> str:
    """The name of a system call on `machine` (default: this one); its number as text if the table has no name. Empty for -1,
    which the kernel shows for a thread outside of any call."""
    if number < 0:
        return ""
    return _TABLES.get(machine or os.uname().machine, {}).get(number, str(number))


def current(proc: ProcFS, task: str) -> tuple[str | None, list[int]]:
    """The system call that a process or thread (`PID`, `PID/task/TID`) is in, and its six arguments; None and no arguments if the
    kernel shows none (proc_pid_syscall(5)). Raises ProcError, and ValueError for what can't be read."""
    words = proc.text(f"{task}/syscall").split()
    number = integer(words[0]) if words else None
    call = name(number) if number is not None else None
    return call, [int(word, 16) for word in words[1:7]] if len(words) > 6 else []


def stack_pointer(proc: ProcFS, task: str) -> int | None:
    """The top of the stack of a thread (`PID/task/TID`); None while it runs. Raises ProcError, and ValueError for what can't be
    read."""
    words = proc.text(f"{task}/syscall").split()
    return int(words[-2], 16) if len(words) > 2 else None


def sleep(proc: ProcFS, pid: int, call: str, arguments: list[int]) -> tuple[float, bool] | None:
    """How long a sleep is, in seconds, and whether that is counted from now: otherwise from its beginning. None for any
    other call. Raises ValueError for what can't be read."""
    if call not in SLEEPS:
        return None
    clock, flags, request = (
        (arguments[0], arguments[1], arguments[2]) if call == "clock_nanosleep" else (0, 0, arguments[0])
    )
    raw = memory(proc, pid, request, 16)
    if len(raw) < 16:
        return None
    seconds, nanoseconds = struct.unpack("=qq", raw)
    requested: float = seconds + nanoseconds / 1e9
    if not flags & _ABSOLUTE:
        return requested, False
    try:
        return max(0.0, requested - time.clock_gettime(clock)), True
    except (OSError, OverflowError):  # a clock id that is invalid in this process, such as the CPU time of another one
        return None


def sleep_seconds(proc: ProcFS, pid: int, call: str, arguments: list[int]) -> float | None:
    """The seconds that a sleep lasts at most from now; None for any other call. Raises ValueError for what can't be read."""
    lasts = sleep(proc, pid, call, arguments)
    return lasts[0] if lasts is not None else None


def sleep_of_thread(proc: ProcFS, pid: int, task: str) -> tuple[float, bool] | None:
    """How long the sleep of a thread is, as for `sleep`; None if it does not sleep or can't be read."""
    try:
        call, arguments = current(proc, task)
        return sleep(proc, pid, call, arguments) if call and arguments else None
    except (ProcError, ValueError):
        return None


def timeout(proc: ProcFS, pid: int, call: str, arguments: list[int]) -> tuple[float, bool] | None:
    """The timeout of a call other than a sleep, in seconds, and whether it is counted from now: otherwise from the beginning of
    the call. None for a call without a timeout. Raises ValueError for what can't be read."""
    if (count := milliseconds(call, arguments)) is not None:
        return count / 1000, False
    if (place := timeout_address(call, arguments)) is None:
        return None
    address, clock = place
    raw = memory(proc, pid, address, 16)
    if len(raw) < 16:
        return None
    seconds, nanoseconds = struct.unpack("=qq", raw)
    total: float = seconds + nanoseconds / 1e9
    return (total, False) if clock is None else (max(0.0, total - time.clock_gettime(clock)), True)


def memory(proc: ProcFS, pid: int, address: int, size: int) -> bytes:
    """Up to `size` bytes of the memory of a process. Raises ValueError for what can't be read."""
    try:
        descriptor = proc.open_descriptor(f"{pid}/mem")
        try:
            return os.pread(descriptor, size, address)
        finally:
            os.close(descriptor)
    except (ProcError, OSError, OverflowError) as error:
        raise ValueError(str(error)) from error
