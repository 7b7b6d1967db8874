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

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.ranks.holds import Asleep, AtFileLock, Busy, Elsewhere, OnNetwork, Starves
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD202"
NAME = "missing-rank"
ABOUT = (Asleep, AtFileLock, Elsewhere, OnNetwork, Busy, Starves)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that do not reach the operation in which the others wait for them."""
    first, blamed = blockage.at[0].first, blockage.culprits
    cpu = f", {first.cpu_percent:.0f}% CPU" if first.cpu_percent is not None and "core" not in first.why else ""
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.6 if first.label == "computing" else 0.75,
        summary=words.awaited(run, blockage),
        evidence=[
            *words.class_evidence(blockage.at),
            Evidence(
                rank=first.rank,
                probe="cpu",
                text=f"{first.why}{cpu}; {'its counters changed' if first.counters_moved else 'no counter changed'}",
            ),
            *words.ended_children(run, first),
            *words.class_evidence(blockage.waiting),
            *words.standstill(run),
        ],
        remedy=f"Find out why {words.ranks(blamed)} {words.verb(blamed, 'does', 'do')} not reach the operation in which the "
        "other ranks are waiting.",
        commands=words.look_again(first),
    )
