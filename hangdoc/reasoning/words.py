"""The phrases that findings are made of: which rank is waiting, where, in what, and for how long."""

from collections.abc import Iterable
from functools import lru_cache

from hangdoc.diagnosis import Evidence, Finding, Operation, Severity
from hangdoc.phrases import caller, duration
from hangdoc.phrases import ranks as ranks
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.causes.agreement import Agreement
from hangdoc.reasoning.kinds import Standstill
from hangdoc.reasoning.model import Class, Rank, Run
from hangdoc.reasoning.ranks import recorded
from hangdoc.reasoning.ranks.ended import how_it_ended
from hangdoc.reasoning.ranks.holds import Asleep, AtFileLock, OnNetwork, Serves
from hangdoc.snapshot import Host, Process, Progress

_SIGKILL = 9


def verb(which: Iterable[int], singular: str, plural: str) -> str:
    """The form of a verb that fits the number of ranks."""
    return singular if len(set(which)) == 1 else plural


def be(which: Iterable[int]) -> str:
    """`is` or `are`, by the number of ranks."""
    return verb(which, "is", "are")


def them(which: Iterable[int]) -> str:
    """`it` or `them`, by the number of ranks."""
    return verb(which, "it", "them")


def also(which: Iterable[int]) -> str:
    """` (also ranks 1-3)` for the ranks after the first one; empty for one rank."""
    _, *others = sorted(set(which))
    return f" (also {ranks(others)})" if others else ""


def place(rank: Rank) -> str:
    """Where a rank is in the user's code, with the source line."""
    if rank.where is None:
        return "at an unknown line"
    source = f" `{rank.where.source}`" if rank.where.source else ""
    return f"at {rank.where.file}:{rank.where.line}{source}"


def operation(rank: Rank) -> str:
    """The operation that a rank waits in, by torch's name."""
    if rank.wait is None:
        return rank.state
    return _named(rank.wait.kind, rank.wait.operation)


@lru_cache(4096)  # there are far fewer operations than ranks
def _named(kind: str, op: Operation) -> str:
    text = "store.wait" if kind == "store" and op.op == "wait" else op.op
    if op.peer is not None:
        text += f" {'to' if 'send' in op.op else 'from'} rank {op.peer}"
    if op.group is not None:
        text += f" of group {op.group}"
    return text + (f" ({caller(op.origin)})" if op.origin not in (None, "user", "store") else "")


def doing(rank: Rank) -> str:
    """What a rank is doing, as a phrase that follows `is` or `are`."""
    if rank.wait is not None:
        return f"waiting in {operation(rank)}"
    match rank.hold:
        case OnNetwork(peer=peer):
            return f"waiting for a reply from {peer}" if peer else "waiting on the network"
        case Serves(address=address):
            return f"waiting for requests on {address}"
        case AtFileLock(path=path, holders=holders):
            who = ", ".join(f"pid {one.pid} ({one.name})" for one in holders)
            return f"waiting for a lock on {path}" + (f" (held by {who})" if who else "")
        case Asleep(polls=True):
            return "polling (asleep between attempts)"
        case Asleep(seconds=seconds) if seconds is not None:
            return f"sleeping for another {duration(seconds)}"
    return {
        "computing": "computing",
        "loading-data": "loading data",
        "compiling": "compiling",
        "checkpointing": "writing a checkpoint",
        "evaluating": "evaluating",
        "waiting-data": "waiting for the next batch",
        "waiting-lock": "waiting for a lock",
        "waiting-input": "waiting for user input",
        "waiting-io": "stuck in file or pipe I/O",
        "waiting-child": "waiting for a child process",
        "sleeping": "sleeping",
        "stopped": "stopped",
        "zombie": "dead (zombie)",
        "exited": "dead (exited)",
        "missing": "dead (process gone)",
    }.get(rank.state, f"in state {rank.state}")


def awaited(run: Run, blockage: Blockage) -> str:
    """Which ranks wait for the culprits, directly or indirectly, and what the culprits are doing instead."""
    blamed = set(blockage.culprits)
    first = blockage.at[0].first
    if not blockage.waiting:
        return f"{ranks(blamed)} {be(blamed)} {doing(first)} {place(first)}, and no rank is making progress"
    direct = [
        one for one in blockage.waiting if run.waits is not None and run.waits.of(one) & blamed
    ] or blockage.waiting
    waited = operation(direct[0].first)
    nearest = [number for one in direct if operation(one.first) == waited for number in one.ranks]
    others = sorted(set(blockage.victims) - set(nearest))
    text = (
        f"{ranks(nearest)} {be(nearest)} waiting in {waited} for {ranks(blamed)}, which "
        f"{be(blamed)} {doing(first)} {place(first)}"
    )
    return text + (f"; {ranks(others)} {be(others)} waiting indirectly" if others else "")


def counters(rank: Rank) -> list[Evidence]:
    """The counters of a rank that changed during the observation, at most three."""
    progress = rank.process.progress if rank.process is not None else None
    if not isinstance(progress, Progress):
        return []
    moved = [c for c in progress.counters if c.before != c.after]
    return [
        Evidence(rank=rank.rank, probe="progress", text=f"`{c.name}` in {c.function} went from {c.before} to {c.after}")
        for c in sorted(moved, key=lambda c: (not c.looped, c.function, c.name))[:3]
    ]


def stack_evidence(rank: Rank) -> Evidence:
    """What the stack of a rank shows."""
    return Evidence(rank=rank.rank, probe="stacks", text=f"{doing(rank)} {place(rank)}")


def class_evidence(classes: Iterable[Class]) -> list[Evidence]:
    """One line for all ranks that do the same at the same line, the largest group first."""
    found: dict[tuple[object, ...], list[Class]] = {}
    for one in classes:
        found.setdefault((one.first.state, operation(one.first), one.first.where), []).append(one)
    lines = []
    for alike in sorted(found.values(), key=lambda group: (-sum(len(one.ranks) for one in group), group[0].ranks)):
        who = sorted(number for one in alike for number in one.ranks)
        first = min(alike, key=lambda one: one.ranks).first
        lines.append(Evidence(rank=first.rank, probe="stacks", text=f"{doing(first)} {place(first)}{also(who)}"))
    return lines


def standstill(run: Run) -> list[Evidence]:
    """How long the waiting ranks have exchanged no data, and which collective each rank has reached."""
    still = run.waiting or (run.classes if any(isinstance(one.kind, Standstill) for one in run.blockages) else ())
    silent = [n for one in still for n in one.ranks if run.ranks[n].silent_seconds is not None]
    known = recorded.evidence(run)
    if not silent or run.age_seconds is None:
        return known
    text = f"{ranks(silent)} {verb(silent, 'has', 'have')} exchanged no data with other ranks for {duration(run.age_seconds)}"
    return [Evidence(rank=None, probe="sockets", text=text), *known]


def waiting_in(classes: Iterable[Class], whom: str = "") -> str:
    """`ranks 0-2 are waiting for rank 3 in barrier`. The operation is left out where it is not the same for all; empty for no
    rank."""
    classes = tuple(classes)
    who = sorted({number for one in classes for number in one.ranks})
    what = {operation(one.first) for one in classes}
    text = f"{ranks(who)} {be(who)} waiting" + (f" for {whom}" if whom else "")
    return (text + (f" in {what.pop()}" if len(what) == 1 else "")) if who else ""


def victims_wait(blockage: Blockage) -> str:
    """`ranks 0-2 are waiting for it in barrier`; empty where no rank is waiting."""
    victims = set(blockage.victims)
    waiting = [one for one in (*blockage.waiting, *blockage.at) if victims & set(one.ranks)]
    what = {operation(one.first) for one in waiting}
    text = f"{ranks(victims)} {be(victims)} waiting for {them(blockage.blamed)}"
    return (text + (f" in {what.pop()}" if len(what) == 1 else "")) if victims else ""


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
    """The finding about a blockage. Culprits, victims and severity come from the blockage."""
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
    confidence: float,
    summary: str,
    evidence: Iterable[Evidence],
    remedy: str,
    severity: Severity = "warning",
    culprits: Iterable[int] = (),
    victims: Iterable[int] = (),
    commands: Iterable[str] = (),
    cause: str | None = None,
) -> Finding:
    """A finding with its ranks in order, no rank both culprit and victim, and its confidence in [0, 0.99]."""
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


def values_by_rank(values: Agreement[str | None, int]) -> str:
    """The values and the ranks that have them, at most four."""
    shown = values.values[:4]
    return "; ".join(f"{'not set' if value is None else value[:60]} on {ranks(group)}" for value, group in shown)


def ended_children(run: Run, rank: Rank) -> list[Evidence]:
    """Child processes of a rank that have ended, and how; at most three."""
    ended = [process for process in run.helpers(rank) if process.state in "ZX"]
    return [
        Evidence(
            rank=rank.rank,
            probe="kernel",
            text=f"child process {process.pid} is dead: {how_it_ended(process)}",
        )
        for process in ended[:3]
    ]


def oom_kills(hosts: Iterable[Host], ended: Iterable[Process | None]) -> list[Evidence]:
    """OOM kills in the control groups of some hosts, if they may explain one of the ended processes: killed by SIGKILL, or gone
    without a trace (None)."""
    if not any(process is None or (process.exit_code or 0) & 0x7F == _SIGKILL for process in ended):
        return []
    return [
        Evidence(
            rank=None,
            probe="control groups",
            text=f"the OOM killer has killed {group.oom_kills} process(es) in {group.path}",
        )
        for host in hosts
        for group in host.control_groups
        if group.oom_kills
    ]


def look_again(rank: Rank) -> tuple[str, ...]:
    """The command that shows the stack of a rank."""
    return (f"py-spy dump --pid {rank.pid}",) if rank.pid is not None else ()
