"""Attaching to real ranks: other observers, stopped and traced ranks, containers, and little time."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.observers import Observers
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.look.observe import Options, observe
from hangdoc.observe.stacks import attach, pyspy
from hangdoc.procfs import ProcFS
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Process, Snapshot, Stack, Unavailable
from hangdoc_trainer.scenarios import Started
from tests.live.needs import shares

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach"), shares("healthy")]
_TRACE = """
import ctypes, os, sys
libc, pid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
for line in sys.stdin:
    if line == "attach\\n":
        assert libc.ptrace(SEIZE, pid, None, None) == 0
    if line == "hold\\n":
        assert libc.ptrace(INTERRUPT, pid, None, None) == 0
        os.waitpid(pid, 0x40000000)
    if line == "let go\\n":
        assert libc.ptrace(DETACH, pid, None, None) == 0
    print("done", flush=True)
"""


class Tracer:
    """Another observer, that attaches to a rank and holds it as it is told."""

    def __init__(self, pid: int) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", _TRACE, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._child.pid

    def do(self, *words: str) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        for word in words:
            self._child.stdin.write(word + "\n")
            self._child.stdin.flush()
            assert self._child.stdout.readline() == "done\n"

    def end(self) -> None:
        self._child.kill()
        self._child.communicate()


@contextmanager
def tracer(pid: int) -> Iterator[Tracer]:
    one = Tracer(pid)
    try:
        yield one
    finally:
        one.end()


def process_of(snapshot: Snapshot, pid: int) -> Process:
    return next(p for p in snapshot.hosts[0].processes if p.pid == pid)


def test_many_observers_of_one_healthy_run(run: Started, tmp_path: Path) -> None:
    """`make observers` is the same for 200 looks."""
    observers = Observers(run, 12, tmp_path)
    observers.run()
    assert observers.looks() >= 12
    assert not observers.wrong
    assert not [text for text in observers.problems if "permission" in text]


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_tracer_at_one_end_of_the_window_stops_nobody(run: Started, at_the_end: bool) -> None:
    """It holds the rank over one whole end of the window, for far longer than an observer does."""
    rank = run.rank_pids()[1]
    with tracer(rank) as other:
        if not at_the_end:
            other.do("attach", "hold")
        acts = ("attach", "hold") if at_the_end else ("let go",)
        seen = observe(Options(pids=(run.pids[0],), window=1.5, native="never"), meanwhile=lambda: other.do(*acts))
    process = process_of(seen, rank)
    assert process.at_start is not None
    start, end = process.at_start.tracer_pid, process.tracer_pid
    assert (start, end) == ((0, other.pid) if at_the_end else (other.pid, 0))
    found = diagnose(seen).jobs[0]
    assert found.verdict in ("healthy", "waiting")
    assert not [finding for finding in found.findings if finding.code == "HD302"]


def test_a_debugger_that_holds_a_rank_all_the_time_is_named(run: Started) -> None:
    rank = run.rank_pids()[1]
    with tracer(rank) as other:
        other.do("attach", "hold")
        seen = observe(Options(pids=(run.pids[0],)))
        assert ProcFS().stat(str(rank)).state == "t"
        native = attach.dump(ProcFS(), rank, Deadline(1.0), native=True)
    process = process_of(seen, rank)
    assert isinstance(process.stack, Stack)
    assert process.tracer_pid == other.pid
    found = diagnose(seen).jobs[0].findings[0]
    assert (found.code, found.culprits) == ("HD302", (1,))
    assert f"(pid {other.pid})" in found.summary
    assert isinstance(native, Unavailable)
    assert f"(pid {other.pid}) is attached to it" in native.reason


def test_a_rank_that_a_tracer_follows_is_read_all_the_same(run: Started) -> None:
    """As strace does: attached for good, and the rank runs. Nobody else can attach then."""
    rank = run.rank_pids()[1]
    with tracer(rank) as other:
        other.do("attach")
        seen = observe(Options(pids=(run.pids[0],), stacks=True))
    assert isinstance(process_of(seen, rank).stack, Stack)
    found = diagnose(seen)
    assert found.verdict in ("healthy", "waiting")
    assert not [text for text in found.problems if "permission" in text]


def test_a_slow_py_spy_takes_no_longer_than_the_timeout(
    run: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could be read until then is diagnosed, and the rest is said."""
    slow = tmp_path / "py-spy"
    real, slow_for = pyspy.executable(), run.rank_pids()[1]
    slow.write_text(f'#!/bin/sh\ncase "$*" in *"--pid {slow_for} "*) sleep 300;; esac\nexec {real} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(pyspy, "executable", lambda: str(slow))
    began = time.monotonic()
    seen = observe(Options(pids=(run.pids[0],), timeout=15, stacks=True))
    assert (
        time.monotonic() - began < 100
    )  # a third of what the slow one takes: on a crowded machine each step may be late
    assert isinstance(process_of(seen, run.rank_pids()[0]).stack, Stack)
    if isinstance(process_of(seen, slow_for).stack, Unavailable):  # else it rested, so that memory showed its stack
        said = [text for text in seen.hosts[0].problems if text.startswith("the stack of")]
        assert str(slow_for) in said[0], seen.hosts[0].problems
    found = diagnose(seen).jobs[0]
    assert found.verdict != "hung"
    assert len(found.ranks) == 2
