"""Stacks from the memory of real processes, in every Python at hand: the same lines as py-spy's, where that is missing."""

import os
from collections.abc import Iterator

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel.clocks import Threads, threads_of
from hangdoc.observe.memory.frame_layout import LAYOUTS
from hangdoc.observe.memory.locate import Image
from hangdoc.observe.stacks import memory_stacks, pyspy
from hangdoc.observe.stacks.python_stacks import dump_each
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Stack, Unavailable
from tests.pythons import located

PROGRAM = """
import sys, threading
class Weights:
    def update(self, step):
        names = ["a", "b"]
        def inner():
            print("ready", flush=True)
            sys.stdin.read()
        inner()
threading.Thread(target=threading.Event().wait, daemon=True).start()
Weights().update(41)
"""
BUSY = (
    "import threading\nthreading.Thread(target=print, args=['ready'], kwargs={'flush': True}).start()\nwhile True: pass"
)


@pytest.fixture(params=[f"{major}.{minor}" for major, minor in LAYOUTS])
def victim(request: pytest.FixtureRequest, can_attach: None) -> Iterator[tuple[int, Image]]:
    with located(request.param, PROGRAM) as found:
        yield found


def read(pid: int) -> Stack | Unavailable:
    proc = ProcFS()
    target = Target(pid, os.getpid(), "rank", "python", (), "S", proc.stat(str(pid)).start_ticks, environment={})
    target.python = True
    return dump_each(Observation(proc, Deadline(10), 0.1, "never", {pid: target}), [target], set())[pid]


def lines(stack: Stack | Unavailable) -> set[tuple[tuple[str, str, int], ...]]:
    assert isinstance(stack, Stack)
    return {tuple((each.function, each.file, each.line) for each in thread.frames) for thread in stack.threads}


def test_a_stack_without_py_spy_has_the_same_lines(victim: tuple[int, Image], monkeypatch: pytest.MonkeyPatch) -> None:
    by_py_spy = read(victim[0])
    monkeypatch.setattr(pyspy, "executable", lambda: None)
    by_memory = read(victim[0])
    assert isinstance(by_memory, Stack)
    (main,) = [thread for thread in by_memory.threads if thread.tid == victim[0]]
    update = next(frame for frame in main.frames if frame.function.endswith("update"))
    assert {local.name: local.text for local in update.locals}["step"] == "41"
    if isinstance(by_py_spy, Stack):  # it does not know every Python
        assert lines(by_memory) == lines(by_py_spy)


@pytest.mark.parametrize("starved", [False, True])
def test_a_thread_that_runs_has_no_stack_in_memory(
    starved: bool, monkeypatch: pytest.MonkeyPatch, can_attach: None
) -> None:
    """Its frames change while they are read, or it waits only for a processor. That py-spy is missing is said."""
    monkeypatch.setattr(pyspy, "executable", lambda: None)
    if starved:  # for as long as its stack is read

        def none_ran(proc: ProcFS, pid: int, before: Threads | None = None) -> Threads | Unavailable:
            return before or threads_of(proc, pid)

        monkeypatch.setattr(memory_stacks, "threads_of", none_ran)
    with located("3.11", BUSY) as (pid, _):
        refused = read(pid)
    assert isinstance(refused, Unavailable)
    assert "not installed" in refused.reason
