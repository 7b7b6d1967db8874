"""A rank waits for a dataloader worker that is dead, stuck or starved.

## What it finds

A rank waits in torch's DataLoader for a batch. The worker process that should
deliver it is dead, stopped, starved of CPU, or stuck in the user's dataset
code.

## Why it hangs

The DataLoader waits for its worker without a limit, because `timeout` is 0 by
default. All other ranks wait for this rank in their next collective.

## Example

```python
loader = DataLoader(dataset, num_workers=4)  # <- no timeout
for batch in loader:
    model(batch).sum().backward()
```

## Use instead

```python
loader = DataLoader(
    dataset,
    num_workers=4,
    timeout=120,  # raises an error instead of hanging
    multiprocessing_context="spawn",  # inherits no held locks
)
```

If a worker was killed, check for an out-of-memory kill and for a full /dev/shm.

## How hangdoc knows

The rank's stack is inside the loader. hangdoc reads the state of its worker
processes and the stack of each worker: the line of `__getitem__` or of the
iterator that does not return, and the kernel function it waits in. A worker that
rests in `os.fork` waits for a lock that another thread of the rank held.

## When it can be wrong

A slow worker on a slow disk may still deliver its batch. If CPU use or file
reads show progress, the finding does not appear. Before the patience has
passed, it is an `info`, not an error.

## References

- torch.utils.data.DataLoader: https://docs.pytorch.org/docs/stable/data.html
"""

from collections.abc import Iterable

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.evidence.kernel import how_it_ended, stopped_by
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.holds import WaitsForLoader, describe_holders
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.loader import find_worker_frame, is_in_fork
from hangdoc.reasoning.ranks.movement import kernel_thread
from hangdoc.reasoning.rules.draft import Draft, WithRemedy, about
from hangdoc.reasoning.text import next_steps, words
from hangdoc.snapshot import Machine, Process

_TIMEOUT = "Set timeout= on the DataLoader so that it raises an error instead of hanging."
_REMEDIES = {
    "waits": f"Fix what the worker is waiting for. {_TIMEOUT}",
    "dead": "Find out how the worker ended: read its last output and the kernel log. Then restart the run: no batch will come.",
    "gone": "Find out how the workers ended: read their last output and the kernel log. Then restart the run.",
    "forked": "Do not fork while other threads run: give the DataLoader multiprocessing_context='forkserver' or 'spawn'. With "
    "persistent_workers=True it forks once, and not in each epoch.",
    "inherited": "os.fork copies a held lock, but not the thread that holds it. Make the lock in the worker (worker_init_fn), "
    "make the DataLoader's iterator before the thread starts, or give it multiprocessing_context='forkserver' or 'spawn'.",
    "ending": "Look at the line in the stack: the rank ends the workers, and timeout= on the DataLoader does not bound that. "
    "With persistent_workers=True it ends them once, and not in each epoch.",
    "starved": "Give the workers CPU: start fewer of them (num_workers), or fewer other processes on this host.",
}
"""By what is wrong with the workers."""
_OWN_LOADING = (
    "Fix what the dataset is waiting for, and give that a timeout. With num_workers=0, the DataLoader has none."
)
_MORE_SHARED_MEMORY = (
    "Make /dev/shm larger (docker run --shm-size, an emptyDir with medium: Memory), or use fewer workers."
)


@about(WaitsForLoader)
def describe(run: Run, blockage: Blockage, kind: WaitsForLoader) -> Draft:
    first, who = blockage.awaited[0].first, blockage.culprits
    alone = len(who) == 1
    wait = (
        f"waiting for its dataloader: {kind}"
        if alone
        else f"waiting for their dataloaders; on rank {first.rank}, {kind}"
    )
    worker = kind.worker or next(iter(kind.shown), None)
    stop = stopped_by(worker) if worker is not None else None
    remedy = _OWN_LOADING if kind.by_rank else _REMEDIES[kind.fault]
    commands = (next_steps.KERNEL_LOG,) if kind.fault == "dead" else next_steps.look_again(worker or first)
    if kind.holders:
        do, them = ("does", "it") if len(kind.holders) == 1 else ("do", "them")
        remedy = f"Look at what {describe_holders(kind.holders)} {do}: the worker waits for {them}. {_TIMEOUT}"
        commands = next_steps.show(holder.pid for holder in kind.holders)
    if stop is not None and worker is not None:
        remedy, commands = next_steps.RESUME[stop.by], next_steps.resume([worker], stop.by)
    return Draft(
        confidence=kind.certainty,
        summary=words.and_victims(f"{words.are(who)} {wait}", blockage),
        evidence=[
            *words.class_evidence(blockage.awaited),
            *_shortage(run, first, kind.shown),
            *(Evidence(first.rank, "stacks", _describe_worker(process)) for process in kind.shown[: 4 if alone else 1]),
            *words.standstill(run),
        ],
        remedy=remedy,
        may_end=True,
        commands=commands,
    )


def _shortage(run: Run, rank: Rank, workers: Iterable[Process]) -> list[Evidence]:
    """Memory shortages that kill or block workers: the OOM killer, a full /dev/shm."""
    host = run.host[rank.host]
    shortages, machine = words.oom_kills([host], workers), host.machine
    if isinstance(machine, Machine) and machine.shared_total_bytes and machine.shared_free_bytes is not None:
        total, free = machine.shared_total_bytes, machine.shared_free_bytes
        if free < 0.02 * total:
            text = f"shared memory (/dev/shm) is full: {free / 1e6:.0f} of {total / 1e6:.0f} MB free"
            shortages.append(WithRemedy(None, "machine", text, remedy=_MORE_SHARED_MEMORY))
    return shortages


def _describe_worker(worker: Process) -> str:
    if worker.state in "ZX":
        return f"worker pid {worker.pid}: {how_it_ended(worker)}"
    if (stopped := stopped_by(worker)) is not None:
        return f"worker pid {worker.pid} is {stopped.why}"
    frame = find_worker_frame(worker)
    source = f" `{frame.source}`" if frame is not None and frame.source else ""
    if is_in_fork(worker):
        return f"worker pid {worker.pid} is still in os.fork, at a lock; it has run no line of its own"
    place = f"in {frame.function} at {frame.file}:{frame.line}{source}" if frame else "waiting for work in its queue"
    main = kernel_thread(worker, None)
    waiting = f"; wchan {main.wchan or 'none'}, {main.cpu_ns / 1e6:.0f} ms CPU during the observation" if main else ""
    return f"worker pid {worker.pid} is {place}{waiting}"
