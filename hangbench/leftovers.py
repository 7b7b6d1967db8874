"""Ends what a program has started, however the program ends: SIGTERM, SIGKILL, a crash.

Ranks continue after the end of their test, because torchrun gives them sessions of their own. So whatever the program starts
inherits a variable that is unlike any other. A second process waits for the end of the program, and then kills every process with
this variable in its initial environment. PR_SET_PDEATHSIG cannot do it, because it is not inherited. A pid namespace needs root,
and in it the tests of orphans and of other namespaces would see other things.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

_SECONDS = 20.0
"""How long to look for processes. They may start others meanwhile, and one that is blocked in the kernel does not end."""


def end_with_this_process(*others: int) -> None:
    """When this process has ended, kill whatever it has started from now on. When one of the `others` (pids) has ended, kill this
    process too. Call it once, before anything is started."""
    mark = f"HANGDOC_STARTED_UNDER_{uuid.uuid4().hex}"
    watcher = subprocess.Popen(
        [sys.executable, "-S", __file__, mark, str(os.getpid()), *map(str, others)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True, cwd="/",
    )  # fmt: skip
    watcher.returncode = 0  # it ends after this process, and Python must not warn about that
    os.environ[mark] = "1"


def _end_after(mark: str, program: int, others: list[int]) -> None:
    """Wait for the end of one of the processes, then kill the program and what is marked."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        handle = os.pidfd_open(program)
        select.select([handle, *_handles(others)], [], [])  # readable when the process has ended (pidfd_open(2))
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    ended: set[int] = set()
    until = time.monotonic() + _SECONDS
    while (left := _marked(mark)) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                ended.add(pid)
        time.sleep(0.02)
    if ended:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"ended what pid {program} had left: {len(ended)} process(es)\n")
            sys.stderr.flush()


def _handles(pids: list[int]) -> list[int]:
    """Handles of the processes that are there."""
    handles = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
    return handles


def _marked(mark: str) -> list[int]:
    """The processes that have inherited the variable. A process that has ended, or is ending, has no environment."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes():
                    pids.append(int(entry.name))
    return pids


if __name__ == "__main__":
    _end_after(sys.argv[1], int(sys.argv[2]), [int(pid) for pid in sys.argv[3:]])
