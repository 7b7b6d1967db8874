"""What could not be seen, and what that leaves open.

## What it finds

Ranks of the run that nobody looked at, ranks whose stacks were refused, and runs in which everything waits and nothing
that was seen says why.

## Why it hangs

It does not: this finding is hangdoc's own honesty. A cause may lie where it could not look.

## Evidence

What was refused, and with which words.

## What to do

Run hangdoc where the missing ranks are and diagnose the bundles together, or give it the right to look: see
`hangdoc doctor`.

## When it would be wrong

Never, but it may be beside the point when another finding already explains everything.

## References

- docs/attaching.md: containers, other users, what each permission lets hangdoc see
"""

from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding, Severity
from hangdoc.snapshot import Unavailable

CODE = "HD901"
NAME = "evidence-missing"
EXPLAINS: tuple[str, ...] = ()


def check(run: Run) -> Iterator[Finding]:
    """Unseen ranks, refused stacks, unexplained standstill."""
    stuck = [rank for rank in run.waiting() if not rank.moving]
    unseen_causes = sorted(number for number in run.causes if number in run.unseen)
    if stuck and unseen_causes:
        yield words.finding(
            CODE,
            NAME,
            severity="warning",
            confidence=0.5,
            culprits=(),
            victims=(),
            summary=f"{words.ranks(r.rank for r in stuck)} {words.verb([r.rank for r in stuck], 'waits', 'wait')} in "
            f"{words.operation(stuck[0])} for {words.ranks(unseen_causes)}, which nobody looked at",
            evidence=[
                *(Evidence(rank=n, probe="processes", text=run.unseen[n]) for n in unseen_causes[:8]),
                *words.class_evidence(stuck),
                *words.silence(run),
            ],
            remedy="Take a snapshot on the other hosts too and diagnose them together.",
            commands=(
                "hangdoc snapshot -o $(hostname).hangdoc   # on every host",
                "hangdoc diagnose *.hangdoc",
            ),
        )
    refused = [
        (rank, rank.process.stack.reason)
        for rank in run.ranks.values()
        if rank.process is not None and rank.label != "dead" and isinstance(rank.process.stack, Unavailable)
    ]
    if refused:
        blind = len(refused) == len([r for r in run.ranks.values() if r.label != "dead"])
        yield words.finding(
            CODE,
            NAME,
            severity="warning",
            confidence=0.5,
            culprits=(),
            victims=(),
            summary=f"the stacks of {words.ranks(r.rank for r, _ in refused)} could not be read: {refused[0][1]}"
            + ("; nothing can be said about what they wait for" if blind else ""),
            evidence=[
                Evidence(rank=rank.rank, probe="stacks", text=f"pid {rank.pid}: {why}") for rank, why in refused[:8]
            ],
            remedy="Run `hangdoc doctor` on that host: it says what is missing and how to mend it.",
            commands=("hangdoc doctor",),
        )
    if stuck and not run.causes:
        severity: Severity = words.by_age(run)
        yield words.finding(
            CODE,
            NAME,
            severity=severity,
            confidence=0.3,
            culprits=(),
            victims=(rank.rank for rank in stuck),
            summary=f"{words.ranks(r.rank for r in stuck)} all {words.verb([r.rank for r in stuck], 'stands', 'stand')} still "
            f"in {words.operation(stuck[0])}, and nothing that was seen says why",
            evidence=[*words.class_evidence(stuck), *words.silence(run)],
            remedy="Look at the links between the hosts (queues, retransmits) and at what the ranks sent before: sizes "
            "and order of their last collectives.",
            commands=words.look_again(stuck[0]),
        )
