"""Sends and receives do not match: a cycle of ranks, or a peer that is elsewhere.

## What it finds

Ranks that wait for each other in `send` or `recv`, and ranks that wait for a
message from a peer that is stuck in another operation.

## Why it hangs

With Gloo, a blocking `send` returns when its receiver has posted the matching
receive. A `recv` returns when the message has arrived. Two ranks that both send
first wait for each other. So do pipeline stages that disagree about which one
sends next.

## Example

```python
dist.send(message, dst=(rank + 1) % world_size)  # <- every rank sends first
dist.recv(message, src=(rank - 1) % world_size)
```

## Use instead

```python
outgoing = dist.P2POp(dist.isend, message, (rank + 1) % world_size)
incoming = dist.P2POp(dist.irecv, received, (rank - 1) % world_size)
for work in dist.batch_isend_irecv([outgoing, incoming]):  # both at once
    work.wait()
```

Or order the blocking calls: in each pair, one rank sends while the other
receives.

## How hangdoc knows

It reads the peers of the calls (their `src` and `dst` arguments), and what each
peer is doing.

## When it can be wrong

The peer could not be read from a call. hangdoc then assumes that the call may
wait for any other rank, and lowers the confidence.

## References

- Point-to-point communication:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Iterable

from hangdoc.diagnosis import Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.kinds import PointToPoint
from hangdoc.reasoning.model import Class, Run
from hangdoc.reasoning.waits import is_p2p

CODE = "HD204"
NAME = "p2p-deadlock"
ABOUT = (PointToPoint,)


def say(run: Run, blockage: Blockage) -> Finding:
    """Cycles of point-to-point calls, and calls whose peer is stuck in another operation."""
    kind = blockage.kind
    assert isinstance(kind, PointToPoint)  # noqa: S101  (see ABOUT)
    shown = [one for one in (kind.astray, kind.waits_for_it) if one is not None] or list(kind.parts)
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.9 if kind.sure else 0.6,
        summary=_summary(kind),
        evidence=[*words.class_evidence(shown), *words.standstill(run)],
        remedy="In each pair, one rank must send while the other receives. Or post both calls with batch_isend_irecv.",
        commands=words.look_again(run.ranks[blockage.culprits[0]]),
    )


def _summary(kind: PointToPoint) -> str:
    astray, other = kind.astray, kind.waits_for_it
    if not kind.sure:
        unknown = [one for one in kind.parts if is_p2p(one.first) and _peer(one) is None]
        rest = [one for one in kind.parts if one not in unknown]
        calls = "; ".join([*_calls(unknown, " (peer unknown)"), *_calls(rest)])
        return f"ranks are waiting in calls that do not match: {calls}"
    if astray is None:
        ring = sorted(number for one in kind.parts for number in one.ranks)
        return f"{words.ranks(ring)} are waiting for each other: " + "; ".join(
            f"{words.ranks(one.ranks)} in {words.operation(one.first)}" for one in kind.parts[:4]
        )
    if other is None:
        calls = "; ".join(_calls(one for one in kind.parts if one is not astray))
        return f"{words.waiting_in([astray])}, but no other rank makes the matching call: {calls}"
    place = "" if is_p2p(astray.first) else f" {words.place(astray.first)}"
    return (
        f"{words.waiting_in([other])}, but {words.ranks(astray.ranks)} {words.be(astray.ranks)} "
        f"{words.doing(astray.first)}{place}"
    )


def _peer(one: Class) -> int | None:
    return one.first.wait.operation.peer if one.first.wait is not None else None


def _calls(classes: Iterable[Class], addition: str = "") -> list[str]:
    """`ranks 0-1 in send`, one text for each operation."""
    alike: dict[str, list[int]] = {}
    for one in classes:
        alike.setdefault(words.operation(one.first), []).extend(one.ranks)
    return [f"{words.ranks(who)} in {text}{addition}" for text, who in alike.items()]
