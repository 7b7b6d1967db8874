"""Measures which priority `hangdoc top` should have where no core is idle: how late its polls come, and what it costs the run.

python -m bench priority; python -m bench.priority RANKS... for other sizes than one rank a core.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from bench.polls import be_noted_top, no_idle_core, running
from bench.table import step
from hangdoc.observe.look.observe import Options
from hangdoc.observe.look.polling import Polling
from hangdoc_trainer.scenarios import Node, Scenario, Started

PRIORITIES: dict[str, Callable[[], object]] = {
    "nice 0": lambda: None,
    "nice 5": lambda: os.nice(5),
    "nice 10": lambda: os.nice(10),
    "nice 19": lambda: os.nice(19),
    "SCHED_IDLE": lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)),
}
_START_SECONDS = 90.0
_SETTLED = 8
"""Polls until each rank has been read."""
_LATE_SECONDS = 1.5
_RESUMED_SECONDS = 2.0


def priority(*sizes: str, rounds: int = 6, length: float = 10.0) -> None:
    """Print a line for each priority: beside one busy process a core, how late the polls of 8 ranks come; and what `top` costs a
    training run that needs all cores."""
    with running(8, "healthy") as pid, no_idle_core():
        for name in PRIORITIES:
            with _top(name, pid) as (_, times):
                began = time.monotonic()
                time.sleep(rounds * length)
                gaps = _list_gaps(times, began)
            print(f"8 quiet ranks, busy processes on all cores, top at {name:10} {_describe(gaps)}", flush=True)
    for ranks in map(int, sizes or (str(os.cpu_count() or 1),)):
        with Started(Scenario("bench", "a healthy run", (Node(ranks=ranks),), frozen=False)) as run:
            for name in PRIORITIES:
                gaps, ratios = _measure_steps(run, name, rounds, length)
                steps = f"step {statistics.median(ratios):.3f} of that without ({min(ratios):.3f}-{max(ratios):.3f})"
                print(
                    f"{ranks} busy ranks on {os.cpu_count()} cores, top at {name:10} {_describe(gaps)}; {steps}",
                    flush=True,
                )


def _measure_steps(run: Started, name: str, rounds: int, length: float) -> tuple[list[float], list[float]]:
    """Seconds between polls, and ratios of the step with and without `top`, in pairs of blocks. In the second block of a pair,
    `top` is stopped by a signal."""
    ratios: list[float] = []
    gaps: list[float] = []
    with _top(name, run.pids[0]) as (top, times):
        for _ in range(rounds):
            began, watched = time.monotonic(), _seconds_per_step(run, length)
            gaps += _list_gaps(times, began)
            top.send_signal(signal.SIGSTOP)
            ratios.append(watched / _seconds_per_step(run, length))
            top.send_signal(signal.SIGCONT)
            time.sleep(_RESUMED_SECONDS)
    return gaps, ratios


@contextmanager
def _top(name: str, pid: int) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`top` of the parent of the ranks, after its first polls, and the file with the time of each poll."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder, "polls")
        child = subprocess.Popen([sys.executable, "-m", "bench.priority", "--top", name, str(pid), str(times)])
        try:
            deadline = time.monotonic() + _START_SECONDS
            while len(_read(times)) < _SETTLED and time.monotonic() < deadline:
                time.sleep(0.2)
            yield child, times
        finally:
            child.kill()
            child.wait()


def _read(times: Path) -> list[float]:
    return [float(line) for line in times.read_text().split()] if times.exists() else []


def _list_gaps(times: Path, began: float) -> list[float]:
    ends = [began, *(at for at in _read(times) if at > began), time.monotonic()]
    return [after - before for before, after in pairwise(ends)]


def _describe(gaps: list[float]) -> str:
    late = sum(gap for gap in gaps if gap > _LATE_SECONDS) / sum(gaps)
    rate = len(gaps) / sum(gaps)
    return f"{rate:.2f} polls/s, longest gap {max(gaps):.1f} s, {late:.0%} of the time in gaps above {_LATE_SECONDS} s"


def _seconds_per_step(run: Started, length: float) -> float:
    first, began = step(run), time.perf_counter()
    time.sleep(length)
    return (time.perf_counter() - began) / (step(run) - first)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--top"]:
        PRIORITIES[sys.argv[2]]()
        be_noted_top(Polling(Options(pids=(int(sys.argv[3]),), window=0.5)).look, Path(sys.argv[4]))
    priority(*sys.argv[1:])
