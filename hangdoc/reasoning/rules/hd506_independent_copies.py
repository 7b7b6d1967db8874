"""Several ranks were started, but each one trains alone, without a process group.

## What it finds

A launcher started several ranks. All of them train, but none has a process
group, threads of a backend, or a connection to another rank.

## Why it hangs

It does not hang. Each rank trains the whole model alone and never exchanges a
gradient. The run costs n times as much and does the work of one process.

## Example

```python
if torch.cuda.is_available():  # <- without a GPU, no group is created
    dist.init_process_group("nccl")
    model = DistributedDataParallel(model.cuda())
```

## Use instead

```python
if torch.cuda.is_available():
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    model = DistributedDataParallel(model.cuda())
else:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
```

Or start only one process.

## How hangdoc knows

torch's list of process groups is empty in each rank. There are no Gloo or NCCL
threads and no sockets between ranks, and the stacks are inside the model, the
backward or the optimizer.

## When it can be wrong

Independent copies are intended: a sweep with one seed per rank, or an ensemble.

## References

- torch.distributed.init_process_group:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Iterator

from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.rules.draft import Draft, Evidence, Run
from hangdoc.reasoning.text import words
from hangdoc.snapshot import Interpreter
from hangdoc.torch_facts import file_names


def check(run: Run) -> Iterator[Draft]:
    """One finding for a run whose ranks train independently."""
    ranks = run.ranks.values()
    if len(ranks) < 2 or run.unseen or run.backend is not None:
        return
    if all(map(_alone, ranks)) and any(map(_trains, ranks)):
        who = list(run.ranks)
        yield Draft(
            confidence=0.85,
            culprits=who,
            summary=f"{words.ranks(who)} train {len(who)} independent copies of the model: they have no process group and "
            "exchange no data",
            evidence=[
                Evidence(who[0], "interpreter", f"torch lists no process group{words.also(who)}"),
                Evidence(None, "sockets", "no connection between any two ranks"),
                *words.class_evidence(run.classes)[:4],
            ],
            remedy='Call init_process_group("gloo") when there is no GPU, or start only one process.',
        )


def _alone(rank: Rank) -> bool:
    process = rank.process
    if process is None or not rank.moving or not isinstance(process.interpreter, Interpreter):
        return False
    # On one host, RPC exchanges data in shared memory.
    return not (process.interpreter.groups or rank.connections or rank.uses_rpc)


def _trains(rank: Rank) -> bool:
    """Whether it is in the model, the backward or the optimizer in either stack, so that its start-up is over. Importing these
    files is not training."""
    process = rank.process
    threads = (*observed.python_threads(process), *observed.threads_before(process)) if process is not None else ()
    return any(
        part in frame.file
        for thread in threads
        if not any("importlib" in frame.file for frame in thread.frames)
        for frame in thread.frames
        for part in file_names.TRAINING
    )
