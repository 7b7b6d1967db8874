"""The words that findings are made of: who waits where, in what, for how long."""

from collections.abc import Iterable
from functools import lru_cache

from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.causes.agreement import Agreement
from hangdoc.diagnose.kinds import Standstill
from hangdoc.diagnose.model import Class, Rank, Run
from hangdoc.diagnose.ranks import recorded
from hangdoc.diagnose.ranks.ended import how_it_ended
from hangdoc.diagnose.ranks.holds import Asleep, AtFileLock, OnNetwork, Serves
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
    match rank.hold:
        case OnNetwork(peer=peer):
            return f"waits for an answer from {peer}" if peer else "waits on the network"
        case Serves(address=address):
            return f"waits for a request on {address}"
        case AtFileLock(path=path, holders=holders):
            who = ", ".join(f"pid {one.pid} ({one.name})" for one in holders)
            return f"waits for a lock on {path}" + (f", which {who} holds," if who else "")
        case Asleep(polls=True):
            return "polls, asleep in between,"
        case Asleep(seconds=seconds) if seconds is not None:
            return f"sleeps for {duration(seconds)} more"
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


def awaited(run: Run, blockage: Blockage) -> str:
    """Who waits for a class of ranks, directly and in turn, and what these do instead."""
    blamed = set(blockage.culprits)
    first = blockage.at[0].first
    if not blockage.waiting:
        return f"{ranks(blamed)} {doing(first)} {place(first)}, and no rank does anything"
    direct = [
        one for one in blockage.waiting if run.waits is not None and run.waits.of(one) & blamed
    ] or blockage.waiting
    waited = operation(direct[0].first)
    nearest = [number for one in direct if operation(one.first) == waited for number in one.ranks]
    others = sorted(set(blockage.victims) - set(nearest))
    text = (
        f"{ranks(nearest)} {verb(nearest, 'waits', 'wait')} in {waited} for {ranks(blamed)}, which "
        f"{doing(first)} {place(first)}"
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


def class_evidence(classes: Iterable[Class]) -> list[Evidence]:
    """One line for all ranks that do the same at the same place, the most ranks first."""
    found: dict[tuple[object, ...], list[Class]] = {}
    for one in classes:
        found.setdefault((one.first.state, operation(one.first), one.first.where), []).append(one)
    lines = []
    for alike in sorted(found.values(), key=lambda group: (-sum(len(one.ranks) for one in group), group[0].ranks)):
        who = sorted(number for one in alike for number in one.ranks)
        first = min(alike, key=lambda one: one.ranks).first
        text = f"{doing(first)} {place(first)}" + (f" (ranks {numbers(who)} alike)" if len(who) > 1 else "")
        lines.append(Evidence(rank=first.rank, probe="stacks", text=text))
    return lines


def standstill(run: Run) -> list[Evidence]:
    """Since when the ranks that stand still have been silent, and at which collective each rank is."""
    still = run.waiting or (run.classes if any(isinstance(one.kind, Standstill) for one in run.blockages) else ())
    silent = [n for one in still for n in one.ranks if run.ranks[n].silent_seconds is not None]
    known = recorded.evidence(run)
    if not silent or run.age_seconds is None:
        return known
    text = f"no byte between {ranks(silent)} and any other rank for {duration(run.age_seconds)}"
    return [Evidence(rank=None, probe="sockets", text=text), *known]


def waits_for_it(blockage: Blockage, *, whom: str = "it") -> str:
    """`; ranks 0-2 wait for it`, or nothing where nobody does."""
    victims = blockage.victims
    return f"{ranks(victims)} {verb(victims, 'waits', 'wait')} for {whom}" if victims else ""


def blocked(
    rule: tuple[str, str],
    blockage: Blockage,
    *,
    confidence: float,
    summary: str,
    evidence: Iterable[Evidence],
    remedy: str,
    commands: Iterable[str] = (),
) -> Finding:
    """The finding about a blockage: whom it blames, whom it clears and how grave it is are the blockage's own."""
    code, name = rule
    return finding(
        code,
        name,
        severity=blockage.severity,
        confidence=confidence,
        culprits=blockage.blamed,
        victims=blockage.victims,
        summary=summary,
        evidence=evidence,
        remedy=remedy,
        commands=commands,
        cause=blockage.cause.NAME if blockage.cause is not None else None,
    )


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
    cause: str | None = None,
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
        cause=cause,
    )


def said(values: Agreement[str | None, int]) -> str:
    """The values and who has them, at most four."""
    shown = values.values[:4]
    return "; ".join(f"{'not set' if value is None else value[:60]} on {ranks(group)}" for value, group in shown)


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
