"""Ranks see a different amount of data, so one leaves the loop while the others wait for its collective.

## What it finds

A rank has left the training loop (or spins in its data iterator) while the others are still inside it and wait for that
rank in a collective, and the amount of data that the ranks see differs: number of shard files, batches expected, length
of the list of files, loop bounds.

## Why it hangs

Every round of a data-parallel loop is a collective in which all ranks must take part. A rank with fewer shards comes to
the end of its data first, goes on to the next thing in the program and waits there; the others wait for it in the
gradient all-reduce of the next round. An empty list of shards under a loader that starts over for ever is the other
face of it: that rank spins at 100 % CPU inside the loader and never delivers a batch.

## Evidence

The short rank's stack behind the loop (or inside its data iterator, at full CPU), the others' inside it; the loop
counters of both; the numbers of files in the directories that the ranks name in environment, arguments and open files;
what the trainer publishes about itself.

## What to do

Give every node the same shards (compare the directories, `ls | wc -l` and a checksum of the names on each), or make the
number of rounds independent of the files: agree on the minimum over all ranks before the loop, or use
`torch.distributed.algorithms.join.Join`.

## When it would be wrong

Where a rank leaves the loop for another reason (an early stop decided locally) and its data happens to differ too.
Different data of the same amount is HD104; the same data split unevenly is HD102.

## References

- torch.distributed.algorithms.join: https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
- DistributedDataParallel, uneven inputs: https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

import shlex
from collections.abc import Iterator

from hangdoc.diagnose import amounts, exhausted, progress, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD101"
NAME = "shard-mismatch"
EXPLAINS = ("HD201", "HD202", "HD203", "HD102", "HD502")

_REMEDY = (
    "Give every rank the same set of shards, or let all ranks agree on the number of batches before the loop "
    "(an all_reduce with MIN over their counts)."
)


def check(run: Run) -> Iterator[Finding]:
    """Ranks that ran out of data early, and ranks that spin in a loader without data."""
    for case in exhausted.cases(run):
        if case.story == "amount":
            yield _ran_out(run, case)
    yield from _spinning(run)


def _ran_out(run: Run, case: exhausted.Case) -> Finding:
    short, waiting = case.short[0], case.waiting[0]
    done, total = exhausted.counts(short, waiting)
    strongest = case.differences[0]
    who = words.ranks(r.rank for r in case.short)
    after = f" after {done}" if done is not None else ""
    of = f" of {words.ranks([waiting.rank])}'s {total} batches" if done is not None and total is not None else ""
    has = f"; it has {strongest.fewer} where {words.ranks([waiting.rank])} has {strongest.more}" if not of else ""
    return words.finding(
        CODE,
        NAME,
        severity="error",
        confidence=0.72 + 0.25 * strongest.weight,
        culprits=(r.rank for r in case.short),
        victims=(r.rank for r in run.waiting()),
        summary=f"{who} ran out of data{after}{of or (' batches' if after else '')}{has}, left the loop and "
        f"{words.doing(short)}, while {words.ranks(r.rank for r in case.waiting)} "
        f"{words.verb([r.rank for r in case.waiting], 'waits', 'wait')} for it in {words.operation(waiting)}",
        evidence=[*case.evidence(), *words.standstill(run)],
        remedy=_REMEDY,
        commands=_commands(short, waiting),
    )


def _commands(short: Rank, waiting: Rank) -> tuple[str, ...]:
    mine, theirs = amounts.sources(short), amounts.sources(waiting)
    paths = [
        s.path
        for name in mine
        if name in theirs
        for s in (mine[name], theirs[name])
        if mine[name].digest != theirs[name].digest
    ]
    return tuple(f"ls {shlex.quote(path)} | wc -l" for path in dict.fromkeys(paths))[:4]


def _spinning(run: Run) -> Iterator[Finding]:
    victims = [rank for rank in run.waiting() if not rank.moving]
    if not victims:
        return
    for number in sorted(run.causes):
        rank = run.ranks.get(number)
        if rank is None or rank.process is None or rank.state != "loading-data":
            continue
        if not progress.starves(rank.process, rank.thread) or (found := _starved(rank, victims[0])) is None:
            continue
        fewer, evidence, compared = found
        yield words.finding(
            CODE,
            NAME,
            # No data at all will never come. Little of it, or a list that happens to be empty, may be a slow loader.
            severity="error" if fewer == 0 and compared else words.by_age(run),
            confidence=0.93 if fewer == 0 and compared else 0.75 if compared else 0.7,
            culprits=[number],
            victims=(r.rank for r in run.waiting()),
            summary=f"rank {number} spins inside its dataloader, which has {'no' if not fewer else 'too little'} data, "
            f"while {words.ranks(r.rank for r in victims)} {words.verb([r.rank for r in victims], 'waits', 'wait')} "
            f"for it in {words.operation(victims[0])}",
            evidence=[
                Evidence(
                    rank=number,
                    probe="cpu",
                    text=f"{rank.cpu_percent or 0:.0f} % CPU {words.place(rank)}, and no batch comes of it",
                ),
                *evidence,
                *words.class_evidence(victims),
                *words.standstill(run),
            ],
            remedy=_REMEDY,
            commands=(*_commands(rank, victims[0]), *words.look_again(rank)),
        )


def _starved(rank: Rank, other: Rank) -> tuple[int, tuple[Evidence, ...], bool] | None:
    """(how little data a spinning rank has, the evidence, whether another rank has more); None where nothing says so."""
    differences = amounts.differences(rank, other)
    if differences:
        return min(d.fewer for d in differences), tuple(e for d in differences[:3] for e in d.evidence), True
    empty = amounts.empty_lists(rank)
    if empty:
        return (
            0,
            tuple(Evidence(rank=rank.rank, probe="stacks", text=f"`{name}` is empty") for name in empty[:3]),
            False,
        )
    return None
