"""The system call that a thread is in: its arguments, and how long it lasts at most."""

import os
import struct
import time

from hangdoc.observe import syscalls
from hangdoc.parse import integer
from hangdoc.procfs import ProcError, ProcFS

_ABSOLUTE = 1
"""TIMER_ABSTIME: the argument is the time at which the sleep ends. Python uses it."""


def current(proc: ProcFS, task: str) -> tuple[str | None, list[int]]:
    """The system call that a process or thread (`PID`, `PID/task/TID`) is in, and its six arguments; None and no arguments if the
    kernel shows none (proc_pid_syscall(5)). Raises ProcError, and ValueError for what can't be read."""
    words = proc.text(f"{task}/syscall").split()
    number = integer(words[0]) if words else None
    call = syscalls.name(number) if number is not None else None
    return call, [int(word, 16) for word in words[1:7]] if len(words) > 6 else []


def stack_pointer(proc: ProcFS, task: str) -> int | None:
    """The top of the stack of a thread (`PID/task/TID`); None while it runs. Raises ProcError, and ValueError for what can't be
    read."""
    words = proc.text(f"{task}/syscall").split()
    return int(words[-2], 16) if len(words) > 2 else None


def sleep_seconds(proc: ProcFS, pid: int, call: str, arguments: list[int]) -> float | None:
    """The seconds that a sleep lasts at most from now; None for any other call. Raises ValueError for what can't be read."""
    if call not in syscalls.SLEEPS:
        return None
    clock, flags, request = (
        (arguments[0], arguments[1], arguments[2]) if call == "clock_nanosleep" else (0, 0, arguments[0])
    )
    raw = memory(proc, pid, request, 16)
    if len(raw) < 16:
        return None
    seconds, nanoseconds = struct.unpack("=qq", raw)
    requested: float = seconds + nanoseconds / 1e9
    try:
        return max(0.0, requested - time.clock_gettime(clock)) if flags & _ABSOLUTE else requested
    except OSError:  # a clock id that is invalid in this process
        return None


def sleep_left(proc: ProcFS, pid: int, task: str) -> float | None:
    """The seconds that the sleep of a thread lasts from now; None if it does not sleep or can't be read."""
    try:
        call, arguments = current(proc, task)
        return sleep_seconds(proc, pid, call, arguments) if call and arguments else None
    except (ProcError, ValueError):
        return None


def timeout(proc: ProcFS, pid: int, call: str, arguments: list[int]) -> tuple[float, bool] | None:
    """The timeout of a call other than a sleep, in seconds, and whether it is counted from now: otherwise from the beginning of
    the call. None for a call without a timeout. Raises ValueError for what can't be read."""
    if (milliseconds := syscalls.milliseconds(call, arguments)) is not None:
        return milliseconds / 1000, False
    if (place := syscalls.timeout_address(call, arguments)) is None:
        return None
    address, clock = place
    raw = memory(proc, pid, address, 16)
    if len(raw) < 16:
        return None
    seconds, nanoseconds = struct.unpack("=qq", raw)
    given: float = seconds + nanoseconds / 1e9
    return (given, False) if clock is None else (max(0.0, given - time.clock_gettime(clock)), True)


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
