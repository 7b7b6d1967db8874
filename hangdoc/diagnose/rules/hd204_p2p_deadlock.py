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

from collections.abc import Iterable

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.kinds import PointToPoint
from hangdoc.diagnose.model import Class, Run
from hangdoc.diagnose.waits import is_p2p
from hangdoc.diagnosis import Finding

CODE = "HD204"
NAME = "p2p-deadlock"
ABOUT = (PointToPoint,)


def say(run: Run, blockage: Blockage) -> Finding:
    """Rings of point-to-point calls, and calls whose peer is stuck in another operation."""
    kind = blockage.kind
    assert isinstance(kind, PointToPoint)  # noqa: S101  (see ABOUT)
    shown = [one for one in (kind.astray, kind.waits_for_it) if one is not None] or list(kind.parts)
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.9 if kind.sure else 0.6,
        summary=_summary(kind),
        evidence=[*words.class_evidence(shown), *words.standstill(run)],
        remedy="Let one side of each pair send while the other receives, or post both with batch_isend_irecv.",
        commands=words.look_again(run.ranks[blockage.culprits[0]]),
    )


def _summary(kind: PointToPoint) -> str:
    astray, other = kind.astray, kind.waits_for_it
    if not kind.sure:
        unknown = [one for one in kind.parts if is_p2p(one.first) and _peer(one) is None]
        rest = [one for one in kind.parts if one not in unknown]
        return f"{'; '.join([*_clauses(unknown, ', whose peer could not be seen'), *_clauses(rest)])}: none of these can end"
    if astray is None:
        ring = sorted(number for one in kind.parts for number in one.ranks)
        return f"{words.ranks(ring)} wait for each other: " + "; ".join(
            f"{words.ranks(one.ranks)} in {words.operation(one.first)}" for one in kind.parts[:4]
        )
    who = words.ranks(astray.ranks)
    if other is None:
        return (
            f"{who} {words.verb(astray.ranks, 'waits', 'wait')} in {words.operation(astray.first)}, and no rank's call "
            + (f"fits it: {'; '.join(_clauses(one for one in kind.parts if one is not astray))}")
        )
    waits = f"{words.ranks(other.ranks)} {words.verb(other.ranks, 'waits', 'wait')} in {words.operation(other.first)}"
    if is_p2p(astray.first):
        return f"{waits}, and {who}'s own message goes elsewhere: it waits in {words.operation(astray.first)}"
    return f"{waits}, and {who} {words.doing(astray.first)} {words.place(astray.first)}: the message never comes"


def _peer(one: Class) -> int | None:
    return one.first.wait.operation.peer if one.first.wait is not None else None


def _clauses(classes: Iterable[Class], addition: str = "") -> list[str]:
    """Who waits in what, a clause for each operation."""
    alike: dict[str, list[int]] = {}
    for one in classes:
        alike.setdefault(words.operation(one.first), []).extend(one.ranks)
    return [f"{words.ranks(who)} {words.verb(who, 'waits', 'wait')} in {text}{addition}" for text, who in alike.items()]
