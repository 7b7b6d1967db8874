"""Everybody waits in one operation for a rank that is alive and stuck elsewhere (where is said).

## What it finds

Some ranks stand still in an operation, and the rank they wait for is alive but in none: it computes, sleeps, waits for a
lock, a file or a child process.

## Why it hangs

A collective needs every rank of its group. As long as one of them does not arrive, the others wait, by default for
30 minutes, and the error that comes then names nobody.

## Evidence

The chain of waiting, and the missing rank's own stack, CPU and counters at both looks.

## What to do

Look at the line where the missing rank stands. If it is meant to take that long, tell the others: a longer timeout, or a
`monitored_barrier` that names it.

## When it would be wrong

When the rank is busy with something legitimate that takes longer than the patience and counts nothing: give `--patience`.
While it is younger than that, or its counters move, it is a note and no error.

## References

- torch.distributed.monitored_barrier: https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import progress, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD202"
NAME = "missing-rank"
EXPLAINS: tuple[str, ...] = ()

_ELSEWHERE = ("stopped", "waiting-input")  # HD302
_AT_WORK = ("evaluating", "checkpointing", "compiling", "loading-data")


def check(run: Run) -> Iterator[Finding]:
    """One finding for each class of ranks that others wait for."""
    victims = [rank for rank in run.waiting() if not rank.moving]
    missing = [
        run.ranks[number]
        for number in sorted(run.causes)
        if number in run.ranks
        and run.ranks[number].label in ("computing", "blocked")
        and not run.ranks[number].waits
        and run.ranks[number].state not in _ELSEWHERE
    ]
    if not victims:
        return
    for group in words.classes(missing):
        yield _finding(run, group, victims)


def _at_work(rank: Rank) -> bool:
    """Whether a rank does something that counts: its numbers move, or it is in work that is known to take long. A loader
    that goes round and round without a batch coming out of it is neither."""
    if rank.process is not None and progress.starves(rank.process, rank.thread):
        return False
    return rank.counters_moved or (rank.moving and rank.state in _AT_WORK)


def _summary(run: Run, group: list[Rank], victims: list[Rank]) -> str:
    """Who waits for the missing ranks, directly and in turn, and what these do instead."""
    blamed = {rank.rank for rank in group}
    direct = [rank for rank in victims if run.waits_for[rank.rank] & blamed] or victims
    nearest = [rank.rank for rank in direct if words.operation(rank) == words.operation(direct[0])]
    others = [rank.rank for rank in victims if rank.rank not in nearest]
    text = (
        f"{words.ranks(nearest)} {words.verb(nearest, 'waits', 'wait')} in {words.operation(direct[0])} for "
        f"{words.ranks(blamed)}, which {words.doing(group[0])} {words.place(group[0])}"
    )
    return text + (f"; {words.ranks(others)} {words.verb(others, 'waits', 'wait')} in turn" if others else "")


def _finding(run: Run, group: list[Rank], victims: list[Rank]) -> Finding:
    first = group[0]
    blamed = [rank.rank for rank in group]
    waiting = [rank.rank for rank in victims]
    working = _at_work(first)
    cpu = f", {first.cpu_percent:.0f} % CPU" if first.cpu_percent is not None else ""
    return words.finding(
        CODE,
        NAME,
        severity=words.by_age(run, working=working),
        confidence=0.6 if first.label == "computing" else 0.75,
        culprits=blamed,
        victims=waiting,
        summary=_summary(run, group, victims),
        evidence=[
            *words.class_evidence(group),
            Evidence(
                rank=first.rank,
                probe="cpu",
                text=f"{first.why}{cpu}; counters {'move' if first.counters_moved else 'do not move'}",
            ),
            *words.class_evidence(victims),
            *words.silence(run),
        ],
        remedy=f"Find out why {words.ranks(blamed)} does not come to the operation the others are in."
        if not working
        else f"{words.ranks(blamed).capitalize()} is at work: wait, or let the others not wait for it.",
        commands=words.look_again(first),
    )
