"""What could not be seen, and what that leaves open.

## What it finds

Ranks of the run that nobody looked at, ranks whose stacks or sockets were refused, and runs in which everything waits and nothing
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

from collections.abc import Iterable, Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding, Severity
from hangdoc.snapshot import Unavailable

CODE = "HD901"
NAME = "evidence-missing"
EXPLAINS: tuple[str, ...] = ()


def check(run: Run) -> Iterator[Finding]:
    """Unseen ranks, refused stacks and sockets, unexplained standstill."""
    stuck = [rank for rank in run.waiting() if not rank.moving]
    waits = f"{words.ranks(r.rank for r in stuck)} {words.verb([r.rank for r in stuck], 'waits', 'wait')}"
    unseen_causes = sorted(number for number in run.causes if number in run.unseen)
    if stuck and unseen_causes:
        yield _finding(
            f"{waits} in {words.operation(stuck[0])} for {words.ranks(unseen_causes)}, which nobody looked at",
            [
                *(Evidence(rank=n, probe="processes", text=run.unseen[n]) for n in unseen_causes[:8]),
                *words.class_evidence(stuck),
                *words.standstill(run),
            ],
            "Take a snapshot on the other hosts too and diagnose them together.",
            ("hangdoc snapshot -o $(hostname).hangdoc   # on every host", "hangdoc diagnose *.hangdoc"),
        )
    refused = [
        (rank, rank.process.stack.reason)
        for rank in run.ranks.values()
        if rank.process is not None and rank.label != "dead" and isinstance(rank.process.stack, Unavailable)
    ]
    if refused:
        blind = len(refused) == len([r for r in run.ranks.values() if r.label != "dead"])
        yield _finding(
            f"the stacks of {words.ranks(r.rank for r, _ in refused)} could not be read: {refused[0][1]}"
            + ("; nothing can be said about what they wait for" if blind else ""),
            [Evidence(rank=rank.rank, probe="stacks", text=f"pid {rank.pid}: {why}") for rank, why in refused[:8]],
            *_DOCTOR,
        )
    if stuck and run.age_seconds is None and (hosts := run.blind_hosts()):
        yield _finding(
            f"{waits} in {words.operation(stuck[0])}, and since when could not be seen: {hosts[0][1]}",
            [Evidence(rank=None, probe="sockets", text=f"{name}: {why}") for name, why in hosts[:8]],
            *_DOCTOR,
        )
    if stuck and not run.causes and not all(rank.spins for rank in stuck):  # of those, HD701 speaks
        yield _finding(
            f"{words.ranks(r.rank for r in stuck)} all {words.verb([r.rank for r in stuck], 'stands', 'stand')} still "
            f"in {words.operation(stuck[0])}, and nothing that was seen says why",
            [*words.class_evidence(stuck), *words.standstill(run)],
            "Look at the links between the hosts (queues, retransmits) and at what the ranks sent before: sizes and order of "
            "their last collectives.",
            words.look_again(stuck[0]),
            severity=words.by_age(run),
            confidence=0.3,
            victims=stuck,
        )
    if run.standstill:
        everyone = list(run.ranks.values())
        yield _finding(
            f"{words.ranks(run.ranks)} {words.verb(run.ranks, 'stands', 'all stand')} still outside of any operation, and "
            "nothing that was seen says why",
            [*words.class_evidence(everyone), *words.standstill(run)],
            "Look at what each of them waits for: the other threads and child processes of a rank, the lock, the service.",
            words.look_again(everyone[0]),
            severity=words.by_age(run),
            confidence=0.3,
            victims=everyone,
        )


_DOCTOR = ("Run `hangdoc doctor` on that host: it says what is missing and how to mend it.", ("hangdoc doctor",))


def _finding(
    summary: str,
    evidence: list[Evidence],
    remedy: str,
    commands: tuple[str, ...],
    *,
    severity: Severity = "warning",
    confidence: float = 0.5,
    victims: Iterable[Rank] = (),
) -> Finding:
    return words.finding(
        CODE,
        NAME,
        severity=severity,
        confidence=confidence,
        culprits=(),
        victims=(rank.rank for rank in victims),
        summary=summary,
        evidence=evidence,
        remedy=remedy,
        commands=commands,
    )
