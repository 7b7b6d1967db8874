"""A process whose main thread is over, in each Python: what its stack shows, and which threads keep it alive."""

import time

import pytest

from hangdoc.observe import attach, locate
from hangdoc.observe.deadline import Deadline
from hangdoc.observe.memory import Memory
from hangdoc.observe.python_state import Modules, threads_that_keep_alive
from hangdoc.procfs import ProcFS
from hangdoc.reasoning.evidence.stack import reading
from hangdoc.snapshot import Stack
from tests.pythons import command, running

PROGRAM = """
import sys, threading
for name, daemon in (("heartbeat", False), ("logs", True), ("uploads", False)):
    threading.Thread(target=threading.Event().wait, name=name, daemon=daemon).start()
print("ready", flush=True)
{end}
"""
OVER, FAILED, RUNS = (
    PROGRAM.format(end=""),
    PROGRAM.format(end="raise ValueError"),
    PROGRAM.format(end="sys.stdin.read()"),
)


@pytest.fixture(params=["3.9", "3.10", "3.11", "3.12", "3.13"])
def python(request: pytest.FixtureRequest, can_attach: None) -> list[str]:
    words = command(request.param)
    if words is None:
        pytest.skip(f"Python {request.param} is not installed here")
    return words


def main_is_over(pid: int) -> bool:
    stack = attach.dump(ProcFS(), pid, Deadline(30.0))
    assert isinstance(stack, Stack)
    (main,) = [thread for thread in stack.threads if thread.tid == pid]
    return reading(main).is_over


def keepers(pid: int) -> tuple[str, ...]:
    image = locate.locate(ProcFS(), pid)
    with Memory(pid, image.layout) as memory:
        return threads_that_keep_alive(memory, Modules(memory, image))


@pytest.mark.parametrize("program", [OVER, FAILED], ids=["over", "failed"])
def test_the_main_thread_is_over(python: list[str], program: str) -> None:
    with running(python, program) as pid:
        until = time.monotonic() + 20
        while not main_is_over(pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert main_is_over(pid)
        if "3.9" not in python[0]:  # whose memory hangdoc does not read
            assert keepers(pid) == ("heartbeat", "uploads")


def test_the_main_thread_runs(python: list[str]) -> None:
    with running(python, RUNS) as pid:
        assert not main_is_over(pid)
        if "3.9" not in python[0]:
            assert keepers(pid) == ()
