"""Too many compute threads, CPU throttling or swapping slows the ranks down.

## What it finds

A run that makes progress, but its threads preempt each other, its control group
has used up its CPU quota, or the machine swaps.

## Why it hangs

It does not hang; it is slow. Every rank starts one OpenMP thread per core of
the machine unless OMP_NUM_THREADS is set. With several ranks, these threads
compete for the cores. A CPU quota stops all threads of a control group many
times per second. A swapped page is thousands of times slower than one in
memory.

## Example

```sh
mpirun -n 8 python train.py   # <- 8 ranks with 32 threads each on 32 cores
```

## Use instead

```sh
export OMP_NUM_THREADS=4   # cores / ranks; torchrun sets 1
mpirun -n 8 python train.py
```

For a quota, raise cpu.max or the limits of the pod. For swapping, use fewer
dataloader workers or smaller batches.

## How hangdoc knows

It counts the busy threads that were preempted during the observation and
compares them with the cores. It also reads how long each control group was
throttled, and how many bytes were swapped.

## When it can be wrong

Another program on the host uses the cores, and the run itself uses few threads.
The evidence shows the number of threads per rank.

## References

- torch.set_num_threads, OMP_NUM_THREADS:
  https://docs.pytorch.org/docs/stable/torch.html
- cgroup v2, cpu.stat: https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from collections.abc import Iterator

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.model import Rank, Run
from hangdoc.reasoning.ranks.movement import cores_used
from hangdoc.regex import regex
from hangdoc.snapshot import Clocks, Host, Machine, Runtime

CODE = "HD505"
NAME = "oversubscribed"

_THROTTLED = 0.15
"""Share of the observation for which the group was throttled, summed over its cores."""
_PUSHED = 40
"""Involuntary context switches per second of a thread that others preempt."""
_AT_WORK = 0.03
_OWN_WORK = regex(r"^(pt_autograd|pt_gloo|gloo_|pt_nccl|nccl|cuda)")
"""Threads that every rank has a few of, whatever OMP_NUM_THREADS is."""
_SWAPPED_BYTES = 50_000_000


def check(run: Run) -> Iterator[Finding]:
    """For each host, what slows the run down there."""
    for host in run.hosts:
        here = [rank for rank in run.on(host.name) if rank.process is not None and rank.moving]
        if here:
            yield from _throttled(host, here)
            yield from _crowded(host, here)
            yield from _swapping(host, here)


def _throttled(host: Host, here: list[Rank]) -> Iterator[Finding]:
    for group in host.control_groups:
        share = (group.throttled_us or 0) / 1e6 / max(host.window_seconds, 0.05)
        ranks = [rank for rank in here if rank.process and (rank.process.control_group or "").startswith(group.path)]
        if share >= _THROTTLED and ranks:
            yield _finding(
                ranks,
                0.92,
                f"{words.ranks(r.rank for r in ranks)} {words.verb([r.rank for r in ranks], 'is', 'are')} throttled: the "
                f"control group {group.path} used up its CPU quota",
                [
                    Evidence(
                        rank=None,
                        probe="control groups",
                        text=f"{group.path} was throttled for {(group.throttled_us or 0) / 1e3:.0f} ms during the observation",
                    )
                ],
                "Raise the CPU quota of the control group (cpu.max, or the limits of the pod), or start fewer ranks in it.",
            )


def _crowded(host: Host, here: list[Rank]) -> Iterator[Finding]:
    if not isinstance(host.machine, Machine):
        return
    threads: dict[int, int] = {}
    for rank in here:
        clocks = rank.process.clocks if rank.process else None
        if isinstance(clocks, Clocks) and clocks.window_seconds > 0:
            threads[rank.rank] = sum(
                t.cpu_ns / 1e9 / clocks.window_seconds >= _AT_WORK
                and not _OWN_WORK.match(t.name)
                and (t.involuntary_switches or 0) / clocks.window_seconds >= _PUSHED
                for t in clocks.threads
            )
    cores = min([host.machine.cores, *(allowed for rank in here if (allowed := _allowed(rank)) is not None)])
    # Training needs one thread per rank; oversubscription comes from thread pools. If the run itself leaves half of the cores
    # idle, other programs preempt its threads.
    if sum(threads.values()) <= cores or max(threads.values(), default=0) < 2 or _cores_used(here) < cores / 2:
        return
    crowd = [rank for rank in here if threads.get(rank.rank)]
    total = sum(threads.values())
    yield _finding(
        crowd,
        0.85,
        f"{words.ranks(r.rank for r in crowd)} {words.verb([r.rank for r in crowd], 'runs', 'run')} {total} compute threads on "
        f"{cores} core{'s' * (cores != 1)}, so they preempt each other",
        [
            Evidence(
                rank=rank.rank,
                probe="cpu",
                text=f"{threads[rank.rank]} busy threads were preempted at least {_PUSHED} times per second",
            )
            for rank in crowd[:4]
        ],
        f"Give each rank its share of the cores: OMP_NUM_THREADS={max(1, cores // len(here))}.",
    )


def _cores_used(ranks: list[Rank]) -> float:
    """CPU seconds per second of all threads of these ranks."""
    return sum(cores_used(rank.process) for rank in ranks if rank.process is not None)


def _allowed(rank: Rank) -> int | None:
    runtime = rank.process.runtime if rank.process else None
    return runtime.cpus_allowed if isinstance(runtime, Runtime) else None


def _swapping(host: Host, here: list[Rank]) -> Iterator[Finding]:
    machine = host.machine
    if not isinstance(machine, Machine) or (machine.swapped_bytes or 0) < _SWAPPED_BYTES * max(
        host.window_seconds, 0.1
    ):
        return
    yield _finding(
        here,
        0.8,
        f"{host.name} is swapping: {(machine.swapped_bytes or 0) / 1e6:.0f} MB during the observation",
        [
            Evidence(
                rank=None,
                probe="machine",
                text=f"{machine.memory_available_bytes / 1e9:.1f} of {machine.memory_total_bytes / 1e9:.1f} GB available, "
                f"{machine.swap_used_bytes / 1e9:.1f} GB in swap",
            )
        ],
        "Use less memory on this host: fewer dataloader workers, smaller batches, fewer other programs.",
    )


def _finding(ranks: list[Rank], sure: float, summary: str, evidence: list[Evidence], remedy: str) -> Finding:
    return words.finding(
        CODE,
        NAME,
        confidence=sure,
        culprits=(rank.rank for rank in ranks),
        summary=summary,
        evidence=evidence,
        remedy=remedy,
    )
