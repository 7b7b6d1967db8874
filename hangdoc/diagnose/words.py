"""Phrases that several rules say: one home for how ranks, places and durations are put into words."""

from collections.abc import Iterable
from functools import lru_cache

from hangdoc.diagnose import recorded
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnose.states import how_it_ended
from hangdoc.diagnosis import Evidence, Finding, Operation, Severity
from hangdoc.phrases import duration, numbers
from hangdoc.phrases import ranks as ranks
from hangdoc.snapshot import Progress


def verb(which: Iterable[int], singular: str, plural: str) -> str:
    """The form of a verb that fits the number of ranks."""
    return singular if len(set(which)) == 1 else plural


def place(rank: Rank) -> str:
    """Where a rank stands in the user's code, with the line itself."""
    if rank.where is None:
        return "at an unknown place"
    source = f" `{rank.where.source}`" if rank.where.source else ""
    return f"at {rank.where.file}:{rank.where.line}{source}"


def operation(rank: Rank) -> str:
    """What a rank waits in, in torch's words."""
    if rank.wait is None:
        return rank.state
    return _spoken(rank.wait.kind, rank.wait.operation)


@lru_cache(4096)  # as many as there are stories, not ranks
def _spoken(kind: str, op: Operation) -> str:
    text = "the run's store" if kind == "store" and op.op == "wait" else op.op
    if op.peer is not None:
        text += f" {'to' if 'send' in op.op else 'from'} rank {op.peer}"
    if op.group is not None:
        text += f" of group {op.group}"
    return text + (f" ({op.origin})" if op.origin not in (None, "user", "store") else "")


def doing(rank: Rank) -> str:
    """One phrase for what a rank does."""
    if rank.wait is not None:
        return f"waits in {operation(rank)}"
    return {
        "computing": "computes",
        "loading-data": "loads data",
        "compiling": "compiles",
        "checkpointing": "writes a checkpoint",
        "evaluating": "evaluates",
        "waiting-data": "waits for its dataloader",
        "waiting-lock": "waits for a lock",
        "waiting-input": "waits for a person's input",
        "waiting-io": "is stuck in the file system or on a pipe",
        "waiting-child": "waits for a child process",
        "sleeping": "sleeps",
        "stopped": "is stopped",
        "zombie": "is dead (a zombie)",
        "exited": "is dead (exited)",
        "missing": "is dead (its process is gone)",
    }.get(rank.state, f"is {rank.state}")


def awaited(run: Run, group: list[Rank], victims: list[Rank]) -> str:
    """Who waits for a class of ranks, directly and in turn, and what these do instead."""
    blamed = {rank.rank for rank in group}
    direct = [rank for rank in victims if run.waits_for[rank.rank] & blamed] or victims
    first = operation(direct[0])
    nearest = [rank.rank for rank in direct if operation(rank) == first]
    others = sorted({rank.rank for rank in victims} - set(nearest))
    text = (
        f"{ranks(nearest)} {verb(nearest, 'waits', 'wait')} in {operation(direct[0])} for {ranks(blamed)}, which "
        f"{doing(group[0])} {place(group[0])}"
    )
    return text + (f"; {ranks(others)} {verb(others, 'waits', 'wait')} in turn" if others else "")


def counters(rank: Rank) -> list[Evidence]:
    """The counters of a rank that moved in the window, at most three."""
    progress = rank.process.progress if rank.process is not None else None
    if not isinstance(progress, Progress):
        return []
    moved = [c for c in progress.counters if c.before != c.after]
    return [
        Evidence(rank=rank.rank, probe="progress", text=f"`{c.name}` in {c.function} went from {c.before} to {c.after}")
        for c in sorted(moved, key=lambda c: (not c.looped, c.function, c.name))[:3]
    ]


def stack_evidence(rank: Rank) -> Evidence:
    """What a rank's stack shows."""
    return Evidence(rank=rank.rank, probe="stacks", text=f"{doing(rank)} {place(rank)}")


def classes(members: Iterable[Rank]) -> list[list[Rank]]:
    """Ranks by what they do and where, the largest class first: a thousand equal ranks are one line of evidence."""
    found: dict[tuple[object, ...], list[Rank]] = {}
    for rank in members:
        key = (rank.state, operation(rank), rank.where)
        found.setdefault(key, []).append(rank)
    return sorted(found.values(), key=lambda group: (-len(group), group[0].rank))


def class_evidence(members: Iterable[Rank]) -> list[Evidence]:
    """One line for each class of ranks."""
    lines = []
    for group in classes(members):
        first = group[0]
        if len(group) == 1:
            lines.append(stack_evidence(first))
        else:
            who = numbers(rank.rank for rank in group)
            lines.append(
                Evidence(rank=first.rank, probe="stacks", text=f"{doing(first)} {place(first)} (ranks {who} alike)")
            )
    return lines


def standstill(run: Run) -> list[Evidence]:
    """Since when the ranks that stand still have been silent, and at which collective each rank is."""
    waiting = [rank for rank in run.still() if rank.silent_seconds is not None]
    known = recorded.evidence(run)
    if not waiting or run.age_seconds is None:
        return known
    text = f"no byte between {ranks(r.rank for r in waiting)} and any other rank for {duration(run.age_seconds)}"
    return [Evidence(rank=None, probe="sockets", text=text), *known]


def finding(
    code: str,
    name: str,
    *,
    severity: Severity,
    confidence: float,
    culprits: Iterable[int],
    victims: Iterable[int],
    summary: str,
    evidence: Iterable[Evidence],
    remedy: str,
    commands: Iterable[str] = (),
) -> Finding:
    """A finding with its ranks in order, its victims cleared of being culprits, its confidence in [0, 0.99]."""
    to_blame = tuple(sorted(set(culprits)))
    return Finding(
        code=code,
        name=name,
        severity=severity,
        confidence=round(min(0.99, max(0.0, confidence)), 2),
        culprits=to_blame,
        victims=tuple(sorted(set(victims) - set(to_blame))),
        summary=summary,
        evidence=tuple(evidence),
        remedy=remedy,
        commands=tuple(commands),
    )


Camps = list[tuple[str | None, list[int]]]
"""Values with the ranks that have them, the commonest first."""


def by_value(ranks: Iterable[Rank], values: dict[int, str | None]) -> Camps:
    """Ranks by the value each has."""
    found: dict[str | None, list[int]] = {}
    for rank in ranks:
        found.setdefault(values.get(rank.rank), []).append(rank.rank)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[1][0]))


def odd_ones(camps: Camps) -> list[int]:
    """Ranks that differ from the most; all of them where no value is commoner than another: nobody knows who is right."""
    tied = len(camps[0][1]) == len(camps[1][1])
    return [rank for _, group in camps[0 if tied else 1 :] for rank in group]


def said(camps: Camps) -> str:
    """The values and who has them, at most four."""
    return "; ".join(f"{'not set' if value is None else value[:60]} on {ranks(group)}" for value, group in camps[:4])


def by_age(run: Run, *, working: bool = False) -> Severity:
    """Severity of a wait that may still end: info while young or while the one waited for moves, error beyond."""
    return "error" if run.older_than_patience() and not working else "info"


def ended_children(run: Run, rank: Rank) -> list[Evidence]:
    """Child processes of a rank that have ended, and how; at most three."""
    ended = [process for process in run.helpers(rank) if process.state in "ZX"]
    return [
        Evidence(
            rank=rank.rank,
            probe="kernel",
            text=f"its child process, pid {process.pid}, is dead: {how_it_ended(process)}",
        )
        for process in ended[:3]
    ]


def look_again(rank: Rank) -> tuple[str, ...]:
    """What to type to see a rank's stack oneself."""
    return (f"py-spy dump --pid {rank.pid}",) if rank.pid is not None else ()
