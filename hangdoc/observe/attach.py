"""The one way to attach to a process: it knows stopped, frozen and traced targets, and other observers.

A process has at most one tracer (ptrace(2)). While another py-spy, hangdoc, pystack or gdb is attached, a second attach
fails with EPERM, which looks like a lack of permission and is none: such a tracer is waited out, or named. What is
stopped, frozen, or in the kernel without an answer can't be paused, and need not be: it is read as it stands.
"""

import contextlib
import os
import time

import msgspec

from hangdoc.observe import control_groups, pyspy
from hangdoc.observe.deadline import Deadline
from hangdoc.observe.procfs import Denied, ProcError, ProcFS
from hangdoc.snapshot import KernelState, Stack, Unavailable

BOUND_SECONDS = 6.0
"""For one py-spy; a dump takes 20 ms, with native frames up to 2 s on a busy machine."""
_SHARE = 0.3
"""Of the time for the whole look, the most that one py-spy may take of it."""
_TRACER_WAIT = 0.4
"""How long another tracer is waited for, before the rank is read in its hands. A plain dump holds a rank for 2 to 20 ms."""
_TRACER_WAIT_NATIVE = 3.0
"""The same where only a pause of our own will do: other observers' native dumps take 0.4 to 2 s."""
_TRIES = 12
_POLL_SECONDS = 0.003
_MANY_THREADS = 400
"""Pausing costs about 0.1 ms a thread, in which the first ones already stand: a process with more is read as it runs."""


def dump(
    proc: ProcFS, pid: int, deadline: Deadline, *, native: bool = False, locals_: bool = True, off_cpu: bool = False
) -> Stack | Unavailable:
    """All Python threads of `pid`, innermost frames first; never raises, and leaves the process as it found it.

    With `native`, C and C++ frames between the Python ones: that takes a pause of 0.4 to 2 s. `off_cpu`: it has not run for a
    while, so it is read without a pause, and with one only if it runs meanwhile.
    """
    bound = Deadline(deadline.remaining(min(BOUND_SECONDS, _SHARE * deadline.seconds)))
    tracer_wait = Deadline(_TRACER_WAIT_NATIVE if native else _TRACER_WAIT)
    reason = ""
    refused = seen_other = False
    root = _other_root(proc, pid)
    for _ in range(_TRIES):
        if bound.remaining() < 0.05:
            deadline.miss("stack", pid)
            return Unavailable(reason=reason or "no time left")
        try:
            now = kernel_state(proc, pid)
        except ProcError as error:
            return Unavailable(reason="permission denied" if isinstance(error, Denied) else "the process has ended")
        if now.state in "ZX":
            return Unavailable(reason="the process has ended")
        pausable = not (off_cpu and not native) and _pausable(proc, pid, now)
        seen_other = seen_other or is_traced(now)
        if pausable and is_traced(now):
            reason = f"{describe_tracer(now)} is attached to it"
            if tracer_wait.remaining() > 0:
                _wait_for_tracer(proc, pid, tracer_wait)
                continue
            pausable = False
        elif pausable and refused and seen_other and tracer_wait.remaining() <= 0:
            pausable = False
        if native and not pausable:
            return Unavailable(reason=reason or "native frames need a process that may be paused")
        before = _clock(proc, pid)
        try:
            stack = pyspy.dump(
                pid, bound.remaining(), deadline.elapsed(), native=native, paused=pausable, locals_=locals_,
                root=root,
            )  # fmt: skip
        except pyspy.NotPaused:
            refused, reason = True, _pause_refusal(proc, pid)
            time.sleep(0.001 + os.urandom(1)[0] / 255 * 0.011)  # two observers must not meet again and again
            continue
        except pyspy.TooLate as late:
            deadline.miss("stack", pid)
            return Unavailable(reason=str(late))
        except pyspy.Refused as error:
            if off_cpu or (not pausable and _clock(proc, pid) != before):
                off_cpu, reason = False, str(error)  # it ran while it was read
                continue
            return Unavailable(reason=str(error))
        if off_cpu and _clock(proc, pid) != before:
            off_cpu = False
            continue
        if pausable or not is_traced(now) or _clock(proc, pid) == before:
            return stack
        reason = f"{describe_tracer(now)} is attached to it and lets it run"
        if (
            tracer_wait.remaining() <= 0
        ):  # a tracer that follows a running process (strace): that is as exact as it gets
            return stack
    return Unavailable(reason=reason or "another observer was attached at every try")


def kernel_state(proc: ProcFS, pid: int) -> KernelState:
    """State, tracer and freezer of a process just now; a py-spy of our own is nobody. Raises ProcError."""
    return msgspec.structs.replace(_thread_state(proc, str(pid)), frozen=control_groups.frozen(proc, pid))


def _thread_state(proc: ProcFS, task: str) -> KernelState:
    state, tracer_pid = proc.fields(task, "State", "TracerPid")
    state, tracer = (state or "?")[:1], int(tracer_pid or 0)
    if tracer in pyspy.running:
        return KernelState(state="S" if state == "t" else state)
    name = ""
    if tracer:
        with contextlib.suppress(ProcError):
            name = proc.stat(str(tracer)).name
    return KernelState(state=state, tracer_pid=tracer, tracer=name)


def is_traced(now: KernelState) -> bool:
    """Whether somebody else is attached; one outside of our pid namespace shows in the state alone."""
    return bool(now.tracer_pid) or now.state == "t"


def describe_tracer(now: KernelState) -> str:
    """The tracer, in words."""
    if not now.tracer_pid:
        return "a tracer outside of this container"
    return f"{now.tracer or 'a process'} (pid {now.tracer_pid})"


def _pausable(proc: ProcFS, pid: int, now: KernelState) -> bool:
    """Whether a pause would come about: stopped and frozen threads never answer, and those in the kernel may not."""
    if now.frozen or now.state == "T":
        return False
    try:
        tids = proc.tids(pid)
    except ProcError:
        return True
    return len(tids) <= _MANY_THREADS and not any(_uninterruptible(proc, f"{pid}/task/{tid}") for tid in tids)


def _uninterruptible(proc: ProcFS, thread: str) -> bool:
    with contextlib.suppress(ProcError):
        return proc.stat(thread).state == "D"
    return False


def _other_root(proc: ProcFS, pid: int) -> str | None:
    """The root directory of a process in a chroot that has the same processes in its /proc; None for any other. A
    container's, in a mount namespace of its own, is / even when seen from here."""
    with contextlib.suppress(ProcError):
        root = proc.link(f"{pid}/root")
        if root != "/" and ProcFS(f"{root}/proc").stat(str(pid)).start_ticks == proc.stat(str(pid)).start_ticks:
            return root
    return None


def _wait_for_tracer(proc: ProcFS, pid: int, tracer_wait: Deadline) -> None:
    """Until nobody is attached any more, or for as long as `tracer_wait` says."""
    with contextlib.suppress(ProcError):
        while tracer_wait.remaining() > 0 and is_traced(kernel_state(proc, pid)):
            time.sleep(_POLL_SECONDS)


def _pause_refusal(proc: ProcFS, pid: int) -> str:
    """Why a pause was refused, in words: who is attached to one of its threads, or that nobody is there any more."""
    with contextlib.suppress(ProcError):
        for tid in proc.tids(pid)[:_MANY_THREADS]:
            with contextlib.suppress(ProcError):
                now = _thread_state(proc, f"{pid}/task/{tid}")
                if is_traced(now):
                    return f"{describe_tracer(now)} is attached to it"
    return "another observer was attached at every try, or the kernel forbids ptrace (a container's seccomp profile)"


def _clock(proc: ProcFS, pid: int) -> tuple[str, ...] | None:
    """What changes whenever the main thread runs: nanoseconds on CPU and switches."""
    try:
        status = proc.status(f"{pid}/task/{pid}")
        return proc.text(f"{pid}/task/{pid}/schedstat").split()[0], status["voluntary_ctxt_switches"]
    except (ProcError, KeyError, IndexError):
        return None
