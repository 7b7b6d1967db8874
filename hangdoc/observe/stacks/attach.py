"""The only way to attach to a process. It handles stopped, frozen and traced processes, and other observers.

A process has at most one tracer (ptrace(2)). While another py-spy, hangdoc, pystack or gdb is attached, a second attach
fails with EPERM, as if permission were missing. So hangdoc waits for such a tracer to detach, or names it in the reason.
A process that is stopped, frozen, or uninterruptible in the kernel can't be paused. It is read without a pause.
"""

import contextlib
import os
import time

from msgspec.structs import replace

from hangdoc.observe.access import isolation
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.owner_rights import Rights, rights_of
from hangdoc.observe.access.process_files import is_procfs
from hangdoc.observe.kernel.process_states import (
    describe_tracer,
    is_traced,
    kernel_state,
    thread_state,
    wait_for_tracer,
)
from hangdoc.observe.stacks import pyspy
from hangdoc.procfs import Denied, ProcError, ProcFS, find_number_here, threads_from_inside
from hangdoc.snapshot import KernelState, Stack, Unavailable

BOUND_SECONDS = 6.0
"""Limit for one py-spy. A dump takes 20 ms, with native frames up to 2 s on a busy machine."""
_SHARE = 0.3
"""One py-spy may take at most this share of the time limit of the whole observation."""
_TRACER_WAIT = 0.4
"""Seconds to wait for another tracer to detach. After that, the rank is read while it is traced. A plain dump pauses a rank for
some milliseconds (docs/performance.md)."""
_TRACER_WAIT_NATIVE = 3.0
"""The same for native frames, which need a pause of our own. Native dumps of other observers take 0.4 to 2 s."""
_TRIES = 12
_MANY_THREADS = 400
"""A process with more threads is read without a pause. Pausing takes about 0.1 ms per thread, and the first threads are
paused for all of that time."""


def dump(
    proc: ProcFS, pid: int, deadline: Deadline, *, native: bool = False, locals_: bool = True, off_cpu: bool = False
) -> Stack | Unavailable:
    """All Python threads of `pid`, innermost frames first. Never raises, and leaves the process as it was.

    `native` includes C and C++ frames, which takes a pause of 0.4 to 2 s. `off_cpu` reads the process without a pause, and again
    with one if its main thread runs during the read: for a process that has probably not run for a while.
    """
    return isolation.guarded(
        lambda pid: _renumber(proc, pid, _dump(proc, pid, deadline, native=native, locals_=locals_, off_cpu=off_cpu)),
        pid,
    )


def _renumber(proc: ProcFS, pid: int, stack: Stack | Unavailable) -> Stack | Unavailable:
    """A stack with the numbers that its threads have here. In a container, py-spy prints those of the process's memory."""
    if not isinstance(stack, Stack):
        return stack
    try:
        here = threads_from_inside(proc, pid)
    except ProcError:  # it has ended
        return stack
    threads = (replace(thread, tid=find_number_here(here, thread.tid)) for thread in stack.threads)
    return replace(stack, threads=tuple(threads)) if here else stack


def _dump(
    proc: ProcFS, pid: int, deadline: Deadline, *, native: bool, locals_: bool, off_cpu: bool
) -> Stack | Unavailable:
    bound = Deadline(deadline.remaining(min(BOUND_SECONDS, _SHARE * deadline.seconds)))
    too_short = bound.seconds < BOUND_SECONDS  # a longer time limit for the whole command allows more
    tracer_wait = Deadline(_TRACER_WAIT_NATIVE if native else _TRACER_WAIT)
    reason = ""
    refused = seen_other = False
    root, owner = _find_other_root(proc, pid), _find_other_owner(proc, pid)
    for _ in range(_TRIES):
        if bound.remaining() < 0.05:
            if too_short:
                deadline.miss("stack", pid)
            return Unavailable(reason=reason or "no time left")
        try:
            now = kernel_state(proc, pid)
        except ProcError as error:
            return Unavailable(reason="permission denied" if isinstance(error, Denied) else "the process has ended")
        if now.state in "ZX":
            return Unavailable(reason="the process has ended")
        pausable = not (off_cpu and not native) and _is_pausable(proc, pid, now)
        seen_other = seen_other or is_traced(now)
        if pausable and is_traced(now):
            reason = f"{describe_tracer(now)} is attached to it"
            if tracer_wait.remaining() > 0:
                wait_for_tracer(proc, pid, tracer_wait)
                continue
            pausable = False
        elif pausable and refused and seen_other and tracer_wait.remaining() <= 0:
            pausable = False
        if native and not pausable:
            return Unavailable(reason=reason or "native frames need a process that may be paused")
        before = _read_clock(proc, pid)
        try:
            stack = pyspy.dump(
                pid, bound.remaining(), deadline.elapsed(), native=native, paused=pausable, locals_=locals_,
                root=root, owner=owner,
            )  # fmt: skip
        except pyspy.NotPaused:
            refused, reason = True, _explain_refusal(proc, pid)
            time.sleep(0.001 + os.urandom(1)[0] / 255 * 0.011)  # random, so that two observers do not collide each time
            continue
        except pyspy.TooLate as late:
            if too_short:
                deadline.miss("stack", pid)
            return Unavailable(reason=str(late))
        except pyspy.Refused as error:
            if off_cpu or (not pausable and _read_clock(proc, pid) != before):
                off_cpu, reason = False, str(error)  # it ran while it was read
                continue
            return Unavailable(reason=str(error))
        if off_cpu and _read_clock(proc, pid) != before:
            off_cpu = False
            continue
        if pausable or not is_traced(now) or _read_clock(proc, pid) == before:
            return stack
        reason = f"{describe_tracer(now)} is attached to it and lets it run"
        if tracer_wait.remaining() <= 0:  # strace and the like let the process run: no better stack is available
            return stack
    return Unavailable(reason=reason or "another observer was attached at every attempt")


def _is_pausable(proc: ProcFS, pid: int, now: KernelState) -> bool:
    """Whether a pause can succeed. Stopped and frozen threads never react to it, uninterruptible ones may not."""
    if now.frozen or now.state == "T":
        return False
    try:
        tids = proc.tids(pid)
    except ProcError:
        return True
    return len(tids) <= _MANY_THREADS and not any(_is_uninterruptible(proc, f"{pid}/task/{tid}") for tid in tids)


def _is_uninterruptible(proc: ProcFS, thread: str) -> bool:
    with contextlib.suppress(ProcError):
        return proc.stat(thread).state == "D"
    return False


def _find_other_owner(proc: ProcFS, pid: int) -> Rights | None:
    """The rights of a process that belongs to another user than root's hangdoc; None for any other process, and where hangdoc is
    not root: then it has no rights to lend. Raises ProcError and Refused."""
    rights = rights_of(proc, str(pid)) if os.geteuid() == 0 else None
    return rights if rights is not None and rights.uid != 0 else None


def _find_other_root(proc: ProcFS, pid: int) -> str | None:
    """The root directory of a process in a chroot whose /proc is ours; None for any other process. In a container, which has its
    own mount namespace, the link reads `/` even from outside. Only root makes a chroot in our user namespace: one that a process
    made in its own may contain anything."""
    with contextlib.suppress(ProcError):
        root = proc.link(f"{pid}/root")
        own_namespace = proc.link(f"{pid}/ns/user") == proc.link("self/ns/user")
        if root == "/" or not own_namespace or not is_procfs(f"{root}/proc"):
            return None
        if ProcFS(f"{root}/proc").stat(str(pid)).start_ticks == proc.stat(str(pid)).start_ticks:
            return root
    return None


def _explain_refusal(proc: ProcFS, pid: int) -> str:
    """Why the process could not be paused, for messages: the tracer of one of its threads, or the likely reasons."""
    with contextlib.suppress(ProcError):
        for tid in proc.tids(pid)[:_MANY_THREADS]:
            with contextlib.suppress(ProcError):
                now = thread_state(proc, f"{pid}/task/{tid}")
                if is_traced(now):
                    return f"{describe_tracer(now)} is attached to it"
    return (
        "another observer was attached at every attempt, or the kernel forbids ptrace (a container's seccomp profile)"
    )


def _read_clock(proc: ProcFS, pid: int) -> tuple[object, ...] | None:
    """Values that change whenever the main thread runs: CPU nanoseconds and voluntary switches; None if unreadable."""
    try:
        cpu_ns, *_ = proc.schedstat(f"{pid}/task/{pid}")
        return cpu_ns, *proc.fields(f"{pid}/task/{pid}", "voluntary_ctxt_switches")
    except ProcError:
        return None
