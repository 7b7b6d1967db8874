"""What a page shows of a job beyond its diagnosis: who waits for whom as a drawing of few nodes, batches, stacks, settings."""

from collections.abc import Hashable, Iterable

from hangdoc.detail import Batches, Detail, Setting, WaitGraph, WaitNode
from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.reasoning import comparison, merged, words
from hangdoc.reasoning.model import Rank, Run
from hangdoc.reasoning.ranks.counters import batches

MOST_NODES = 20
"""A drawing with more can't be read."""
_Group = tuple[tuple[int, ...], tuple[Rank, ...]]
"""Ranks, and those of them that somebody looked at."""


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
    )


def wait_graph(run: Run, culprits: frozenset[int], most: int = MOST_NODES) -> WaitGraph:
    """Who waits for whom, in at most so many nodes. Ranks that wait at one point are one node, culprits
    among them another."""
    if run.waits is None:
        return WaitGraph()
    groups: list[_Group] = []
    awaits: list[frozenset[int]] = []
    for node in run.waits.nodes:
        for ranks in (node.ranks & culprits, node.ranks - culprits):
            if ranks:
                ordered = tuple(sorted(ranks))
                groups.append((ordered, tuple(run.ranks[rank] for rank in ordered if rank in run.ranks)))
                awaits.append(node.awaits)
    edges = _edges(groups, awaits)
    ends = {end for edge in edges for end in edge}
    kept = [at for at in range(len(groups)) if at in ends or set(groups[at][0]) & culprits]
    apart = sum(len(ranks) for at, (ranks, _) in enumerate(groups) if at not in set(kept))
    groups, awaits = [groups[at] for at in kept], [awaits[at] for at in kept]
    if len(groups) > most:
        groups, awaits = _collapsed(groups, awaits, culprits, most)
    nodes = tuple(_node(ranks, seen, run, culprits) for ranks, seen in groups)
    return WaitGraph(nodes, _edges(groups, awaits), apart)


def _edges(groups: list[_Group], awaits: list[frozenset[int]]) -> tuple[tuple[int, int], ...]:
    position = {rank: at for at, (ranks, _) in enumerate(groups) for rank in ranks}
    found = {(at, position[rank]) for at, awaited in enumerate(awaits) for rank in awaited if rank in position}
    return tuple(sorted(found))


def _collapsed(
    groups: list[_Group], awaits: list[frozenset[int]], culprits: frozenset[int], most: int
) -> tuple[list[_Group], list[frozenset[int]]]:
    """One group for all that do the same at one place, whomever they name; and if these are still too many, one for the rest."""
    together: dict[Hashable, list[int]] = {}
    for at, (ranks, seen) in enumerate(groups):
        first = seen[0] if seen else None
        same = first and (first.state, first.wait and first.wait.operation.op, first.where)
        together.setdefault((bool(culprits & set(ranks)), same), []).append(at)
    order = sorted(together.items(), key=lambda item: not item[0][0])  # type: ignore[index]
    parts = [members for _, members in order]
    if len(parts) > most:
        parts = [*parts[: most - 1], [at for members in parts[most - 1 :] for at in members]]
    return (
        [_union([groups[at] for at in members]) for members in parts],
        [frozenset().union(*(awaits[at] for at in members)) for members in parts],
    )


def _union(groups: Iterable[_Group]) -> _Group:
    groups = list(groups)
    seen = sorted((rank for _, some in groups for rank in some), key=lambda rank: rank.rank)
    return tuple(sorted(rank for ranks, _ in groups for rank in ranks)), tuple(seen)


def _node(ranks: tuple[int, ...], seen: tuple[Rank, ...], run: Run, culprits: frozenset[int]) -> WaitNode:
    guilty = bool(culprits & set(ranks))
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
        done, total = batches(rank)
        if done is not None:
            ended = rank.loop is not None and not rank.loop.inside
            together.setdefault((rank.rank in culprits, done, total, ended), []).append(rank.rank)
    found = [
        Batches(tuple(sorted(ranks)), done, total, ended, culprit)
        for (culprit, done, total, ended), ranks in together.items()
    ]
    return tuple(sorted(found, key=lambda one: (not one.culprit, one.done, one.ranks)))


def _setting(one: comparison.Compared) -> Setting:
    name = f"--{one.name}" if one.origin == "argument" else one.name
    return Setting(name, one.standing, one.why, one.values.values)
