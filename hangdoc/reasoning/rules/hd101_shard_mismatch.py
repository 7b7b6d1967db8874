"""A rank has less data than the others and leaves the training loop first.

## What it finds

A rank has left the training loop, or spins in its data iterator, while the
other ranks are still inside the loop and wait for it in a collective. The ranks
visibly have different amounts of data: shard files, batches, list lengths or
loop bounds.

## Why it hangs

Every iteration of a data-parallel loop contains a collective that all ranks
must call. A rank with fewer shards runs out of data first, leaves the loop and
waits in the next operation of the program. The others wait for it in the
gradient all-reduce of the next batch. A rank with no shards at all and a loader
that restarts forever spins at 100% CPU and never yields a batch.

## Example

```python
shards = Path(os.environ["DATA_DIR"])  # <- 201 files on node 0, 4 on node 1
files = sorted(shards.glob("*.parquet"))
for step, batch in enumerate(batches(files)):
    model(batch).sum().backward()
    optimizer.step()
dist.barrier()
```

## Use instead

```python
files = sorted(shards.glob("*.parquet"))
steps = torch.tensor(count_batches(files))
dist.all_reduce(steps, op=dist.ReduceOp.MIN)  # the same on every rank
for step, batch in zip(range(int(steps)), batches(files)):
    model(batch).sum().backward()
    optimizer.step()
dist.barrier()
```

Or copy the same shards to every node, or wrap the loop in
`torch.distributed.algorithms.join.Join`.

## How hangdoc knows

It compares the loop counters and loop bounds of both ranks, the lengths of
their lists, the numbers of files in the directories that their environment,
arguments and open files name, and what the trainer publishes. The stacks show
which rank is outside the loop.

## When it can be wrong

The rank left the loop for another reason, such as a local early stop, and its
data differs by accident. The same number of different files is HD104. The same
data with an uneven split is HD102.

## References

- torch.distributed.algorithms.join:
  https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
- DistributedDataParallel, uneven inputs:
  https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

import shlex

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.causes import amounts
from hangdoc.reasoning.causes.data import FewerData, NoData
from hangdoc.reasoning.kinds import LeftLoop
from hangdoc.reasoning.model import Rank, Run
from hangdoc.reasoning.ranks.counters import batches
from hangdoc.reasoning.rules import left_loop

CODE = "HD101"
NAME = "shard-mismatch"
ABOUT = (FewerData, NoData)

_REMEDY = (
    "Give every rank the same shards. Or agree on the number of batches before the loop: all_reduce the counts with "
    "ReduceOp.MIN."
)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that ran out of data early, or that spin in a loader without data."""
    if isinstance(blockage.cause, FewerData):
        if isinstance(blockage.kind, LeftLoop):
            return _ran_out(run, blockage, blockage.kind, blockage.cause)
        return _has_fewer(run, blockage, blockage.cause)
    assert isinstance(blockage.cause, NoData)  # noqa: S101  (see ABOUT)
    return _starved(run, blockage, blockage.cause)


def _ran_out(run: Run, blockage: Blockage, kind: LeftLoop, cause: FewerData) -> Finding:
    short, waiting = kind.short.first, kind.inside.first
    done, total = batches(short)[0], batches(waiting)[1]
    strongest = cause.differences[0]
    who = words.ranks(kind.short.ranks)
    known = done is not None and total is not None
    compared = f"rank {waiting.rank} expects {total}" if known else f"{_amounts(strongest)} on rank {waiting.rank}"
    after = left_loop.count(kind, done, "batches") if done is not None else ""
    how = f"({after}, {compared})" if after and len(kind.short.ranks) > 1 else f"{after} ({compared})".lstrip()
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.72 + 0.25 * strongest.weight,
        summary=f"{who} ran out of data {how} and left the loop; "
        + words.waiting_in([kind.inside], words.them(kind.short.ranks)),
        evidence=[*left_loop.evidence(kind, cause.differences), *words.standstill(run)],
        remedy=_REMEDY,
        commands=_commands(short, waiting),
    )


def _has_fewer(run: Run, blockage: Blockage, cause: FewerData) -> Finding:
    short, waiting = cause.short, cause.waiting
    strongest = cause.differences[0]
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.5 + 0.4 * strongest.weight,
        summary=f"{words.ranks(short.ranks)} {words.verb(short.ranks, 'has', 'have')} less data than "
        f"{words.ranks(waiting.ranks)} ({_amounts(strongest)}); {words.waiting_in([short])}, "
        f"{words.waiting_in([waiting])}",
        evidence=[
            *(line for difference in cause.differences[:3] for line in difference.evidence),
            *words.class_evidence([short, waiting]),
            *words.standstill(run),
        ],
        remedy=_REMEDY,
        commands=_commands(short.first, waiting.first),
    )


def _starved(run: Run, blockage: Blockage, cause: NoData) -> Finding:
    rank, waiting = blockage.at[0].first, blockage.waiting[0]
    loader = words.verb(blockage.culprits, "its dataloader, which has", "their dataloaders, which have")
    amount = "no" if not cause.fewest else "too little"
    return words.blocked(
        (CODE, NAME),
        blockage,
        # Little data, or a list that happens to be empty, may also mean a slow loader.
        confidence=0.93 if blockage.ends == "never" else 0.75 if cause.compared else 0.7,
        summary=f"{words.ranks(blockage.culprits)} {words.verb(blockage.culprits, 'spins', 'spin')} in {loader} {amount} data; "
        f"{words.victims_wait(blockage)}",
        evidence=[
            Evidence(
                rank=rank.rank,
                probe="cpu",
                text=f"{rank.cpu_percent or 0:.0f}% CPU {words.place(rank)}, but no batch arrives",
            ),
            *cause.evidence,
            *words.class_evidence(blockage.waiting),
            *words.standstill(run),
        ],
        remedy=_REMEDY,
        commands=(*_commands(rank, waiting.first), *words.look_again(rank)),
    )


def _amounts(difference: amounts.Difference) -> str:
    unit = f" {difference.unit}" if difference.unit else ""
    return f"{difference.fewer}{unit} vs. {difference.more}"


def _commands(short: Rank, waiting: Rank) -> tuple[str, ...]:
    mine, theirs = amounts.sources(short), amounts.sources(waiting)
    several = short.host != waiting.host
    commands = [
        f"ls {shlex.quote(source.path)} | wc -l" + (f"   # on {rank.host}" if several else "")
        for name in mine
        if name in theirs and mine[name].digest != theirs[name].digest
        for rank, source in ((short, mine[name]), (waiting, theirs[name]))
    ]
    return tuple(dict.fromkeys(commands))[:4]
