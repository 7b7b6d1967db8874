"""A child process within bounds: of time, of output and of memory, and of the life of this process.

If this process ends in any way (kill -9, out of memory), the kernel kills the child. PR_SET_PDEATHSIG (prctl(2)) cannot do that
here. It fires when the *thread* that started the child ends. It is cleared when a file with capabilities is executed. It must be
set between fork and exec, where a program with threads should run no Python. Instead the child holds the reading end of a pipe
whose only writing end is here. When that closes, the kernel sends the signal of F_SETSIG to the process of F_SETOWN
(fcntl(2), "Managing signals"; pipe_release in the kernel's fs/pipe.c). The owner is set some microseconds after the start.
Before that, py-spy has not paused a rank yet.
"""

import contextlib
import fcntl
import functools
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from types import TracebackType
from typing import Any, NamedTuple

from hangdoc.observe.access.abandonable import Threads, TooMany
from hangdoc.observe.access.owner_rights import Refused, Rights, lend_ptrace
from hangdoc.procfs import ProcFS

_CHUNK = 1 << 16
_KEPT_COMPLAINT = 1 << 16
"""Bytes of its stderr that are kept. The rest is read and dropped."""
_START_SECONDS = 5.0
"""For the start of a child, which takes some milliseconds. None depends on a process of another user."""
_MOST_LENDERS = 16
_END_SECONDS = 1.0
"""How long to wait for a child that was killed. It may be blocked in the kernel."""


class OutputTooLong(Exception):
    """The child wrote more than it may. It was killed."""


class Finished(NamedTuple):
    """How a child ended and what it wrote. A negative code is the signal that killed it."""

    code: int
    out: bytes
    complaint: bytes


_lenders: Threads[None] = Threads("lender", _MOST_LENDERS, lambda key: lend_ptrace())
"""They start programs as other users."""
_HERE = ProcFS()


@functools.cache
def _may_lend() -> bool:
    """Whether hangdoc may start programs as other users that keep CAP_SYS_PTRACE."""
    try:
        _lenders.run(None, lambda: None, _START_SECONDS)
    except Refused:
        return False
    return True


def _begin(command: Sequence[str], arguments: dict[str, Any]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, **arguments)


def _begin_as(owner: Rights, command: Sequence[str], arguments: dict[str, Any]) -> "subprocess.Popen[bytes]":
    """Start a command that becomes another user before its exec. From then on that user may stop it, or send it any other signal
    (kill(2) looks at the real and the saved uid). So nothing may wait for the exec, and the child may hold nothing for which
    anybody waits. While it is still root's, it closes all that it has inherited: the pipe by whose end Popen learns of the exec,
    which makes Popen return, and the pipes of other children, whose readers would wait for this one too."""
    prepare = arguments.get("preexec_fn")
    kept = {0, 1, 2, *arguments["pass_fds"]}

    def become_owner() -> None:
        for descriptor in map(int, _HERE.links("self/fd")):
            if descriptor not in kept:
                os.closerange(descriptor, descriptor + 1)
        if prepare is not None:
            prepare()
        os.setgroups(owner.groups)
        os.setresgid(owner.gid, owner.gid, owner.gid)
        os.setresuid(owner.uid, owner.uid, owner.uid)

    try:
        begun = _lenders.begin(None, lambda: _begin(command, arguments | {"preexec_fn": become_owner}))
    except TooMany:
        raise subprocess.SubprocessError(f"{_MOST_LENDERS} earlier ones have not begun") from None
    try:
        return begun.result(_START_SECONDS)
    except FutureTimeout:
        begun.add_done_callback(_kill)
        raise subprocess.SubprocessError(f"it had not begun after {_START_SECONDS:.0f} s") from None


def _kill(begun: "Future[subprocess.Popen[bytes]]") -> None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        begun.result().kill()


class BoundedChild:
    """A command in a session of its own, without standard input. Leaving the `with` block ends it.

    `memory_bytes` limits what it allocates (RLIMIT_DATA: mapped files do not count). `inherited` are file descriptors that it
    keeps, `start` are other arguments of subprocess.Popen. With `owner`, it runs as this user, with CAP_SYS_PTRACE and no other
    right of root, if hangdoc may do that. Raises OSError or subprocess.SubprocessError if it can't be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        memory_bytes: int,
        inherited: tuple[int, ...] = (),
        owner: Rights | None = None,
        **start: Any,
    ) -> None:
        theirs, self._ours = os.pipe()
        try:
            fcntl.fcntl(theirs, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(theirs, fcntl.F_SETFL, fcntl.FASYNC)
            # A session of its own: a Ctrl-C at the terminal must not end a py-spy that has paused a rank.
            arguments = start | {
                "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0,
                "start_new_session": True, "pass_fds": (theirs, *inherited),
            }  # fmt: skip
            if owner is not None and _may_lend():
                self._child = _begin_as(owner, command, arguments)
            else:
                self._child = _begin(command, arguments)
            self.pid = self._child.pid
            fcntl.fcntl(theirs, fcntl.F_SETOWN, self.pid)
        except BaseException:
            os.close(self._ours)
            raise
        finally:
            os.close(theirs)
        for limit, value in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CORE, 0)):
            with contextlib.suppress(OSError):  # the child's user may not raise a limit that is lower already
                resource.prlimit(self.pid, limit, (value, value))

    def __enter__(self) -> "BoundedChild":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = self._child.poll() is None
        os.close(self._ours)  # kills it, also if hangdoc lacks CAP_KILL
        if running:
            with contextlib.suppress(PermissionError):
                self._child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_END_SECONDS)
        for stream in (self._child.stdout, self._child.stderr):
            assert stream is not None  # noqa: S101
            stream.close()

    @property
    def output(self) -> int:
        """The descriptor of what it writes to stdout, for a caller that reads while it runs."""
        assert self._child.stdout is not None  # noqa: S101
        return self._child.stdout.fileno()

    def ended(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        return self._child.poll()

    def finish(self, seconds: float, output_bytes: int) -> Finished:
        """Wait until it has ended, and return what it wrote. Raises OutputTooLong and TimeoutError."""
        until = time.monotonic() + seconds
        out, complaint = self._read(until, output_bytes)
        try:
            code = self._child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        return Finished(code, out, complaint)

    def _read(self, until: float, output_bytes: int) -> tuple[bytes, bytes]:
        """What it writes to stdout and stderr, until it closes both."""
        assert self._child.stdout is not None  # noqa: S101
        assert self._child.stderr is not None  # noqa: S101
        out, complaint = self._child.stdout.fileno(), self._child.stderr.fileno()
        read = {out: bytearray(), complaint: bytearray()}
        ready = select.poll()
        for stream in read:
            ready.register(stream, select.POLLIN)
        left = len(read)
        while left:
            seconds = until - time.monotonic()
            if seconds <= 0:
                raise TimeoutError
            for stream, _ in ready.poll(seconds * 1000):
                chunk = os.read(stream, _CHUNK)
                if not chunk:
                    ready.unregister(stream)
                    left -= 1
                elif stream == out or len(read[complaint]) < _KEPT_COMPLAINT:
                    read[stream] += chunk
            if len(read[out]) > output_bytes:
                raise OutputTooLong
        return bytes(read[out]), bytes(read[complaint])
