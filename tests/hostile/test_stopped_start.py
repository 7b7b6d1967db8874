"""A child that becomes another user can be stopped by that user, also before its exec: nothing waits for it without a limit."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from hangdoc.observe.access.bounded_child import BoundedChild
from hangdoc.observe.access.owner_rights import Rights
from tests.hostile.users import MALLORY
from tests.live.needs import needs

MIB = 1 << 20
OWNER = Rights(MALLORY, MALLORY, (), 0)


@pytest.fixture(autouse=True)
def _root() -> None:
    needs("root")


def _stop_oneself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _own_children() -> list[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def _field(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


def test_a_child_that_is_stopped_before_its_exec_is_killed_in_time() -> None:
    outcome: list[str] = []

    def observe() -> None:
        with BoundedChild(["sleep", "60"], memory_bytes=64 * MIB, owner=OWNER, preexec_fn=_stop_oneself) as child:
            try:
                child.finish(0.5, MIB)
            except TimeoutError:
                outcome.append("too late")
        outcome.append("ended" if not Path(f"/proc/{child.pid}").exists() else "it is still there")

    before = set(_own_children())
    observer = threading.Thread(target=observe, daemon=True)
    observer.start()
    observer.join(100)
    for pid in set(_own_children()) - before:
        os.kill(pid, signal.SIGKILL)
    assert outcome == ["too late", "ended"]


def test_it_gets_the_rights_of_the_owner_and_no_file_of_hangdoc() -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    with BoundedChild(["sleep", "60"], memory_bytes=64 * MIB, owner=OWNER) as child:
        until = time.monotonic() + 100
        while Path(f"/proc/{child.pid}/comm").read_text() != "sleep\n":
            assert time.monotonic() < until
        assert _field(child.pid, "Uid").split() == [str(MALLORY)] * 4
        assert _field(child.pid, "Gid").split() == [str(MALLORY)] * 4
        assert _field(child.pid, "Groups") == ""
        assert int(_field(child.pid, "CapEff"), 16) == 1 << 19, "CAP_SYS_PTRACE"
        os.close(theirs)
        assert os.read(ours, 1) == b"", "the other end is open nowhere"
    os.close(ours)
