"""Cycles with sends and receives: which rank did not make the call that another one waits for."""

from hangdoc.reasoning.evidence.stack import reading
from hangdoc.reasoning.model.holds import Hold
from hangdoc.reasoning.model.kinds import PointToPoint
from hangdoc.reasoning.model.rank import Class, Rank, merged, ranks_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import conditions, transfers
from hangdoc.reasoning.ranks.counters import goes_over, rounds
from hangdoc.reasoning.ranks.place import is_ahead
from hangdoc.reasoning.waiting.majority import off_the_majority
from hangdoc.reasoning.waiting.waits import answers, is_p2p, peer_of, receives
from hangdoc.torch_facts import call_names

Parts = tuple[Class, ...]
Found = tuple[Hold, tuple[int, ...]]
"""The kind, and the ranks to blame."""


def among_themselves(run: Run, classes: Parts) -> Found:
    """A cycle of sends and receives only. To blame is a rank that may have left out a call, else a rank that went past its
    send, else the only one with the most unmatched calls to it, else all. A rank that waits for a receive which it has posted
    may have posted its sends too, so nothing shows that it skipped one."""
    if (left_out := _left_out(run, classes)) is not None:
        return left_out, left_out.pair[0].ranks if left_out.pair else ()
    known = all(peer_of(one.first) is not None for one in classes)
    if any(receives(one.first) and _has_posted(one.first) for one in classes):
        return PointToPoint(parts=classes, ends="never" if known else "unknown"), ranks_of(classes)
    if (pair := _past_its_send(run, classes)) is not None:
        return PointToPoint(parts=classes, pair=pair), pair[0].ranks
    unmatched = {one.ranks: _unmatched(run, one) for one in classes}
    most = max(unmatched.values())
    astray = [one for one in classes if unmatched[one.ranks] == most]
    crossing = all(_sends(one.first) for one in classes)  # each of them should have received first
    if known and len(astray) == 1 and most > 1 and not crossing:
        waits = next(one for one in run.waiting if peer_of(one.first) in astray[0].ranks)
        return PointToPoint(parts=classes, pair=(astray[0], waits)), astray[0].ranks
    return PointToPoint(parts=classes, ends="never" if known else "unknown"), ranks_of(classes)


def _sends(rank: Rank) -> bool:
    return rank.wait is not None and rank.wait.operation.op in call_names.SENDS


def _has_posted(rank: Rank) -> bool:
    """Whether a rank waits for a call that it made before (`irecv`), and not in the call itself."""
    return rank.thread is not None and not reading(rank.thread).in_c10d


def _left_out(run: Run, classes: Parts) -> PointToPoint | None:
    """All receive, and only one rank may have left out a send: all sends in its loop are under conditions, and those of the
    others are not. Or the same for ranks that all send."""
    for waiting, missing in ((call_names.RECEIVES, call_names.SENDS), (call_names.SENDS, call_names.RECEIVES)):
        if not all(one.first.wait is not None and one.first.wait.operation.op in waiting for one in classes):
            continue
        found = [transfers.under_conditions(one.first, missing) for one in classes]
        if None in found or sum(map(bool, found)) != 1:
            return None
        astray, calls = next((one, calls) for one, calls in zip(classes, found, strict=True) if calls)
        waits = next((one for one in classes if one is not astray and peer_of(one.first) in astray.ranks), None)
        if waits is not None:
            return PointToPoint(parts=classes, pair=(_peer(run, waits), waits), left_out=calls[0])
    return None


def _past_its_send(run: Run, classes: Parts) -> tuple[Class, Class] | None:
    """(a rank, a rank that waits to receive from it), if all receive and only the first is further than the rank that waits for
    it, in the program or in the rounds of a loop of its own: it came past what it should have sent."""
    if not all(receives(one.first) for one in classes):
        return None
    pairs = [(sender, one) for one in classes for sender in classes if peer_of(one.first) in sender.ranks]
    past = [(sender, one) for sender, one in pairs if _is_further(sender.first, one.first)]
    return (_peer(run, past[0][1]), past[0][1]) if len(past) == 1 else None


def _peer(run: Run, waiting: Class) -> Class:
    """The one rank that the ranks of a class wait for. Others of its class may have done what they should."""
    rank = next(one for one in run.ranks.values() if one.rank == peer_of(waiting.first))
    return Class(rank, (rank.rank,))


def _is_further(one: Rank, other: Rank) -> bool:
    if is_ahead(one, other):
        return True
    both = list(zip(rounds(one), rounds(other), strict=False))
    return not is_ahead(other, one) and [a for a, _ in both] > [b for _, b in both]


def _unmatched(run: Run, named: Class) -> int:
    """How many ranks wait in a send to, or a receive from, a rank that is in no matching call."""
    waiting = (one for one in run.waiting if is_p2p(one.first) and peer_of(one.first) in named.ranks)
    return sum(len(one.ranks) for one in waiting if not answers(one.first, named.first))


def among_others(run: Run, classes: Parts, parts: Parts) -> Found | None:
    """Sends and receives among other operations: which rank does not match them. None if there are none."""
    stuck = [one for one in classes if is_p2p(one.first)]
    if not stuck:
        return None
    if (pair := _no_request(stuck, parts)) is not None:
        return PointToPoint(parts=classes, pair=pair, ends="unknown"), pair[0].ranks
    if any(peer_of(one.first) is None for one in stuck):
        if (pair := _in_the_other_branch(stuck, classes)) is not None:
            return PointToPoint(parts=classes, pair=pair, ends="unknown"), pair[0].ranks
        found = off_the_majority(classes)
        if found is None or any(is_p2p(one.first) for one in classes if set(one.ranks) & set(found.few.ranks)):
            return PointToPoint(parts=classes, ends="unknown"), ranks_of(classes)
        rest = merged((one for one in stuck if peer_of(one.first) is None), _operation)[-1]
        return PointToPoint(parts=classes, pair=(found.few, rest), ends="unknown"), found.few.ranks
    for one in stuck:
        if receives(one.first) and goes_over(one.first, peer_of(one.first)):  # it has received from the others, or will
            return PointToPoint(parts=classes, pair=(_peer(run, one), one)), (_peer(run, one).first.rank,)
    others = [part for part in parts if not is_p2p(part.first)]
    if len(others) == 1 and len(parts) == 2 and len(parts[0].ranks) < len(parts[1].ranks):
        fewer, most = parts
        # Most ranks are in one call, and a few in another; unless most ranks are already past the call of the few.
        if not is_ahead(most.first, fewer.first):
            return PointToPoint(parts=classes, pair=(fewer, most)), fewer.ranks
    if (pair := _astray(run, stuck)) is not None:
        return PointToPoint(parts=classes, pair=pair), pair[0].ranks
    for one in stuck:
        named = peer_of(one.first)
        peer = next((other for other in classes if named in other.ranks), None)
        if named is not None and peer is not None and not is_p2p(peer.first):
            return PointToPoint(parts=classes, pair=(peer, one)), (named,)
    return None


def _in_the_other_branch(stuck: list[Class], classes: Parts) -> tuple[Class, Class] | None:
    """(ranks in the other branch of an `if` around sends and receives with unknown peers, ranks that wait in those). They made
    none of these calls; ranks further on in the same branch did."""
    for one in stuck:
        others = [other for other in classes if conditions.in_other_arm(one.first, other.first, on_rank=False)]
        if others and peer_of(one.first) is None:
            return merged(others, lambda _: None)[0], one
    return None


def _no_request(stuck: list[Class], parts: Parts) -> tuple[Class, Class] | None:
    """(ranks that make no request, ranks whose requests a worker answers when others have made theirs), if that worker waits for
    requests of its own."""
    without = [part for part in parts if not is_p2p(part.first)]
    for one in stuck if len(without) == 1 else ():
        worker = one.first.wait.answered_by if one.first.wait is not None else None
        if any(worker in other.ranks for other in stuck):
            return without[0], one
    return None


def _operation(rank: Rank) -> str | None:
    return rank.wait.operation.op if rank.wait is not None else None


def _astray(run: Run, stuck: list[Class]) -> tuple[Class, Class] | None:
    """(a rank whose send is not received, a rank that waits to receive from it)."""
    for one in stuck:
        named = peer_of(one.first)
        peer = run.ranks.get(named) if named is not None else None
        if not _sends(one.first) or peer is None or answers(one.first, peer):
            continue
        for other in stuck:
            if receives(other.first) and peer.rank not in other.ranks and peer_of(other.first) in one.ranks:
                return one, other
    return None
