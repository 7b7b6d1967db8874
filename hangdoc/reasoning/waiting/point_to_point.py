"""Cycles with sends and receives: which rank is in no call that matches the one in which another waits for it.

A send or receive names its peer. The peer that is in another operation, or to which the most calls go that it does not match, is
the one to look at. Nothing records on Gloo which of two calls came first, so that more would be a guess: then all are named.
"""

from hangdoc.reasoning.model.holds import Ends, Hold
from hangdoc.reasoning.model.kinds import PointToPoint
from hangdoc.reasoning.model.rank import Class, Rank, ranks_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.waiting.waits import answers, is_p2p, peer_of
from hangdoc.torch_facts import call_names

Parts = tuple[Class, ...]
Found = tuple[Hold, tuple[int, ...]]
"""The kind, and the ranks to blame."""


def find_unmatched(run: Run, classes: Parts) -> Found | None:
    """The peer that does not match the send or receive of another rank, and who waits for it; None for none."""
    stuck = [one for one in classes if is_p2p(one.first)]
    if not stuck:
        return None
    everyone, ends = ranks_of(classes), _ends(stuck)
    if len(stuck) == len(classes):
        pair = _most_awaited(run, stuck) if ends == "never" else None
    else:
        pair = _in_another_operation(run, stuck, classes)
    return PointToPoint(parts=classes, pair=pair, ends=ends), pair[0].ranks if pair is not None else everyone


def _ends(stuck: list[Class]) -> Ends:
    """A call whose peer is not known may be answered by any rank."""
    return "never" if all(peer_of(one.first) is not None for one in stuck) else "unknown"


def _in_another_operation(run: Run, stuck: list[Class], classes: Parts) -> tuple[Class, Class] | None:
    """(a rank in another operation, ranks whose send or receive names it). None if those send while others wait to receive from
    them: they may send to the wrong rank."""
    for waiting in stuck:
        named = peer_of(waiting.first)
        peer = next((one for one in classes if named in one.ranks), None)
        if named is not None and peer is not None and not is_p2p(peer.first):
            astray = _sends(waiting.first) and any(peer_of(one.first) in waiting.ranks for one in stuck)
            return None if astray else (Class(run.ranks[named], (named,)), waiting)
    return None


def _most_awaited(run: Run, stuck: list[Class]) -> tuple[Class, Class] | None:
    """(the only rank to which the most calls go that it does not match, ranks that wait in one of them). None if there is none,
    or if all send: each of them should have received first."""
    if all(_sends(one.first) for one in stuck):
        return None
    unmatched = {one.ranks: _unmatched(run, one) for one in stuck}
    most = max(unmatched.values())
    astray = [one for one in stuck if unmatched[one.ranks] == most]
    if len(astray) != 1 or most < 2:
        return None
    return astray[0], next(one for one in run.waiting if peer_of(one.first) in astray[0].ranks)


def _sends(rank: Rank) -> bool:
    return rank.wait is not None and rank.wait.operation.op in call_names.SENDS


def _unmatched(run: Run, named: Class) -> int:
    """How many ranks wait in a send to, or a receive from, a rank that is in no matching call."""
    waiting = (one for one in run.waiting if is_p2p(one.first) and peer_of(one.first) in named.ranks)
    return sum(len(one.ranks) for one in waiting if not answers(one.first, named.first))
