"""Who waits for whom, and where the chains end.

Ranks that wait at one point are one node, so the work grows with the number of different stories, not of ranks.
"""

from hangdoc.diagnose import facts
from hangdoc.diagnose.model import Rank, Run

Point = tuple[object, ...]


def draw(run: Run) -> None:
    """Fill in `run.waits_for`, `run.causes` and `run.age_seconds`."""
    everyone = frozenset(run.ranks) | frozenset(run.unseen)
    at_point: dict[Point, set[int]] = {}
    for rank in run.waiting():
        at_point.setdefault(_point(rank), set()).add(rank.rank)
    targets = {point: _targets(run.ranks[min(ranks)], frozenset(ranks), everyone) for point, ranks in at_point.items()}
    run.waits_for = {rank: targets[point] for point, ranks in at_point.items() for rank in ranks}
    run.causes = _causes(run, at_point, targets)
    ages = [rank.silent_seconds for rank in run.still() if rank.silent_seconds is not None]
    if not ages and not run.blind_hosts():  # nobody has spoken to anybody yet: the run is as old as its processes
        ages = [rank.process.started_seconds_ago for rank in run.waiting() if rank.process is not None]
    if not run.ranks:  # agents that have not started any
        ages = [process.started_seconds_ago for _, process in run.launchers]
    if any(rank.spins or (rank.wait is not None and rank.wait.operation.backend == "nccl") for rank in run.waiting()):
        ages = []  # NCCL's data passes over other ways than these sockets, whose silence says nothing
    run.age_seconds = min(ages) if ages else None


def _point(rank: Rank) -> Point:
    wait = rank.wait
    assert wait is not None  # noqa: S101  (run.waiting() gives only ranks that wait)
    if wait.kind == "p2p":
        return ("p2p", wait.operation.op, wait.operation.peer, rank.rank)
    if wait.kind == "rendezvous":
        return ("rendezvous",)
    return (wait.kind, *wait.point)


def _targets(rank: Rank, there: frozenset[int], everyone: frozenset[int]) -> frozenset[int]:
    """The ranks that a rank at its point waits for."""
    wait = rank.wait
    assert wait is not None  # noqa: S101
    if wait.kind == "p2p":
        peer = wait.operation.peer
        return frozenset({peer}) if peer is not None and peer != rank.rank else everyone - {rank.rank}
    members = frozenset(wait.members) if wait.members is not None else everyone
    return members - there


def _causes(run: Run, at_point: dict[Point, set[int]], targets: dict[Point, frozenset[int]]) -> frozenset[int]:
    """Ranks that wait for nobody and are waited for; for chains that end in no such rank, those of their cycles."""
    point_of = {rank: point for point, ranks in at_point.items() for rank in ranks}
    edges = {point: {point_of[r] for r in wanted if r in point_of} for point, wanted in targets.items()}
    ends = {point: frozenset(r for r in wanted if r not in point_of) for point, wanted in targets.items()}
    found: set[int] = set()
    for start in at_point:
        reached, todo = {start}, [start]
        while todo:
            for following in edges[todo.pop()] - reached:
                reached.add(following)
                todo.append(following)
        sinks = frozenset[int]().union(*(ends[point] for point in reached))
        if sinks:
            found |= sinks
        elif _in_cycle(start, edges):
            found |= at_point[start]
    return frozenset(found)


def _in_cycle(start: Point, edges: dict[Point, set[Point]]) -> bool:
    seen: set[Point] = set()
    todo = list(edges[start])
    while todo:
        point = todo.pop()
        if point == start:
            return True
        if point not in seen:
            seen.add(point)
            todo += edges[point]
    return False


def is_p2p(rank: Rank) -> bool:
    """Whether a rank waits in a send or a receive."""
    return rank.waits and rank.wait is not None and rank.wait.kind == "p2p"


def answers(one: Rank, other: Rank) -> bool:
    """Whether `other` is in the call that `one`'s send or receive waits for."""
    if not (is_p2p(one) and is_p2p(other)) or one.wait is None or other.wait is None:
        return False
    mine, theirs = one.wait.operation, other.wait.operation
    opposite = (mine.op in facts.SENDS) != (theirs.op in facts.SENDS)
    return opposite and mine.peer == other.rank and theirs.peer in (one.rank, None)
