"""Ranks of one host that run more compute threads than it has cores: the scheduler then makes some of them late."""

from typing import NamedTuple

from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.movement import cores_used
from hangdoc.snapshot import Clocks, Host, Machine, Process, Runtime
from hangdoc.torch_facts.thread_names import is_of_library

PUSHED = 40
"""Involuntary context switches per second of a thread that others preempt."""
_AT_WORK = 0.03


class Crowd(NamedTuple):
    """Compute threads that preempt each other."""

    threads: dict[int, int]
    """How many, by rank."""
    cores: int
    ranks: int
    """Moving ranks of the host."""


def find_crowd(run: Run, host: Host) -> Crowd | None:
    """The crowd on a host; None if its moving ranks have no more busy threads than cores."""
    here = {r.rank: r.process for r in run.on(host.name) if r.process is not None and r.moving}
    if not here or not isinstance(host.machine, Machine):
        return None
    pushed = {rank: _preempted(process) for rank, process in here.items()}
    allowed = [p.runtime.cpus_allowed for p in here.values() if isinstance(p.runtime, Runtime)]
    cores = min([host.machine.cores, *(number for number in allowed if number is not None)])
    # Training needs one thread per rank; oversubscription comes from thread pools. If the run itself leaves half of the cores
    # idle, other programs preempt its threads.
    if sum(pushed.values()) <= cores or max(pushed.values()) < 2 or sum(map(cores_used, here.values())) < cores / 2:
        return None
    return Crowd({rank: number for rank, number in pushed.items() if number}, cores, len(here))


def _preempted(process: Process) -> int:
    """How many of its busy compute threads other threads preempt. The threads of a pool run no Python; other threads that the
    program started itself do, and no setting of a pool changes their number."""
    clocks = process.clocks
    if not isinstance(clocks, Clocks) or clocks.window_seconds <= 0:
        return 0
    started = {thread.tid for thread in known.python_threads(process)} - {process.pid}
    return sum(
        thread.cpu_ns / 1e9 / clocks.window_seconds >= _AT_WORK
        and thread.tid not in started
        and not is_of_library(thread.name)
        and (thread.involuntary_switches or 0) / clocks.window_seconds >= PUSHED
        for thread in clocks.threads
    )
