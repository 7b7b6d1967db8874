"""Why calls of equal number do not meet: some ranks make more of them in each round of a loop.

Nothing in the record alone shows that, if all these calls are at one line and of one size. The counters of the loop do: as many
calls in fewer rounds.
"""

from collections.abc import Iterable, Iterator

from hangdoc.program import around
from hangdoc.reasoning.model.agreement import Agreement, compare_values
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.kinds import Cycle, SameCall
from hangdoc.reasoning.model.ledger import Call, GroupCalls
from hangdoc.reasoning.model.rank import LoopView, Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.counters import loop_view

_ROUNDS = 4
"""So many rounds for each call of a round. In fewer, a round or two without a call look like rounds with one call fewer."""


class CallsPerRound(Cause, frozen=True, kw_only=True):
    """Some ranks make one call more often than the others in each round of a loop that all ranks are in or have ended."""

    NAME = "calls-per-round"
    group: GroupCalls
    call: Call
    counts: Agreement[int, int]
    """How often a rank makes the call in each round, and the ranks."""
    rounds: dict[int, int]
    """By rank, the rounds that it has completed."""
    inside: Rank
    """A rank that waits in this call."""
    view: LoopView


def find_calls_per_round(run: Run, blockage: Blockage) -> CallsPerRound | None:
    """The first call of a rank in a loop of which each rank has made a whole number per round, and not the same one."""
    if not isinstance(blockage.kind, Cycle | SameCall) or blockage.under_way:
        return None
    classes = (*blockage.awaited, *blockage.waiting)
    firsts = [alike.first for alike in classes]
    everyone = [run.ranks[number] for alike in classes for number in alike.ranks if number in run.ranks]
    for inside, group, call in _find_recorded_calls(run, firsts):
        # The first ranks are compared first: nearly always they show that the loop explains nothing.
        if _count_per_round(inside, firsts, group, call) is not None:
            counts = _count_per_round(inside, everyone, group, call)
            view = _view_outermost(inside, inside)
            if counts is not None and view is not None:
                per_round = compare_values({rank: count for rank, (count, _) in counts.items()})
                rounds = {rank: done for rank, (_, done) in counts.items()}
                return CallsPerRound(
                    culprits=per_round.odd,
                    group=group,
                    call=call,
                    counts=per_round,
                    rounds=rounds,
                    inside=inside,
                    view=view,
                )
    return None


def _find_recorded_calls(run: Run, ranks: Iterable[Rank]) -> Iterator[tuple[Rank, GroupCalls, Call]]:
    """The calls in which ranks wait by their records."""
    for rank in ranks:
        for group, calls in run.ledger.of_rank(rank.rank):
            if calls.pending and calls.pending[0].source == "recorder":
                yield rank, group, calls.pending[0].call


def _count_per_round(
    inside: Rank, ranks: Iterable[Rank], group: GroupCalls, call: Call
) -> dict[int, tuple[int, int]] | None:
    """(times that it makes the call in each round of the loop of `inside`, rounds completed) of each rank; None if that is not
    known of one of them, or the same on all."""
    counts: dict[int, tuple[int, int]] = {}
    for rank in ranks:
        view, calls = _view_outermost(inside, rank), group.ranks.get(rank.rank)
        made = calls.count_like(call) if calls is not None else None
        if view is None or view.done is None or made is None:
            return None
        each = made // max(1, view.done)
        # Those of its complete rounds, and at most all of the next one. In so many rounds, no other number fits.
        if not 0 < _ROUNDS * each <= view.done or made > each * (view.done + view.inside):
            return None
        counts[rank.rank] = each, view.done
    return counts if len({count for count, _ in counts.values()}) > 1 else None


def _view_outermost(inside: Rank, rank: Rank) -> LoopView | None:
    """How far `rank` is in the outermost loop that `inside` is in: one inside that begins again does not count all rounds."""
    for frame in reversed(inside.program):
        for loop in around(frame):
            key = (frame.file, frame.function, loop.line)
            return loop_view(rank.process, rank.program, key) if rank.process is not None else None
    return None
