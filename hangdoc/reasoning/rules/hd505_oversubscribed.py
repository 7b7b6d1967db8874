"""Too many threads, other programs, a CPU quota or swapping slow the ranks down.

## What it finds

A run that makes progress, but its threads preempt each other, its control group
has used up its CPU quota, other programs have the cores, or the machine swaps.

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
compares them with the cores. The kernel tells for how long each thread was ready
to run and waited for a core; while the ranks start, that does not count. It also reads
how long each control group was throttled, and how many bytes were swapped.

## When it can be wrong

Another program on the host uses the cores, and the run itself uses few threads.
The evidence shows the number of threads per rank.

## References

- torch.set_num_threads, OMP_NUM_THREADS:
  https://docs.pytorch.org/docs/stable/torch.html
- cgroup v2, cpu.stat: https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from collections.abc import Iterator

from hangdoc.reasoning.causes.pace import PUSHED, Crowd, find_crowd
from hangdoc.reasoning.ranks.movement import cores_used, describe_delay, kernel_thread, share_without_core
from hangdoc.reasoning.rules.draft import Draft, Evidence, Run
from hangdoc.reasoning.text import words
from hangdoc.snapshot import Host, Machine, Process

_THROTTLED = 0.15
"""Share of the observation for which the group was throttled, summed over its cores."""
_SWAPPED_BYTES = 50_000_000
_GIVE_A_LARGER_SHARE = (
    "Find out what else runs there, and end it, or give the ranks a larger share: their niceness, and the weight of their "
    "control group (cpu.weight, cpu.shares)."
)
_MOST_OF_CORES = 0.75
"""Who uses this share of the cores of a host keeps itself from them."""
_START_FEWER = "Start fewer ranks or dataloader workers here."
_HALF_OF_CORES = 0.5
"""Who uses less has the others to blame, too."""
_START_SECONDS = 30.0
_MORE_THAN_CORES = 1.1
"""So does who is ready to use so many times as many. To need them all is no more than its share."""


def check(run: Run) -> Iterator[Draft]:
    """For each host, what slows the run down there."""
    for host in run.hosts:
        here = {r.rank: r.process for r in run.on(host.name) if r.process is not None and r.moving}
        if here:
            throttled, crowd = list(_throttled(host, here)), find_crowd(run, host)
            yield from throttled
            if crowd is not None:
                yield _crowded(crowd)
            elif not throttled and not _has_just_started(run):
                yield from _without_core(run, host)
            if isinstance(host.machine, Machine):
                yield from _swapping(host, host.machine, here)


def _has_just_started(run: Run) -> bool:
    """Whether the ranks still load their modules, for which each takes a core: they are young, and none has made a call."""
    made = any(calls.made for group in run.ledger.groups for calls in group.ranks.values())
    ages = [process.started_seconds_ago for process in run.processes.values()]
    return not made and max(ages, default=0.0) < _START_SECONDS


def _throttled(host: Host, here: dict[int, Process]) -> Iterator[Draft]:
    for group in host.control_groups:
        seconds = (group.throttled_us or 0) / 1e6
        ranks = [rank for rank, process in here.items() if (process.control_group or "").startswith(group.path)]
        if seconds / max(host.window_seconds, 0.05) >= _THROTTLED and ranks:
            text = f"{group.path} was throttled for {seconds * 1000:.0f} ms during the observation"
            yield Draft(
                confidence=0.92,
                culprits=ranks,
                summary=f"{words.are(ranks)} throttled: the control group {group.path} used up its CPU quota",
                evidence=[Evidence(None, "control groups", text)],
                remedy="Raise the CPU quota of the control group (cpu.max, or the limits of the pod), or start fewer ranks in "
                "it.",
            )


def _without_core(run: Run, host: Host) -> Iterator[Draft]:
    """The ranks of which the training thread is ready to run, and waits for a core for most of the time."""
    ranks = {rank.rank: rank for rank in run.on(host.name) if rank.process is not None}
    delays = {
        number: delay
        for number, rank in ranks.items()
        if rank.process is not None
        and (delay := describe_delay(rank.process, kernel_thread(rank.process, rank.thread))) is not None
    }
    if not delays or not isinstance(host.machine, Machine):
        return
    own = sum(
        cores_used(process) for rank in ranks.values() for process in (rank.process, *run.helpers(rank)) if process
    )
    cores = f"{host.machine.cores} core{'s' * (host.machine.cores != 1)}"
    needed = own + sum(
        share_without_core(rank.process, kernel_thread(rank.process, rank.thread)) or 0.0
        for rank in ranks.values()  # also of one that waits too little to be named
        if rank.process is not None
    )
    load = f"load {host.machine.load_1m:.0f} in the last minute, on {cores}"
    why, remedy = f"other programs have them ({load})", _GIVE_A_LARGER_SHARE
    wants_more = needed >= _MORE_THAN_CORES * host.machine.cores
    if own >= _MOST_OF_CORES * host.machine.cores or (wants_more and own >= _HALF_OF_CORES * host.machine.cores):
        why, remedy = f"the run needs more than its {cores}", _START_FEWER
    elif wants_more:
        why, remedy = f"{why}, and the run needs more than there are", f"{remedy} And: {_START_FEWER}"
    yield Draft(
        confidence=0.85,
        culprits=delays,
        summary=f"{words.are(delays)} ready to run and {words.verb(delays, 'gets', 'get')} too little of the cores of "
        f"{host.name}: {why}",
        evidence=[
            *(Evidence(rank, "cpu", delay) for rank, delay in list(delays.items())[:4]),
            Evidence(
                None, "cpu", f"its processes on {host.name} used {own:.1f} cores and were ready to use {needed:.1f}"
            ),
        ],
        remedy=remedy,
    )


def _crowded(crowd: Crowd) -> Draft:
    total, cores = sum(crowd.threads.values()), crowd.cores
    return Draft(
        confidence=0.85,
        culprits=crowd.threads,
        summary=f"{words.do(crowd.threads, 'runs', 'run')} {total} compute threads on {cores} core{'s' * (cores != 1)}, so they "
        "preempt each other",
        evidence=[
            Evidence(rank, "cpu", f"{number} busy threads were preempted at least {PUSHED} times per second")
            for rank, number in list(crowd.threads.items())[:4]
        ],
        remedy=f"Give each rank its share of the cores: OMP_NUM_THREADS={max(1, cores // crowd.ranks)}"
        + (f", and start fewer than {crowd.ranks} ranks here." if crowd.ranks > cores else "."),
    )


def _swapping(host: Host, machine: Machine, here: dict[int, Process]) -> Iterator[Draft]:
    swapped = machine.swapped_bytes or 0
    if swapped >= _SWAPPED_BYTES * max(host.window_seconds, 0.1):
        text = (
            f"{machine.memory_available_bytes / 1e9:.1f} of {machine.memory_total_bytes / 1e9:.1f} GB available, "
            f"{machine.swap_used_bytes / 1e9:.1f} GB in swap"
        )
        yield Draft(
            confidence=0.8,
            culprits=here,
            summary=f"{host.name} is swapping: {swapped / 1e6:.0f} MB during the observation",
            evidence=[Evidence(None, "machine", text)],
            remedy="Use less memory on this host: fewer dataloader workers, smaller batches, fewer other programs.",
        )
