"""A cycle of sends and receives, or a receive from a rank that never sends.

## What it finds

Ranks that stand still in `send` or `recv` and wait for each other in a ring, and ranks that wait for a message from a
peer which itself stands in something else that can't end.

## Why it hangs

A blocking `send` returns when its receiver has posted the matching receive (Gloo), and a `recv` when the message has
come. Two ranks that both send first wait for each other; so does a pipeline whose stages disagree about who speaks next.

## Evidence

The peers that the calls name (their `src` and `dst`), and what each peer is doing.

## What to do

Order the calls so that of each pair one sends while the other receives, or post them together with
`batch_isend_irecv`.

## When it would be wrong

When the peer could not be read from the call: then the chain is drawn to every other rank, and the confidence is lower.

## References

- Point-to-point communication: https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import facts, waits, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Finding

CODE = "HD204"
NAME = "p2p-deadlock"
EXPLAINS = ("HD201", "HD202")


def check(run: Run) -> Iterator[Finding]:
    """Rings of point-to-point calls, and calls whose peer is stuck in another operation."""
    stuck = {rank.rank: rank for rank in run.waiting() if waits.is_p2p(rank) and not rank.moving}
    ring = [rank for rank in stuck.values() if rank.rank in run.causes]
    if not ring:
        return
    if all(_peer(rank) in stuck for rank in ring):
        yield _finding(
            run,
            ring,
            f"{words.ranks(r.rank for r in ring)} wait for each other: "
            + "; ".join(f"rank {r.rank} in {words.operation(r)}" for r in ring[:4]),
        )
        return
    unknown = [rank for rank in ring if _peer(rank) is None]
    if unknown:
        others = [run.ranks[number] for number in sorted(run.causes) if number in run.ranks and number not in stuck]
        rest = [rank for rank in ring if rank not in unknown] + others
        clauses = [*_clauses(unknown, ", whose peer could not be seen"), *_clauses(rest)]
        yield _finding(run, [*ring, *others], f"{'; '.join(clauses)}: none of these can end")
        return
    if (astray := _astray(run, stuck)) is not None:
        yield _finding(
            run,
            [astray[0]],
            f"rank {astray[1].rank} waits in {words.operation(astray[1])}, and rank {astray[0].rank}'s own message goes "
            f"elsewhere: it waits in {words.operation(astray[0])}",
            extra=[astray[1]],
        )
        return
    for rank in ring:
        named = _peer(rank)
        peer = run.ranks.get(named) if named is not None else None
        if peer is not None and peer.waits and not waits.answers(rank, peer) and peer.rank not in stuck:
            yield _finding(
                run,
                [peer],
                f"rank {rank.rank} waits in {words.operation(rank)}, and rank {peer.rank} {words.doing(peer)} "
                f"{words.place(peer)}: the message never comes",
                extra=[rank],
            )


def _clauses(ranks: list[Rank], addition: str = "") -> list[str]:
    """Who waits in what, a clause for each operation."""
    alike: dict[tuple[bool, str], list[int]] = {}
    for rank in ranks:
        alike.setdefault((rank.waits, words.operation(rank) if rank.waits else words.doing(rank)), []).append(rank.rank)
    return [
        f"{words.ranks(who)} {words.verb(who, 'waits', 'wait')} in {text}{addition}"
        if waits
        else f"{words.ranks(who)} {text}"
        for (waits, text), who in alike.items()
    ]


def _astray(run: Run, stuck: dict[int, Rank]) -> tuple[Rank, Rank] | None:
    """(a rank whose send goes to one that does not receive it, a rank that waits to receive from it)."""
    for rank in stuck.values():
        named = _peer(rank)
        peer = run.ranks.get(named) if named is not None else None
        if rank.wait is None or rank.wait.operation.op not in facts.SENDS or peer is None or waits.answers(rank, peer):
            continue
        for other in stuck.values():
            receives = other.wait is not None and other.wait.operation.op in facts.RECEIVES
            if receives and other is not peer and _peer(other) == rank.rank:
                return rank, other
    return None


def _peer(rank: Rank) -> int | None:
    return rank.wait.operation.peer if rank.wait is not None else None


def _finding(run: Run, culprits: list[Rank], summary: str, extra: list[Rank] | None = None) -> Finding:
    known = all(_peer(rank) is not None for rank in culprits) or extra is not None
    return words.finding(
        CODE,
        NAME,
        severity="error",
        confidence=0.9 if known else 0.6,
        culprits=(rank.rank for rank in culprits),
        victims=(rank.rank for rank in run.waiting()),
        summary=summary,
        evidence=[*words.class_evidence([*culprits, *(extra or [])]), *words.standstill(run)],
        remedy="Let one side of each pair send while the other receives, or post both with batch_isend_irecv.",
        commands=words.look_again(culprits[0]),
    )
