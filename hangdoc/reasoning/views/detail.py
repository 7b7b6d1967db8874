"""What a page shows of a job beyond its diagnosis: who waits for whom as a drawing of few nodes, batches, stacks, settings."""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from hangdoc.detail import Batches, Detail, Setting, WaitGraph, WaitNode
from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.counters import batches
from hangdoc.reasoning.text import words
from hangdoc.reasoning.views import comparison, merged
from hangdoc.reasoning.views.beginning import find_beginning
from hangdoc.reasoning.views.ended import has_ended

MOST_NODES = 20
"""A drawing with more can't be read."""


class _Group(NamedTuple):
    """The ranks of one node of the drawing."""

    ranks: tuple[int, ...]
    seen: tuple[Rank, ...]
    """Those of them that were observed."""
    awaits: frozenset[int]


def details(diagnosis: Diagnosis, runs: Iterable[Run]) -> tuple[Detail, ...]:
    """Of each job of a diagnosis that one of the runs is."""
    by_id = {run.id: run for run in runs}
    return tuple(detail(job, by_id[job.id]) for job in diagnosis.jobs if job.id in by_id)


def detail(job: Job, run: Run) -> Detail:
    """Of one job, whose run this is."""
    culprits = frozenset(job.findings[0].culprits) if job.findings else frozenset()
    return Detail(
        job=job.id,
        graph=wait_graph(run, culprits),
        batches=_batches(run, culprits),
        stacks=merged.stacks(run.ranks.values()),
        settings=tuple(_setting(one) for one in comparison.compared(run) if one.differs),
        began=find_beginning(run).by if job.hung_for_seconds is not None else None,
    )


def wait_graph(run: Run, culprits: frozenset[int]) -> WaitGraph:
    """Who waits for whom, in at most MOST_NODES nodes. Ranks that wait at one point are one node, culprits among them another."""
    nodes = run.waits.nodes if run.waits is not None else ()
    groups = [
        _group(run, ranks, node.awaits)
        for node in nodes
        for ranks in (node.ranks & culprits, node.ranks - culprits)
        if ranks
    ]
    ends = {end for edge in _edges(groups) for end in edge}
    kept = [group for at, group in enumerate(groups) if at in ends or not culprits.isdisjoint(group.ranks)]
    apart = sum(len(group.ranks) for group in groups) - sum(len(group.ranks) for group in kept)
    if len(kept) > MOST_NODES:
        kept = _collapsed(run, kept, culprits)
    return WaitGraph(tuple(_node(run, group, culprits) for group in kept), _edges(kept), apart)


def _group(run: Run, ranks: Iterable[int], awaits: frozenset[int]) -> _Group:
    ordered = tuple(sorted(ranks))
    return _Group(ordered, tuple(run.ranks[rank] for rank in ordered if rank in run.ranks), awaits)


def _edges(groups: list[_Group]) -> tuple[tuple[int, int], ...]:
    position = {rank: at for at, group in enumerate(groups) for rank in group.ranks}
    found = {(at, position[rank]) for at, group in enumerate(groups) for rank in group.awaits if rank in position}
    return tuple(sorted(found))


def _collapsed(run: Run, groups: list[_Group], culprits: frozenset[int]) -> list[_Group]:
    """One group for all that do the same at one place, whomever they name; and if these are still too many, one for the rest."""
    together: dict[tuple[bool, Hashable], list[_Group]] = {}
    for group in groups:
        first = group.seen[0] if group.seen else None
        same = first and (first.state, first.wait and first.wait.operation.op, first.where)
        together.setdefault((culprits.isdisjoint(group.ranks), same), []).append(group)
    parts = [alike for _, alike in sorted(together.items(), key=lambda item: item[0][0])]
    if len(parts) > MOST_NODES:
        first_ones, rest = parts[: MOST_NODES - 1], parts[MOST_NODES - 1 :]
        parts = [*first_ones, [group for alike in rest for group in alike]]
    return [
        _group(run, (rank for one in alike for rank in one.ranks), frozenset().union(*(one.awaits for one in alike)))
        for alike in parts
    ]


def _node(run: Run, group: _Group, culprits: frozenset[int]) -> WaitNode:
    ranks, seen = group.ranks, group.seen
    guilty = not culprits.isdisjoint(ranks)
    if not seen:
        return WaitNode(ranks, None, run.unseen[ranks[0]].why if ranks[0] in run.unseen else "not seen", culprit=guilty)
    first = seen[0]
    phrases = {words.doing(rank).rstrip(",") for rank in seen}
    if len(phrases) == 1:
        doing = phrases.pop()
    elif len(ops := {rank.wait.operation.op if rank.wait else None for rank in seen}) == 1 and (op := ops.pop()):
        doing = f"each waits in a {op}"
    else:
        doing = f"{len(phrases)} different things"
    where = first.where if len({rank.where for rank in seen}) == 1 else None
    return WaitNode(
        ranks=ranks,
        label=first.label,
        doing=doing,
        place=f"{where.file}:{where.line}" if where is not None else None,
        source=where.source if where is not None else None,
        culprit=guilty,
    )


def _batches(run: Run, culprits: frozenset[int]) -> tuple[Batches, ...]:
    together: dict[tuple[bool, int, int | None, bool], list[int]] = {}
    for rank in run.ranks.values():
        done, total, _ = batches(rank)
        if done is not None:
            together.setdefault((rank.rank in culprits, done, total, has_ended(run, rank)), []).append(rank.rank)
    found = [
        Batches(tuple(sorted(ranks)), done, total, ended, culprit)
        for (culprit, done, total, ended), ranks in together.items()
    ]
    return tuple(sorted(found, key=lambda one: (not one.culprit, one.done, one.ranks)))


def _setting(one: comparison.Compared) -> Setting:
    name = f"--{one.name}" if one.origin == "argument" else one.name
    return Setting(name, one.standing, one.why, one.values.values)
