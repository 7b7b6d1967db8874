"""Cycles with sends and receives: which rank is in no call that matches the one in which another waits for it.

A send or receive names its peer. The peer that is in another operation, or to which the most calls go that it does not match, is
the one to look at. Nothing records on Gloo which of two calls came first, so that more would be a guess: then all are named.
"""

from collections import Counter

from hangdoc.reasoning.model.holds import Ends, Hold
from hangdoc.reasoning.model.kinds import LeftLoop, PointToPoint, Unposted
from hangdoc.reasoning.model.rank import Class, Rank, ranks_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import in_source
from hangdoc.reasoning.ranks.counters import with_counter_of
from hangdoc.reasoning.ranks.place import left_loops
from hangdoc.reasoning.waiting.waits import calls_match, is_p2p, peer_of, receives
from hangdoc.torch_facts import call_names

Parts = tuple[Class, ...]
KindWithCulprits = tuple[Hold, tuple[int, ...]]
"""The kind, and the ranks to blame."""


def find_unmatched(run: Run, classes: Parts) -> KindWithCulprits | None:
    """The peer that does not match the send or receive of another rank, and who waits for it; None for none."""
    stuck = [part for part in classes if is_p2p(part.first)]
    if not stuck:
        return None
    if (unposted := _compare_posted(run, stuck)) is not None:
        return unposted
    ends = _end_of_calls(stuck)
    if len(stuck) < len(classes):
        pair = _find_in_another_operation(run, stuck, classes)
        culprits: tuple[int | None, ...] = (peer_of(pair[1].first),) if pair is not None else ()
    else:
        pair = _find_most_awaited(run, stuck) if ends == "never" else None
        culprits = (*pair[0].ranks, *_find_partners(run, pair[0])) if pair is not None else ()
    blamed = tuple(rank for rank in ranks_of(classes) if rank in culprits) or ranks_of(classes)
    left = _find_left_loop(*pair) if pair is not None and not is_p2p(pair[0].first) else None
    return PointToPoint(parts=classes, pair=pair, left=left, ends=ends), blamed


def _find_left_loop(astray: Class, waiting: Class) -> LeftLoop | None:
    """The outermost loop that ranks in another operation have left and those that wait for them are inside."""
    loop = next((left.loop for left in left_loops(astray.first, waiting.first)), None)
    if loop is None:
        return None
    short, inside = (Class(with_counter_of(side.first, loop), side.ranks) for side in (astray, waiting))
    return LeftLoop(short=short, inside=inside, loop=loop)


def _compare_posted(run: Run, stuck: list[Class]) -> KindWithCulprits | None:
    """What ranks in one round have posted together and the other side has not. The rank that takes part in all of it is to blame,
    or else all that do. None if all of it meets, and if nothing shows what they posted, or that they sent nothing else."""
    ranks = {number: run.ranks[number] for number in ranks_of(stuck)}
    posted = {n: in_source.list_posted(rank.thread) for n, rank in ranks.items() if rank.thread is not None}
    if any(frame.transfers for rank in ranks.values() for frame in rank.own):
        return None
    sends = Counter((n, each.peer) for n, calls in posted.items() for each in calls if each.sends)
    receives = Counter((each.peer, n) for n, calls in posted.items() for each in calls if not each.sends)
    unmatched: list[tuple[int, int, bool]] = []
    for sender, receiver in sorted({*sends, *receives}):
        if posted.get(sender) and posted.get(receiver) and _are_in_one_round(ranks[sender], ranks[receiver]):
            sent, received = sends[sender, receiver], receives[sender, receiver]
            unmatched += [(sender, receiver, sent < received)] * (sent != received)
    if not unmatched:
        return None
    sides = [{sender, receiver} for sender, receiver, _ in unmatched]
    culprits = set.intersection(*sides) or set.union(*sides)
    peers = {n: (_list_peers(calls, sends=True), _list_peers(calls, sends=False)) for n, calls in posted.items()}
    return Unposted(parts=tuple(stuck), unmatched=tuple(unmatched), peers=peers, ends="never"), tuple(sorted(culprits))


def _are_in_one_round(rank: Rank, peer: Rank) -> bool:
    """Whether two ranks are at one line, in the same round of the same loop, or both in no loop."""
    mine, theirs = ((view.loop, view.done) if (view := each.loop) is not None else (None, 0) for each in (rank, peer))
    return mine == theirs and mine[1] is not None and rank.where is not None and rank.where == peer.where


def _list_peers(calls: list[in_source.Posted], *, sends: bool) -> tuple[int, ...]:
    return tuple(sorted(each.peer for each in calls if each.sends == sends))


def _end_of_calls(stuck: list[Class]) -> Ends:
    """A call whose peer is not known may be answered by any rank."""
    return "never" if all(peer_of(part.first) is not None for part in stuck) else "unknown"


def _find_in_another_operation(run: Run, stuck: list[Class], classes: Parts) -> tuple[Class, Class] | None:
    """(a rank in another operation, ranks whose send or receive names it). None if those send while others wait to
    receive from them: they may send to the wrong rank."""
    for waiting in stuck:
        named = peer_of(waiting.first)
        peer = next((part for part in classes if named in part.ranks), None)
        if named is not None and peer is not None and not is_p2p(peer.first):
            astray = _sends(waiting.first) and any(
                receives(part.first) and peer_of(part.first) in waiting.ranks for part in stuck
            )
            return None if astray else (Class(run.ranks[named], (named,)), waiting)
    return None


def _find_most_awaited(run: Run, stuck: list[Class]) -> tuple[Class, Class] | None:
    """(the only rank to which the most calls go that it does not match, ranks that wait in one of them). None if there is none,
    or if all send: each of them should have received first."""
    if all(_sends(part.first) for part in stuck):
        return None
    counts = {part.ranks: _count_unmatched(run, part) for part in stuck}
    highest = max(counts.values())
    astray = [part for part in stuck if counts[part.ranks] == highest]
    if len(astray) != 1 or highest < 2:
        return None
    callers = _list_callers(run, astray[0])
    # Who waits for it, and for whom it waits itself, forms the cycle: the others only stand behind.
    return astray[0], next((each for each in callers if peer_of(astray[0].first) in each.ranks), callers[0])


def _find_partners(run: Run, astray: Class) -> tuple[int, ...]:
    """The ranks from which `astray` wait to receive, if those and all others that wait for `astray` wait to receive too: either
    side may owe a message, as between a front end and its workers. None if one sends to `astray`: they should have received that.
    """
    callers = _list_callers(run, astray)
    if any(_sends(part.first) for part in (astray, *callers)):
        return ()
    return tuple(rank for part in callers for rank in part.ranks if rank == peer_of(astray.first))


def _sends(rank: Rank) -> bool:
    return rank.wait is not None and rank.wait.operation.op in call_names.SENDS


def _count_unmatched(run: Run, peer: Class) -> int:
    """How many ranks wait in a send to, or a receive from, a rank that is in no matching call."""
    return sum(len(alike.ranks) for alike in _list_callers(run, peer) if not calls_match(alike.first, peer.first))


def _list_callers(run: Run, peer: Class) -> list[Class]:
    """Who waits in a send to, or a receive from, some ranks."""
    return [alike for alike in run.waiting if is_p2p(alike.first) and peer_of(alike.first) in peer.ranks]
