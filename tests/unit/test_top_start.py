"""How `hangdoc top` starts: its first poll while it imports what draws it, and the priority of its threads."""

import subprocess
import sys
import threading

import pytest

from hangdoc_tui.source import Live
from tests.unit.builders import rank, snapshot

_PRIORITIES = """
import os, threading
from hangdoc.cli.top import give_way
ended = threading.Event()
threads = [threading.Thread(target=ended.wait) for _ in range(3)]
for thread in threads:
    thread.start()
give_way()
print(sorted({os.getpriority(os.PRIO_PROCESS, int(tid)) for tid in os.listdir("/proc/self/task")}))
ended.set()
"""


def test_all_threads_give_way_to_the_run() -> None:
    """nice(2) is of one thread on Linux, and the first poll begins before top has given way."""
    done = subprocess.run([sys.executable, "-c", _PRIORITIES], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[19]"


def test_the_first_poll_is_taken_while_the_caller_goes_on() -> None:
    looked: list[str] = []
    begun, ended = threading.Event(), threading.Event()

    def look() -> object:
        looked.append(threading.current_thread().name)
        begun.set()
        ended.wait(60)
        return snapshot(rank(0), rank(1))

    live = Live(look, "this host", patience=30.0)  # type: ignore[arg-type]
    live.begin()
    assert begun.wait(60)
    ended.set()
    first, second = live.poll(0), live.poll(1)
    assert (first.number, second.number, first.cpu_seconds) == (0, 1, 0.0)
    assert looked == ["first poll", "MainThread"]
    assert [view.rank for view in first.diagnosis.jobs[0].ranks] == [0, 1]


def test_what_the_first_poll_raises_is_told_to_who_asks_for_it() -> None:
    def look() -> object:
        raise OSError("no such host")

    live = Live(look, "this host", patience=30.0)  # type: ignore[arg-type]
    live.begin()
    with pytest.raises(OSError, match="no such host"):
        live.poll(0)
