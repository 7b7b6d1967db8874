"""What variables refer to, of processes that have gone on since their stack was read, in every Python at hand."""

import os
import signal
import time

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation
from hangdoc.observe.memory import frames
from hangdoc.observe.memory.frame_layout import LAYOUTS
from hangdoc.observe.stacks import attach
from hangdoc.observe.stacks.contents import with_contents
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Frame, Local, Stack
from tests.pythons import located

PROGRAM = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
class Box:
    def __init__(self):
        self.size = 5
def wait():
    signal.sigwait({signal.SIGUSR1})
def work(box):
    for number in (3, 300):
        mine = Box()
        items = [1] * number
        if number == 3:
            print("ready", flush=True)
        wait()
        del items
    mine = other = [2] * 4000
    wait()
def call(names):
    captured = [7]
    def closure():
        return captured
    work(Box())
    wait()
call(["a", "b"])
"""
FILE = "/work/train.py"


class Victim:
    """A process that waits for a signal at each step."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._observation = Observation(ProcFS(), Deadline(30), 0.1, "never", {})

    def read_stack(self, *, off_cpu: bool = False) -> Stack:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            stack = attach.dump(ProcFS(), self._pid, Deadline(10), off_cpu=off_cpu)
            if not isinstance(stack, Stack):
                pytest.skip(f"py-spy can't read this Python: {stack.reason}")
            if frame_of(stack, "wait") is not None:
                return stack
        raise AssertionError("it does not wait")

    def go_on(self) -> Stack:
        before = lines(self.read_stack())
        os.kill(self._pid, signal.SIGUSR1)
        until = time.monotonic() + 20
        while (stack := self.read_stack()) and lines(stack) == before and time.monotonic() < until:
            time.sleep(0.01)
        assert lines(stack) != before
        return stack

    def annotate(self, stack: Stack, *, rests: bool = False) -> Stack:
        return with_contents(self._observation, self._pid, stack, lambda: rests)


def frame_of(stack: Stack, function: str) -> Frame | None:
    return next((frame for thread in stack.threads for frame in thread.frames if frame.function == function), None)


def lines(stack: Stack) -> list[tuple[int, tuple[str, ...]]]:
    return [(f.line, tuple(local.text for local in f.locals)) for thread in stack.threads for f in thread.frames]


def variables(stack: Stack, function: str) -> dict[str, Local]:
    frame = frame_of(stack, function)
    assert frame is not None
    return {local.name: local for local in frame.locals}


@pytest.mark.parametrize("version", [f"{major}.{minor}" for major, minor in LAYOUTS])
def test_what_was_freed_since_the_stack_was_read_is_left_out(version: str, can_attach: None) -> None:
    with located(version, f"exec(compile({PROGRAM!r}, {FILE!r}, 'exec'))") as (pid, _):
        victim = Victim(pid)
        for off_cpu in (False, True):
            at_rest = variables(victim.annotate(victim.read_stack(off_cpu=off_cpu)), "work")
            assert (at_rest["items"].length, at_rest["mine.size"].text, at_rest["box.size"].text) == (3, "5", "5")
        stack = victim.read_stack()

        victim.go_on()  # the same line in the next iteration, with a list that may be where the old one was
        in_next = victim.annotate(stack)
        assert variables(in_next, "work")["items"].length is None
        assert variables(in_next, "work")["box.size"].text == "5"  # the argument is still the same object
        assert variables(in_next, "call")["names"].length == 2  # a caller that has not moved

        victim.go_on()  # behind the loop
        behind = variables(victim.annotate(stack), "work")
        assert behind["items"].length is None
        assert "mine.size" not in behind
        assert behind["box.size"].text == "5"

        victim.go_on()  # the function has returned
        returned = victim.annotate(stack)
        assert "box.size" not in variables(returned, "work")
        assert variables(returned, "call")["names"].length is None


def test_without_known_frames_only_a_process_at_rest_shows_what_its_variables_refer_to(
    monkeypatch: pytest.MonkeyPatch, can_attach: None
) -> None:
    """py-spy may know a Python that hangdoc's frames do not."""
    monkeypatch.setattr(frames, "LAYOUTS", {})
    with located("3.11", f"exec(compile({PROGRAM!r}, {FILE!r}, 'exec'))") as (pid, _):
        victim = Victim(pid)
        stack = victim.read_stack()
        assert variables(victim.annotate(stack, rests=True), "work")["items"].length == 3
        assert victim.annotate(stack) == stack
