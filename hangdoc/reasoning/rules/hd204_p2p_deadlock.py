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

It reads the peers and the tags of the calls (their arguments), and what each
peer is doing. Of a work, these are in the line that made it. Of
batch_isend_irecv it reads the list of P2POp objects of each rank, and compares
those of ranks in the same round of their loop. If a rank has left a loop in
which others wait for it, and its counter shows that it left before its end,
that is HD101 or HD105. Else the evidence shows the loop. If the headers of
loops around both calls name a number that differs, the evidence has it. It has
the counter of such a loop if one of the ranks is in a later round, and a
variable that all ranks pass as `tag` to calls whose works they wait for. A rank
in a call of RPC may hold a lock that its thread needs which answers the others.

## When it can be wrong

- If two ranks wait to receive from each other, one of them came past a send. If
  the sends of only one are under a condition in its loop, hangdoc blames that
  one, else the one that is further in the program. The other rank may have
  received one message too many instead.
- The peer could not be read from a call. hangdoc then assumes that the
  call may wait for any other rank, and lowers the confidence.

## References

- Point-to-point communication:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from collections.abc import Sequence

from hangdoc.reasoning.model.agreement import compare_values
from hangdoc.reasoning.model.kinds import LeftLoop, PointToPoint, Unposted
from hangdoc.reasoning.model.rank import Class, Rank, numbers_of, ranks_of
from hangdoc.reasoning.ranks import locks
from hangdoc.reasoning.ranks.conditions import compare_rounds, read_text
from hangdoc.reasoning.ranks.counters import count_rounds, is_over_data
from hangdoc.reasoning.ranks.in_source import PostedTogether, find_posted_together
from hangdoc.reasoning.ranks.made_work import find_made_call
from hangdoc.reasoning.ranks.place import find_rounds_apart
from hangdoc.reasoning.rules import sentences
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, WithRemedy, about
from hangdoc.reasoning.text import words
from hangdoc.reasoning.waiting.waits import calls_match, is_p2p, receives

_SHOWN = 3
_RELEASE_FIRST = (
    "Release the lock before the call: the other rank may request something that needs the lock before it answers."
)


@about(PointToPoint)
def describe(run: Run, blockage: Blockage, kind: PointToPoint) -> Draft:
    parts = kind.pair or kind.parts
    loops = sentences.unequal_loops(run.ranks[number] for number in numbers_of((*kind.parts, *parts)))
    posted = _find_posted(run, kind)
    stacks = [
        *_compare_tags(run, kind, posted),
        *_list_made_calls(parts),
        *(sentences.counter_evidence(kind.left) if kind.left is not None else ()),
        *words.class_evidence(parts),
        *(loops or _compare_rounds(parts)),
        *_conditions(run, kind.pair or ()),
    ]
    return Draft(
        confidence=0.6 if not kind.sure else 0.8 if _both_receive(kind) else 0.9,
        summary=_summary(kind),
        evidence=[*_locks_across_calls(run, blockage), *stacks, *words.standstill(run)],
        remedy=_remedy(kind, posted),
    )


def _find_posted(run: Run, kind: PointToPoint) -> list[PostedTogether]:
    """What each rank has posted before it waits; empty if that is not known of all ranks."""
    ranks = [run.ranks[number] for number in numbers_of(kind.parts)]
    posted = [find_posted_together(rank.thread) if rank.thread is not None else None for rank in ranks]
    return [each for each in posted if each is not None] if None not in posted else []


def _compare_tags(run: Run, kind: PointToPoint, posted: Sequence[PostedTogether]) -> list[Evidence]:
    """The variable that all ranks pass as `tag` to all of these calls, if it differs."""
    if len({each.tags for each in posted}) != 1 or len(posted[0].tags) != 1:
        return []
    (name,) = posted[0].tags
    read = {number: read_text(run.ranks[number], name) for number in numbers_of(kind.parts)}
    values = compare_values({number: text for number, text in read.items() if text is not None})
    text = f"the tag `{name}` is {words.values_by_rank(values.values)}"
    return [Evidence(None, "variables", text)] if values.differs else []


def _list_made_calls(parts: Sequence[Class]) -> list[Evidence]:
    """The calls that made the works for which ranks wait, where their tags are known."""
    firsts = [part.first for part in parts if part.first.wait is not None and part.first.wait.tag is not None]
    made = [(rank, find_made_call(rank.process, rank.thread)) for rank in firsts if rank.process and rank.thread]
    return [
        Evidence(rank.rank, "stacks", f"it waits for the work of `{call.source}`, whose tag is {call.tag}")
        for rank, call in made[:_SHOWN]
        if call is not None
    ]


def _locks_across_calls(run: Run, blockage: Blockage) -> list[Evidence]:
    """The locks that culprits hold while they wait, and for which their threads wait that should answer others."""
    lines: list[Evidence] = []
    for number in blockage.culprits[:_SHOWN]:
        rank = run.ranks[number]
        if rank.process is None or rank.thread is None:
            continue
        for waiter, held in locks.find_threads_behind(rank.process, rank.thread)[:1]:
            text = (
                f"its call is {held.inside}, and thread {locks.name_thread(waiter)}, which should answer another rank, waits for "
                "that lock"
            )
            lines.append(WithRemedy(number, "stacks", text, remedy=_RELEASE_FIRST))
    return lines


@about(Unposted)
def describe_unposted(run: Run, blockage: Blockage, kind: Unposted) -> Draft:
    shown = [
        f"{words.ranks([receiver])} has posted a receive from {words.ranks([sender])}, which has posted no send to it"
        if lacks_send
        else f"{words.ranks([sender])} has posted a send to {words.ranks([receiver])}, which has posted no receive from it"
        for sender, receiver, lacks_send in kind.unmatched[:_SHOWN]
    ]
    sides = sorted({rank for sender, receiver, _ in kind.unmatched[:_SHOWN] for rank in (sender, receiver)})
    return Draft(
        confidence=0.9,
        summary="; ".join(shown),
        evidence=[
            *(Evidence(rank, "variables", _describe_peers(*kind.peers[rank])) for rank in sides),
            *words.class_evidence(kind.parts),
            *words.standstill(run),
        ],
        remedy=f"Compare the peers that {words.ranks(blockage.culprits)} {words.verb(blockage.culprits, 'passes', 'pass')} to "
        "P2POp: each send needs one receive on its peer.",
    )


def _describe_peers(sends: tuple[int, ...], receives: tuple[int, ...]) -> str:
    """`has posted sends to ranks 0-1 and receives from ranks 1, 3`."""
    parts = [f"sends to {words.ranks(sends)}"] * bool(sends) + [f"receives from {words.ranks(receives)}"] * bool(
        receives
    )
    return f"has posted {' and '.join(parts)}"


def _compare_rounds(parts: Sequence[Class]) -> list[Evidence]:
    """The numbers by which loops around the calls of the first two sides go, if they differ."""
    firsts = [part.first for part in parts[:2]]
    numbers = compare_rounds(*firsts) if len(firsts) == 2 else {}
    on = [f"on rank {first.rank}" for first in firsts]
    return [
        Evidence(None, "variables", f"loops around both calls go by `{name}`, which is {a} {on[0]}, {b} {on[1]}")
        for name, (a, b) in sorted(numbers.items())[:_SHOWN]
    ] + _compare_counters(firsts)


def _compare_counters(ranks: Sequence[Rank]) -> list[Evidence]:
    """The counter of the loop in which the first of two ranks is in another round than the second."""
    if len(ranks) != 2 or (apart := find_rounds_apart(*ranks)) is None:
        return []
    loop, name, mine, theirs = apart
    on = f"`{name}` is {mine} on rank {ranks[0].rank}, {theirs} on rank {ranks[1].rank}"
    return [Evidence(None, "variables", f"{on}, in the loop `{loop.header}`")]


def _conditions(run: Run, pair: Sequence[Class]) -> list[Evidence]:
    """Which rank sends and which receives usually depends on the rank, so such a condition shows no fault."""
    return sentences.condition_evidence(run, pair, ranks_of(pair), without=("rank", "counter"))


def _summary(kind: PointToPoint) -> str:
    if not kind.sure and kind.pair is None:
        return f"ranks are waiting in calls that do not match: {sentences.name_calls(kind.parts)}"
    if tags := _find_tags(kind):
        calls = "; ".join(
            f"{words.ranks(part.ranks)} in {words.operation(part.first)} with tag {tags[part.first.rank]}"
            for part in kind.parts
            if part.first.rank in tags
        )
        return f"a send and a receive name each other and have different tags: {calls}"
    if kind.pair is None:
        ring = [number for part in kind.parts for number in part.ranks]
        return f"{words.ranks(ring)} are waiting for each other: {sentences.name_calls(kind.parts[:4])}"
    astray, waits = kind.pair
    place = "" if is_p2p(astray.first) else f" {words.place(astray.first)}"
    skipped = f"{words.ranks(astray.ranks)} did not call the matching send: " if _both_receive(kind) else ""
    return f"{words.waiting_in([waits])}, but {skipped}{words.are(astray.ranks)} {words.doing(astray.first)}{place}"


def _remedy(kind: PointToPoint, posted: Sequence[PostedTogether]) -> str:
    if _find_tags(kind):
        return (
            "Give the send and the receive that are to meet the same `tag`. If a variable is the tag, find where the two ranks "
            "came to different values of it: a message that one of them skipped or counted twice."
        )
    if kind.pair is None and _is_one_pair(kind):
        return (
            "The send and the receive name each other and do not meet. Compare their `tag`, the sizes and dtypes of their "
            "tensors, and how many messages the two ranks exchanged before."
        )
    if kind.pair is None and posted and all({"isend", "irecv"} <= each.calls for each in posted):
        return (
            "Each rank has posted its send and its receive before it waits, so their order is no reason. Compare their `tag`, "
            "their peers, and how many messages the ranks exchanged before."
        )
    if kind.pair is None:
        compare = "Compare how many messages each rank sends and receives in a step, and in which order"
        if not all(is_p2p(part.first) for part in kind.parts):
            return f"{compare}, their peers and their tags."
        return f"{compare}. In each pair, one rank must send while the other receives. Or post both calls with batch_isend_irecv."
    astray, waits = kind.pair
    compare = (
        f"ompare the calls of {words.ranks(astray.ranks)} with what {words.do(waits.ranks, 'expects', 'expect')}: a send or a "
        "receive was skipped, or it names another rank."
    )
    if kind.left is None or not _may_have_left_early(kind.left):
        return f"C{compare}"
    return (
        f"If {words.ranks(astray.ranks)} left the loop before its end, make all ranks leave it in the same iteration. "
        f"Otherwise c{compare}"
    )


def _may_have_left_early(left: LeftLoop) -> bool:
    """Whether ranks whose rounds are not known may have left a loop before the others: a statement leaves it, or its data may be
    shorter."""
    uncounted = count_rounds(left.short.first)[0] is None
    return uncounted and (bool(left.loop.exits) or is_over_data(left.loop))


def _is_one_pair(kind: PointToPoint) -> bool:
    """Whether the only send or receive of some ranks and that of others name each other."""
    stuck = [part.first for part in kind.parts if is_p2p(part.first)]
    return len(stuck) == 2 and calls_match(*stuck) and calls_match(*stuck[::-1])


def _find_tags(kind: PointToPoint) -> dict[int, int]:
    """The tags of the only send and the only receive, by rank, if they name each other; empty if they are equal or one is not
    known."""
    if kind.pair is not None or not _is_one_pair(kind):
        return {}
    waits = {part.first.rank: part.first.wait for part in kind.parts if is_p2p(part.first)}
    tags = {rank: wait.tag for rank, wait in waits.items() if wait is not None and wait.tag is not None}
    return tags if len(tags) == len(waits) == len(set(tags.values())) else {}


def _both_receive(kind: PointToPoint) -> bool:
    """Whether a rank that waits to receive is to blame for not having sent before."""
    return kind.pair is not None and all(receives(side.first) for side in kind.pair)
