"""How long a thread sleeps, and whether it then continues or only checks a condition again."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from hangdoc.phrases import duration
from hangdoc.program import around, ends_at_a_time, seconds_left, tests_files
from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence.records import last_call, shortest_timeout
from hangdoc.reasoning.evidence.stack import innermost_user_frame, user_frames
from hangdoc.reasoning.model.holds import Asleep
from hangdoc.reasoning.ranks.counters import has_end, read_float
from hangdoc.reasoning.ranks.loader import calls_method, find_consumers
from hangdoc.reasoning.ranks.movement import find_kernel_thread, own_kernel_thread
from hangdoc.regex import regex
from hangdoc.snapshot import Frame, KernelThread, Loop, Process, PythonThread
from hangdoc.torch_facts.file_names import bare_name

_WAKES = 10
"""Wake-ups during the observation. Every read by py-spy, of any observer, wakes the thread once or twice."""
_LEAST_WORK_NS = 300_000
"""Of CPU time for each time that a thread woke. To look at a clock and sleep again takes less than 0.1 ms."""

LONG_SLEEP = 1.0
"""Seconds. A shorter sleep is a pause between two pieces of work."""
_A_DAY = 86_400.0
_READ_BEFORE = 10.0
"""Seconds. A stack is read so long before the clock of its host at most, if the machine is not slow."""


_ONLY_SLEEPS = regex(r"(while (True|1): *)?(\w+\.)?sleep\([\w.]*\)")
"""A line with nothing else in it."""


class HostClocks(NamedTuple):
    """The clocks of a host when it was observed, in microseconds; None if unknown."""

    monotonic_us: int | None = None
    wall_us: int | None = None


def describe_sleep(process: Process, thread: PythonThread, kernel: KernelThread | None) -> Asleep:
    """A sleep of a thread. A single one ends by itself, if that is before the ranks that wait give up."""
    polls, seconds = _polls(process, thread, kernel), kernel.sleep_seconds if kernel is not None else None
    short = not polls and seconds is not None and seconds <= shortest_timeout(process)
    return Asleep(
        polls=polls,
        seconds=seconds,
        period=seconds_of_sleep(kernel),
        ends="by-itself" if short else "unknown",
        asks_nothing=polls and _only_sleeps(thread),
    )


def _only_sleeps(thread: PythonThread) -> bool:
    """Whether a thread sleeps at the only line of a loop without an end."""
    frame, loop = _find_loop(thread) or (None, None)
    if frame is None or loop is None or loop.exits or loop.header not in ("while True", "while 1"):
        return False
    only = frame.line == loop.end_line <= loop.line + 1 and _is_innermost(thread, frame)
    return only and _ONLY_SLEEPS.fullmatch(frame.source or "") is not None


def is_polling(process: Process, thread: PythonThread, kernel: KernelThread | None) -> bool:
    """Whether a thread sleeps between two checks of a condition."""
    asleep = kernel is not None and kernel.syscall in system_calls.SLEEP
    return asleep and describe_sleep(process, thread, kernel).polls


def is_between_sleeps(kernel: KernelThread | None) -> bool:
    """Whether a thread that woke often was read while it ran: it is in a loop that sleeps, and checked its condition just then.
    Its state and the function of the kernel are read a moment later than its system call."""
    if kernel is None or kernel.syscall or not _woke_often(kernel):
        return False
    return kernel.state == "R" or "nanosleep" in (kernel.wchan or "")


def _woke_often(kernel: KernelThread) -> bool:
    return (kernel.voluntary_switches or 0) >= _WAKES


def polls_for_files(thread: PythonThread, kernel: KernelThread | None) -> Frame | None:
    """The frame in which a thread sleeps between two tests of files; None if it does not."""
    own = innermost_user_frame(thread)
    loops = around(own) if own is not None and kernel is not None and kernel.syscall in system_calls.SLEEP else []
    return own if loops and tests_files(loops[-1]) else None


def find_timed_wait(process: Process, thread: PythonThread, kernel: KernelThread | None) -> Asleep | None:
    """A sleep in a call that is not one: an event loop whose only file is its own waits for the next of its timers, and a
    thread waits for an event or a signal, with a timeout. None if the thread waits for anything else."""
    whole = kernel.timeout_seconds if kernel is not None else None
    if kernel is None or whole is None:
        return None
    left = max(0.0, whole - kernel.idle_seconds) if kernel.idle_seconds is not None else None
    holders = [holder.pid for file in kernel.files for holder in file.holders or ()]
    if (
        kernel.syscall in system_calls.EVENT_LOOP
        and len(holders) == len(kernel.files)
        and set(holders) == {process.pid}
    ):
        return Asleep(seconds=left, period=whole)
    if kernel.syscall in system_calls.SIGNAL or (kernel.syscall == system_calls.FUTEX and _waits_for_an_event(thread)):
        polls = _polls(process, thread, kernel)
        return Asleep(polls=polls, seconds=left, period=whole)
    return None


def seconds_of_turn(thread: PythonThread, kernel: KernelThread) -> float | None:
    """How long the sleep of a thread takes after which it may end the wait of another one, in seconds: a sleep of the user's
    code, a wait with a timeout, a timer. None for any other thread."""
    if kernel.sleep_seconds is not None:
        return seconds_of_sleep(kernel) if user_frames(thread) else None
    return kernel.timeout_seconds if _waits_for_an_event(thread) or _is_timer(thread) else None


def find_long_sleep(process: Process, thread: PythonThread) -> float | None:
    """Seconds of the sleep in which a line of the user's code is itself; None for a thread in anything else, and in a pause."""
    kernel, own = own_kernel_thread(process, thread), innermost_user_frame(thread)
    if kernel is None or own is None or not _is_innermost(thread, own) or kernel.syscall not in system_calls.SLEEP:
        return None
    seconds = seconds_of_sleep(kernel)
    return seconds if seconds is not None and seconds >= LONG_SLEEP else None


def find_sleeping_line(thread: PythonThread) -> Frame | None:
    """The line at which a thread is, if it only sleeps."""
    own = innermost_user_frame(thread)
    sleeps = own is not None and _is_innermost(thread, own) and _ONLY_SLEEPS.fullmatch(own.source or "") is not None
    return own if sleeps else None


def seconds_of_sleep(kernel: KernelThread | None) -> float | None:
    """Seconds from the beginning of a sleep to its end; None if unknown."""
    if kernel is None or kernel.sleep_seconds is None or kernel.whole_sleep_seconds is not None:
        return kernel.whole_sleep_seconds if kernel is not None else None
    return kernel.sleep_seconds + kernel.idle_seconds if kernel.idle_seconds is not None else None


def longest_sleep(children: Sequence[Process]) -> float | None:
    """How long the longest sleep of a child process is, such as that of a shell script between two attempts. None for none."""
    wholes = (seconds_of_sleep(find_kernel_thread(child, child.pid)) for child in children)
    return max((seconds for seconds in wholes if seconds is not None), default=None)


def _waits_for_an_event(thread: PythonThread) -> bool:
    """Whether the user's code itself waits for a `threading.Event` or `Condition`. It continues when that is set."""
    python = [frame for frame in thread.frames if not frame.native]
    inner = list(takewhile(lambda frame: frame.file.endswith("/threading.py"), python))
    own = user_frames(thread)
    return (
        bool(inner) and inner[-1].function.endswith("wait") and len(python) > len(inner) and python[len(inner)] in own
    )


def _is_timer(thread: PythonThread) -> bool:
    """Whether it is the thread of a `threading.Timer` before its time: `run` itself waits for an event there."""
    functions = [bare_name(frame.function) for frame in thread.frames if frame.file.endswith("/threading.py")]
    return functions[:3] == ["wait", "wait", "run"]


def _polls(process: Process, thread: PythonThread, kernel: KernelThread | None) -> bool:
    """Whether a sleep is one of many between two checks of a condition: the thread woke during the observation and sleeps at the
    same line again, or the innermost loop of the user's code around it runs until a condition holds and yields no data. Whether
    a time is over is no such condition: nothing else is waited for. Nor is it one of many if the loop has just made a call."""
    loop = _find_loop(thread)
    timed = loop is not None and ends_at_a_time(loop[1])
    if kernel is not None and _woke_often(kernel):
        return not (timed and loop is not None and _is_innermost(thread, loop[0]))
    if loop is None or timed or _follows_call(process, loop, kernel):
        return False
    return loop[1].header.startswith("while") or not has_end(loop[1])


def _follows_call(process: Process, loop: tuple[Frame, Loop], kernel: KernelThread | None) -> bool:
    """Whether a sleep is the first one since a loop has made its last call, by torch's record: a second one of that length had no
    time."""
    whole, slept = seconds_of_sleep(kernel), kernel.idle_seconds if kernel is not None else None
    if whole is None or slept is None:
        return False
    call, (frame, around_it) = last_call(process, None), loop
    return (
        call is not None
        and call.age_seconds - slept < whole
        and any(
            (each.file, each.function) == (frame.file, frame.function)
            and around_it.line <= each.line <= around_it.end_line
            for each in call.frames
        )
    )


def find_work_between_sleeps(
    process: Process, thread: PythonThread, kernel: KernelThread | None, clocks: HostClocks
) -> str | None:
    """What a thread does that uses the processor between two sleeps, in a loop that ends at a time: there, it waits for nothing.
    None for any other thread, and if that time is long over or more than a day away: then the loop does not show when it ends."""
    loop = _find_loop(thread)
    asleep = kernel is not None and (kernel.syscall in system_calls.SLEEP or is_between_sleeps(kernel))
    if kernel is None or not asleep or loop is None or not _is_innermost(thread, loop[0]):
        return None
    if not ends_at_a_time(loop[1]) or kernel.cpu_ns < _LEAST_WORK_NS * max(1, kernel.voluntary_switches or 0):
        return None
    frame, timed = loop
    left = seconds_left(timed, lambda name: read_float(process, frame, name), clocks.monotonic_us, clocks.wall_us)
    if left is not None and not -_READ_BEFORE < left <= _A_DAY:
        return None
    when = f"in {duration(left)}" if left is not None and left > 0 else "at a time"
    return f"it works between sleeps, in a loop that ends {when}"


def _is_innermost(thread: PythonThread, frame: Frame) -> bool:
    """Whether a frame sleeps itself, and no function that it has called."""
    return next((each for each in thread.frames if not each.native), None) is frame


def _find_loop(thread: PythonThread) -> tuple[Frame, Loop] | None:
    """The innermost loop of the user's code around a thread, with its frame; None if there is none, or if it yields data."""
    own = user_frames(thread)
    if consuming := find_consumers(thread):
        # The loop of the iterator itself may yield data; that of a function that the iterator calls does not.
        own = own[: own.index(consuming[0])]
        own = own if len(own) > 1 or calls_method(consuming[0]) else ()
    loops = around(own[0]) if own else []
    return (own[0], loops[-1]) if loops else None
