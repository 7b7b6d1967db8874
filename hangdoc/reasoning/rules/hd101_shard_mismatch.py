"""A rank has less data than the others and leaves the training loop first.

## What it finds

A rank has left the training loop, or spins in its data iterator, while the
other ranks are still inside the loop and wait for it in a call. The ranks
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
arguments and open files name, and what the trainer publishes. Files count if
they have the suffix of a data format (`.parquet`, `.tar`, `.jsonl`); if a
directory has none of these and its setting is named after data (`--data-dir`),
all of its files count. The stacks show which rank is outside the loop. A loop
over a DataLoader without `break`, `return` or `try` ends only with its data, also
where most ranks have left it. So does one that a rank left before its last round,
if only `except StopIteration` leaves it: the data ended that it reads with `next()`.
Where no amount can be seen, an option that names other data on the two sides
(`--data-dir imgs` and `imgs_small`) explains the loop, unless a statement that
ends it has variables that differ. Lightning and others count their batches
themselves: a rank that has done all of them, beside one that has more, is enough.
Of a stream without a length, Lightning records the end, and reads one batch ahead.
Ranks that part in the loop over epochs are compared by the loader of the loop
inside it.

## When it can be wrong

The rank left the loop for another reason, such as a local early stop, and its
data differs by accident. Where no number of batches is known and no record shows
the calls before, an extra call of a rank inside looks the same. The same number of different files is HD104. The same
data with an uneven split is HD102.

## References

- torch.distributed.algorithms.join:
  https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
- DistributedDataParallel, uneven inputs:
  https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from hangdoc.phrases import amount
from hangdoc.program import END_OF_DATA
from hangdoc.reasoning.causes.loops import CountedOut, DataEnded, NoData, OtherData, RanOut
from hangdoc.reasoning.evidence.stack import name_line
from hangdoc.reasoning.model.kinds import LeftLoop
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks import amounts
from hangdoc.reasoning.ranks.counters import count_rounds, frame_of
from hangdoc.reasoning.ranks.iterators import list_exhausted
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import next_steps, words
from hangdoc.reasoning.text.next_steps import Command, operand
from hangdoc.snapshot import Exit

_REMEDY = (
    "Give every rank the same amount of data. Or agree on the number of batches before the loop: all_reduce the counts with "
    "ReduceOp.MIN."
)
_SAME_BATCHES = (
    "Give the dataloaders of all ranks the same batch size, sampler and drop_last. Or agree on the number of batches before the "
    "loop: all_reduce the counts with ReduceOp.MIN."
)


_START_AGAIN = (
    "Begin a new pass over the data when it ends, or agree on the number of rounds before the loop: all_reduce it with "
    "ReduceOp.MIN."
)

_UNITS = {"batches": ("batch", "es"), "files": ("file", "s")}


@about(RanOut)
def _ran_out(run: Run, blockage: Blockage, cause: RanOut) -> Draft:
    left, strongest = cause.left, cause.left.differences[0]
    short, inside = left.short.first, left.inside.first
    total = count_rounds(inside)[1] if count_rounds(short)[0] is not None else None
    fewer = amount(strongest.fewer, *_UNITS[strongest.unit]) if strongest.unit else f"{strongest.fewer}"
    amounts_of_both = f"{fewer} vs. {strongest.more} on rank {inside.rank}"
    expected = f"rank {inside.rank} expects {total}" if total is not None else amounts_of_both
    length = amounts.find_equal_length(short, inside)
    alike = f"its dataset is as long as that of rank {inside.rank} ({length}), so its dataloader makes other batches"
    return Draft(
        confidence=0.72 + 0.25 * strongest.weight,
        summary=_summary(left, expected, equal=length is not None),
        evidence=[
            *([Evidence(short.rank, "loops", alike)] if length is not None else []),
            *sentences.loop_evidence(run, left),
        ],
        remedy=_REMEDY if length is None else _SAME_BATCHES,
        commands=_list_directories(short, inside),
    )


@about(DataEnded)
def _ended(run: Run, blockage: Blockage, cause: DataEnded) -> Draft:
    left, exit_ = cause.left, cause.exit
    rank = left.short.ranks[0]
    why = f"the loop `{left.loop.header}` has no `break`, `return` or `try`: it ends with its data"
    return Draft(
        confidence=0.75 if exit_ is None else 0.85,
        summary=_summary(left),
        evidence=[
            Evidence(rank, "source", why) if exit_ is None else _describe_data_exit(left, exit_),
            *_list_exhausted(left),
            *sentences.loop_evidence(run, left),
        ],
        remedy=_REMEDY if exit_ is None else _START_AGAIN,
    )


def _describe_data_exit(left: LeftLoop, exit_: Exit) -> Evidence:
    """What ended the loop before its last round."""
    short = left.short.first
    at = name_line(exit_.line, frame_of(left.loop, short), short.frame)
    text = f"only `{END_OF_DATA}` ({at}) ends the loop before its last round"
    return Evidence(short.rank, "source", text)


def _list_exhausted(left: LeftLoop) -> list[Evidence]:
    """The iterators of the rank that ran out whose own count shows it."""
    short = left.short.first
    frame = frame_of(left.loop, short)
    exhausted = list_exhausted(short.process, frame) if frame is not None else []
    texts = (
        f"its dataloader {f'`{each.name}` ' * bool(each.name)}has given all of its {each.done} batches"
        for each in exhausted
    )
    return [Evidence(short.rank, "loops", text) for text in texts]


@about(OtherData)
def _other_data(run: Run, blockage: Blockage, cause: OtherData) -> Draft:
    left, option = cause.left, cause.options[0]
    who = left.short.ranks
    others = words.waiting_in([left.inside], words.them(who))
    return Draft(
        confidence=0.7,
        summary=f"{words.ranks(who)} left the loop{sentences.left_after(left)}; {others}; `{option.name}` names other data: "
        f"{words.values_by_rank(option.values.values)}",
        evidence=sentences.loop_evidence(run, left),
        remedy=_REMEDY,
    )


@about(CountedOut)
def _counted_out(run: Run, blockage: Blockage, cause: CountedOut) -> Draft:
    return sentences.describe_counted(run, blockage, cause, _REMEDY)


@about(NoData)
def _starved(run: Run, blockage: Blockage, cause: NoData) -> Draft:
    rank, waiting = blockage.awaited[0].first, blockage.waiting[0].first
    who = blockage.culprits
    loader = words.verb(who, "its dataloader, which has", "their dataloaders, which have")
    of_it = "no" if not cause.fewest else "too little"
    return Draft(
        confidence=0.93 if blockage.ends == "never" else 0.75,  # with little data, the loader may only be slow
        summary=words.and_victims(f"{words.do(who, 'spins', 'spin')} in {loader} {of_it} data", blockage),
        evidence=[
            Evidence(rank.rank, "cpu", f"{rank.cpu_percent or 0:.0f}% CPU {words.place(rank)}, but no batch arrives"),
            *cause.evidence,
            *words.stacks(run, blockage.waiting),
        ],
        remedy=_REMEDY,
        commands=(*_list_directories(rank, waiting), *next_steps.look_again(rank)),
    )


def _summary(left: LeftLoop, expected: str = "", *, equal: bool = False) -> str:
    """`equal`: all have the same data, and make other batches of it."""
    who = left.short.ranks
    ended = (
        f"came to the end of {words.verb(who, 'its dataloader', 'their dataloaders')}" if equal else "ran out of data"
    )
    others = words.waiting_in([left.inside], words.them(who))
    return f"{words.ranks(who)} {ended}{sentences.left_after(left, expected)} and left the loop; {others}"


def _list_directories(short: Rank, more: Rank) -> tuple[Command, ...]:
    commands = [
        Command(("ls", operand(source.path)), into=("wc", "-l"), host=rank.host if short.host != more.host else "")
        for few, many in amounts.common_sources(short, more)
        if few.digest != many.digest
        for rank, source in ((short, few), (more, many))
    ]
    return tuple(dict.fromkeys(commands))[:4]
