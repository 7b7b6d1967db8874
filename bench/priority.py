"""Measures which priority `hangdoc top` should have where no core is idle: how late its polls come, and what it costs the run.

python -m bench priority; python -m bench.priority RANKS... for other sizes than one rank a core.
"""

import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

from bench.headless_top import HeadlessTop, be_top, headless_top
from bench.polls import no_idle_core, running
from bench.table import seconds_per_step
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
_LATE_SECONDS = 1.5
_RESUMED_SECONDS = 2.0


def priority(*sizes: str, rounds: int = 6, length: float = 10.0) -> None:
    """Print a line for each priority: beside one busy process a core, how late the polls of 8 ranks come; and what `top` costs a
    training run that needs all cores."""
    with running(8, "healthy") as pid, no_idle_core():
        for name in PRIORITIES:
            with _started(name, pid) as top:
                began = time.monotonic()
                time.sleep(rounds * length)
                gaps = _list_gaps(top, began)
            print(f"8 quiet ranks, busy processes on all cores, top at {name:10} {_describe(gaps, 1)}", flush=True)
    for ranks in map(int, sizes or (str(os.cpu_count() or 1),)):
        with Started(Scenario("bench", "a healthy run", (Node(ranks=ranks),), frozen=False)) as run:
            for name in PRIORITIES:
                gaps, ratios = _measure_steps(run, name, rounds, length)
                steps = f"step {statistics.median(ratios):.3f} of that without ({min(ratios):.3f}-{max(ratios):.3f})"
                print(
                    f"{ranks} busy ranks on {os.cpu_count()} cores, top at {name:10} {_describe(gaps, rounds)}; {steps}",
                    flush=True,
                )


def _measure_steps(run: Started, name: str, rounds: int, length: float) -> tuple[list[float], list[float]]:
    """Seconds between polls, and ratios of the step with and without `top`, in pairs of blocks. In the second block of a pair,
    `top` is stopped by a signal."""
    ratios: list[float] = []
    gaps: list[float] = []
    with _started(name, run.pids[0]) as top:
        for _ in range(rounds):
            began, watched = time.monotonic(), seconds_per_step(run, length)
            gaps += _list_gaps(top, began)
            top.child.send_signal(signal.SIGSTOP)
            ratios.append(watched / seconds_per_step(run, length))
            top.child.send_signal(signal.SIGCONT)
            time.sleep(_RESUMED_SECONDS)
    return gaps, ratios


def _started(name: str, pid: int) -> AbstractContextManager[HeadlessTop]:
    """`top` of the parent of the ranks."""
    return headless_top("-m", "bench.priority", "--top", name, str(pid))


def _list_gaps(top: HeadlessTop, began: float) -> list[float]:
    ends = [began, *(at for at in top.polls() if at > began), time.monotonic()]
    return [after - before for before, after in pairwise(ends)]


def _describe(gaps: list[float], blocks: int) -> str:
    """The gaps of so many blocks of time. Each block also begins and ends one."""
    late = sum(gap for gap in gaps if gap > _LATE_SECONDS) / sum(gaps)
    rate = (len(gaps) - blocks) / sum(gaps)
    return f"{rate:.2f} polls/s, longest gap {max(gaps):.1f} s, {late:.0%} of the time in gaps above {_LATE_SECONDS} s"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--top"]:
        PRIORITIES[sys.argv[2]]()
        be_top(Polling(Options(pids=(int(sys.argv[3]),), window=0.5)), Path(sys.argv[4]))
    else:
        priority(*sys.argv[1:])
