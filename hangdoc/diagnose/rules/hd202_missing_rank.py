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

from hangdoc.diagnose import words, work
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD202"
NAME = "missing-rank"
EXPLAINS: tuple[str, ...] = ()

_ELSEWHERE = ("stopped", "waiting-input")  # HD302


def check(run: Run) -> Iterator[Finding]:
    """One finding for each class of ranks that others wait for."""
    victims = [rank for rank in run.waiting() if not rank.moving]
    missing = [
        rank
        for rank in run.awaited()
        if rank.label in ("computing", "blocked")
        and rank.state not in _ELSEWHERE
        and work.at_work(rank) is None
        and not work.unclear(rank)
    ]
    if not victims:
        return
    for group in words.classes(missing):
        yield _finding(run, group, victims)


def _finding(run: Run, group: list[Rank], victims: list[Rank]) -> Finding:
    first = group[0]
    blamed = [rank.rank for rank in group]
    cpu = f", {first.cpu_percent:.0f} % CPU" if first.cpu_percent is not None else ""
    return words.finding(
        CODE,
        NAME,
        # Numbers that move without a loop that moves them on may be work, or a search without end: never an error.
        severity=words.by_age(run, working=first.counters_moved),
        confidence=0.6 if first.label == "computing" else 0.75,
        culprits=blamed,
        victims=(rank.rank for rank in victims),
        summary=words.awaited(run, group, victims),
        evidence=[
            *words.class_evidence(group),
            Evidence(
                rank=first.rank,
                probe="cpu",
                text=f"{first.why}{cpu}; counters {'move' if first.counters_moved else 'do not move'}",
            ),
            *words.ended_children(run, first),
            *words.class_evidence(victims),
            *words.standstill(run),
        ],
        remedy=f"Find out why {words.ranks(blamed)} {words.verb(blamed, 'does', 'do')} not come to the operation the others "
        "are in.",
        commands=words.look_again(first),
    )
