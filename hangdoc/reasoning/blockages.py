"""Step 5: what blocks a run. Each end of the graph, a sink or a cycle, is one blockage of exactly one kind.

The verdict, the culprits and the victims are derived from the blockages only.
"""

from collections.abc import Hashable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from hangdoc.diagnosis import Severity, Verdict
from hangdoc.reasoning import causes, cycles, points, standstill
from hangdoc.reasoning.graph import End
from hangdoc.reasoning.kinds import Cycle, Ended, LauncherStopped, Rendezvous, Spinning, Standstill
from hangdoc.reasoning.model import Class, Rank, Run, numbers_of
from hangdoc.reasoning.ranks import work
from hangdoc.reasoning.ranks.holds import (
    Asleep,
    AtFileLock,
    Busy,
    Dead,
    Elsewhere,
    Ends,
    Hold,
    OnNetwork,
    Serves,
    Starves,
    Unreadable,
    Unseen,
    Works,
)
from hangdoc.reasoning.ranks.stopped import stopped_by
from hangdoc.reasoning.runs import launch
from hangdoc.reasoning.waits import Waits

_GRAVITY: dict[Ends, int] = {"never": 0, "unknown": 1, "by-itself": 2}
_JUST_NOW = 1.0
"""Seconds. A younger wait is no evidence of a cycle."""
_UNKNOWN = (Unseen, Unreadable)
_NOT_THERE = (Unseen, Works, Starves, Busy, Asleep, AtFileLock, Elsewhere, OnNetwork, Serves)
"""What may keep a rank from the rendezvous without being a finding of its own."""


class Blockage(Struct, frozen=True):
    """What blocks some ranks."""

    kind: Hold
    at: tuple[Class, ...]
    """The ranks at the end of the chains of waiting ranks; empty if they were not observed."""
    culprits: tuple[int, ...]
    waiting: tuple[Class, ...] = ()
    """All other ranks that it blocks and that made no progress."""
    age_seconds: float | None = None
    old: bool = False
    """Whether it is older than the patience."""
    under_way: bool = False
    """Whether data between its ranks may still be in transit."""
    cause: "causes.Cause | None" = None

    @property
    def ends(self) -> Ends:
        """Whether it can end without help, by its cause or else its kind. A cycle with data in transit may be none: a rank
        continues with its next call as soon as the kernel has accepted its bytes."""
        ends = (self.cause.ends if self.cause is not None else None) or self.kind.ends
        return "unknown" if self.under_way and isinstance(self.kind, Cycle) and self.cause is None else ends

    @property
    def blamed(self) -> tuple[int, ...]:
        """The culprits, by its cause if that names other ones."""
        named = self.cause.culprits if self.cause is not None else None
        return self.culprits if named is None else named

    @property
    def victims(self) -> tuple[int, ...]:
        """Ranks that only wait."""
        waiting = (*self.waiting, *(one for one in self.at if one.first.waits))
        return tuple(sorted(set(numbers_of(waiting)) - set(self.blamed)))

    @property
    def severity(self) -> Severity:
        """By the contract: what never ends is an error at once, anything else once it is older than the patience. What could
        not be observed is never an error."""
        if isinstance(self.kind, _UNKNOWN):
            return "warning"
        return "error" if self.ends == "never" or (self.ends == "unknown" and self.old) else "info"

    @property
    def about(self) -> "Hold | causes.Cause":
        """What the finding reports."""
        return self.cause if self.cause is not None else self.kind


def of(run: Run, waits: Waits) -> tuple[Blockage, ...]:
    """What blocks a run, the most severe first."""
    idle = not run.waiting and standstill.is_idle(run)
    found = [_cycle(run, waits, end) for end in waits.ends if end.cycle]
    found += [_complete(waits, end) for end in waits.ends if not end.cycle and _waits(waits, end)]
    found += _sinks(waits, [end for end in waits.ends if not end.cycle and not _waits(waits, end)])
    found = [_aged(run, one) for one in [*_met(run, found), *_without_ranks(run)]]
    found.sort(key=lambda one: (isinstance(one.kind, _UNKNOWN), _GRAVITY[one.ends], not one.old, one.culprits))
    if idle:  # if a rank is dead, the living ones poll for it
        living = tuple(one for one in run.classes if one.first.label != "dead")
        found = [replace(one, waiting=living) if isinstance(one.kind, Dead) else one for one in found]
    kept = _share_out(found, idle=idle)
    if idle and not kept:
        kept = [_aged(run, Blockage(kind=Standstill(), at=run.classes, culprits=()))]
    return tuple(replace(one, cause=causes.of(run, one)) for one in kept)


def _waits(waits: Waits, end: End[int]) -> bool:
    """Whether an end without a cycle is a call in which no rank is missing."""
    classes = [one for at in end.nodes for one in waits.nodes[at].classes]
    return bool(classes) and classes[0].first.waits


def _classes(waits: Waits, positions: Iterable[int]) -> tuple[Class, ...]:
    return tuple(one for at in sorted(positions) for one in waits.nodes[at].classes)


def _cycle(run: Run, waits: Waits, end: End[int]) -> Blockage:
    classes = _classes(waits, end.nodes)
    kind, culprits = cycles.kind_of(run, waits, classes)
    return Blockage(kind=kind, at=classes, culprits=culprits, waiting=_classes(waits, end.upstream))


def _complete(waits: Waits, end: End[int]) -> Blockage:
    """All ranks of a group are in one call."""
    classes, upstream = _classes(waits, end.nodes), _classes(waits, end.upstream)
    if all(one.first.spins for one in classes):
        return Blockage(kind=Spinning(), at=classes, culprits=(), waiting=upstream)
    kind, culprits = points.kind_of(classes)
    return Blockage(kind=kind, at=classes, culprits=culprits, waiting=upstream)


def _sinks(waits: Waits, ends: Iterable[End[int]]) -> list[Blockage]:
    """What blocks ranks that do not wait for other ranks. Those that are blocked alike at one line are one blockage."""
    together: dict[Hashable, list[tuple[Hold, End[int]]]] = {}
    for end in ends:
        classes, upstream = _classes(waits, end.nodes), _classes(waits, end.upstream)
        hold = hold_of(classes[0]) if classes else Unseen()
        if isinstance(hold, Asleep | Elsewhere):
            still = [far for far in upstream if not far.first.moving]
            hold = cycles.left_loop_among(classes, still, waits) or hold
        first = classes[0].first if classes else None
        together.setdefault((hold.alike, first and (first.state, first.where)), []).append((hold, end))
    found = []
    for alike in together.values():
        hold = alike[0][0]
        at = _classes(waits, {at for _, end in alike for at in end.nodes})
        upstream = _classes(waits, {at for _, end in alike for at in end.upstream})
        culprits = tuple(sorted(rank for _, end in alike for at in end.nodes for rank in waits.nodes[at].ranks))
        found.append(Blockage(kind=hold, at=at, culprits=culprits, waiting=upstream))
    return found


def hold_of(one: Class) -> Hold:
    """What blocks a class that does not wait for another rank."""
    rank = one.first
    if (announced := work.announced(rank)) is not None:
        return announced
    if rank.label == "dead":
        return Dead(traced=rank.process is not None)
    if rank.label is None:
        return Unreadable()
    return rank.hold or (work.hold_of(rank) if rank.label == "computing" else Elsewhere())


def _met(run: Run, found: list[Blockage]) -> list[Blockage]:
    """If ranks wait in a rendezvous, all absent ranks are one blockage, whatever they are doing."""
    arrived = tuple(filter(_in_rendezvous, run.waiting))
    absent = [
        one for one in found if isinstance(one.kind, _NOT_THERE) and any(_in_rendezvous(far) for far in one.waiting)
    ]
    if not arrived or not absent:
        return found
    at = tuple(one for blockage in absent for one in blockage.at)
    missing = tuple(sorted(rank for blockage in absent for rank in blockage.culprits))
    ends: Ends = "by-itself" if any(one.first.moving for one in at) else "unknown"
    kind = Rendezvous(arrived=arrived, absent=missing, ends=ends)
    waiting = tuple({one.ranks: one for blockage in absent for one in blockage.waiting}.values())
    met = Blockage(kind=kind, at=at, culprits=missing, waiting=waiting)
    return [one for one in found if one not in absent] + [met]


def _in_rendezvous(one: Class) -> bool:
    return one.first.wait is not None and one.first.wait.kind == "rendezvous"


def _without_ranks(run: Run) -> list[Blockage]:
    """Launchers that have not started any rank yet, or whose ranks have all ended."""
    dead = tuple(number for number, rank in sorted(run.ranks.items()) if rank.label == "dead")
    if len(dead) < len(run.ranks) or not run.launchers:
        return []
    found: list[Blockage] = []
    agents = tuple((place, frame) for place in run.launchers if (frame := launch.in_rendezvous(place[1])) is not None)
    if agents and not run.ranks:
        kind = Rendezvous(agents=agents)
        absent = launch.absent_ranks([process for (_, process), _ in agents])
        found.append(Blockage(kind=kind, at=(), culprits=absent))
    for _, process in run.launchers:
        if (stop := stopped_by(process)) is not None:
            found.append(Blockage(kind=LauncherStopped(launcher=process, stop=stop, ended=dead), at=(), culprits=()))
    if dead and not found:
        badly = tuple(n for n in dead if (one := run.ranks[n].process) is None or one.exit_code != 0)
        monitored = any(process.launch is not None for _, process in run.launchers)
        ends: Ends = "by-itself" if monitored or not badly else "never"
        over = Ended(launcher=run.launchers[0][1], ranks=dead, ends=ends)
        found.append(Blockage(kind=over, at=(), culprits=badly))
    return found


def _aged(run: Run, blockage: Blockage) -> Blockage:
    """Age: at most the time since the start of the awaited rank, and since the last byte from an awaited peer."""
    started = [one.first.process.started_seconds_ago for one in blockage.at if one.first.process is not None]
    if isinstance(blockage.kind, Rendezvous) and blockage.kind.agents:
        age: float | None = min(process.started_seconds_ago for (_, process), _ in blockage.kind.agents)
    else:
        silent = [blockage.kind.silent_seconds] if isinstance(blockage.kind, OnNetwork) else []
        bounds = [*started, *(seconds for seconds in silent if seconds is not None)]
        age = min([run.age_seconds, *bounds]) if run.age_seconds is not None else None
    moving = (age is not None and age < _JUST_NOW) or any(
        _in_flight(run.ranks[n]) for n in numbers_of(blockage.at) if n in run.ranks
    )
    return replace(blockage, age_seconds=age, old=age is not None and age >= run.patience, under_way=moving)


def _in_flight(rank: Rank) -> bool:
    """Whether a connection to another rank holds bytes that are not sent, not acknowledged or not read. With RPC, bytes may be
    in shared memory, which cannot be observed."""
    return rank.uses_rpc or any(
        c.state == "ESTABLISHED" and (c.send_queue_bytes or c.receive_queue_bytes or c.unacked)
        for c in rank.connections
    )


def _share_out(found: Iterable[Blockage], *, idle: bool) -> list[Blockage]:
    """Give each waiting class to the first blockage that it reaches. A blockage without waiting ranks is kept if it can never
    end, if its ranks could not be observed, or if it explains why an idle run makes no progress."""
    taken: set[tuple[int, ...]] = set()
    kept = []
    for blockage in found:
        still = [one for one in blockage.waiting if not one.first.moving]
        mine = tuple(one for one in still if one.ranks not in taken)
        taken |= {one.ranks for one in mine}
        kind = blockage.kind
        if (
            mine
            or any(one.first.waits and not one.first.moving for one in blockage.at)
            or (kind.ends == "never" and not isinstance(kind, Dead))
            or (isinstance(kind, _UNKNOWN) and still)
            or not (blockage.at or blockage.waiting or isinstance(kind, Unseen))
            or (idle and isinstance(kind, standstill.TELLING))
        ):
            kept.append(replace(blockage, waiting=mine))
    return kept


def verdict(run: Run) -> Verdict:
    """The verdict that follows from the blockages of a run."""
    if any(one.severity == "error" for one in run.blockages):
        return "hung"
    if not run.ranks:  # only launchers: no rank has started yet, or none is left
        return "unknown" if any(process.unreadable_below for _, process in run.launchers) else "waiting"
    holding = [one for one in run.blockages if one.victims or not isinstance(one.kind, _UNKNOWN)]
    if holding:
        return "unknown" if any(map(_open, holding)) else "waiting"
    if any(rank.label is None for rank in run.ranks.values()):
        return "unknown"
    still = any(rank.label != "computing" and not rank.moving for rank in run.ranks.values())
    return "waiting" if still else "healthy"


def _open(blockage: Blockage) -> bool:
    """Whether it is unknown if it is a hang: the awaited rank was not observed, or the age is unknown."""
    return isinstance(blockage.kind, _UNKNOWN) or (blockage.ends == "unknown" and blockage.age_seconds is None)
