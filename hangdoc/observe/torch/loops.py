"""How far the loops of each rank are: the counts of its dataloaders, and of the framework that trains.

Reads memory without a pause, at both ends of the window; see `dataloaders`.
"""

import contextlib
import time
from collections.abc import Container, Iterable

import msgspec

from hangdoc.observe.access.observation import Observation, ProbeResult, Target
from hangdoc.observe.memory.memory import Overspent, Unreadable
from hangdoc.observe.torch.dataloaders import LoopReader, SeenLoader
from hangdoc.procfs import ProcError, inner_pid
from hangdoc.snapshot import Loader, Loops, TrainerCount, Unavailable

_MOST_IN_POLL = 16
"""Ranks that one poll reads. Each takes 3 ms of CPU."""


class ReadLoops(msgspec.Struct, frozen=True):
    """One reading."""

    loaders: tuple[SeenLoader, ...]
    counts: tuple[TrainerCount, ...]
    at: float
    """When it began, or counted again (monotonic): on a full machine it may take a second, in which the rank goes on."""


class TrainingLoops:
    """The probe."""

    name = "loops"

    def __init__(self) -> None:
        self._first: dict[int, ReadLoops | Unavailable] = {}
        self._second: dict[int, ReadLoops | Unavailable] = {}
        self._polled: dict[int, tuple[int, float, ReadLoops | Unavailable]] = {}
        """The last reading in a poll: when the process started, when it was read (monotonic), and what was read."""
        self.just_read: list[int] = []
        """The ranks that the last poll has read."""

    def open(self, observation: Observation) -> None:
        """Read the counts."""
        readable = [target for target in observation.ranks() if target.state not in "ZX" and target.python]
        self._first |= self._read_ranks(observation, readable)

    def during(self, observation: Observation) -> None:
        """Nothing."""

    def close(self, observation: Observation) -> None:
        """Read them again."""
        targets = [target for pid, target in observation.targets.items() if pid in self._first]
        self._second |= self._read_ranks(observation, targets)

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The second reading, with the counts of the first; the first one with its age, if there is no second."""
        newest = max((each.at for each in self._second.values() if isinstance(each, ReadLoops)), default=None)
        for pid, first in list(self._first.items()):
            second = self._second.get(pid)
            if isinstance(second, ReadLoops):
                yield pid, "loops", joined(second, first)
            else:
                yield pid, "loops", _add_age(joined(first, None), first, newest)

    def poll(self, observation: Observation, moved: Container[int], clocks_at: float) -> dict[int, Loops | Unavailable]:
        """What one of many polls says of each rank, by pid. It reads the ranks that are in `moved` because they have run since
        they were read, and new ones: at most 16, first those that were read longest ago. `clocks_at`: when the clocks were read
        that tell this (monotonic). Until then a rank that is not in `moved` was where it was; since then it may have gone on."""
        ranks = {target.pid: target for target in observation.ranks() if target.state not in "ZX" and target.python}
        for pid in [pid for pid, last in self._polled.items() if pid not in ranks or ranks[pid].start_ticks != last[0]]:
            del self._polled[pid]
        due = [pid for pid in ranks if pid in moved or pid not in self._polled]
        due = sorted(due, key=lambda pid: self._polled[pid][1] if pid in self._polled else 0.0)[:_MOST_IN_POLL]
        self.just_read = due
        before = {pid: reading for pid, (_, _, reading) in self._polled.items()}
        began = time.monotonic()
        for pid, reading in self._read_ranks(observation, [ranks[pid] for pid in due]).items():
            self._polled[pid] = ranks[pid].start_ticks, began, reading
        loops, now = {}, time.monotonic()
        for pid, (_, _, reading) in self._polled.items():
            old = pid in moved and pid not in due  # of this window nothing is known
            found = joined(reading, None if old else before.get(pid))
            if isinstance(reading, ReadLoops) and isinstance(found, Loops):
                valid_at = reading.at if pid in moved else max(reading.at, clocks_at)
                found = msgspec.structs.replace(found, seconds_ago=round(now - valid_at, 3))
            loops[pid] = found
        return loops

    def _read_ranks(self, observation: Observation, targets: list[Target]) -> dict[int, ReadLoops | Unavailable]:
        """Read the loops of these ranks, one after the other, and then count again what they go over. To find that takes as long
        as a short step, so ranks in lock step were at different batches; to count takes a small part of it."""
        readings = observation.read_each(targets, lambda target: self.read(observation, target))
        read = {pid: reading for pid, reading in readings.items() if isinstance(reading, ReadLoops)}
        if len(read) > 1:
            again = observation.read_each(
                (target for target in targets if target.pid in read),
                lambda target: self._count_again(observation, target, read[target.pid]),
            )
            readings |= {pid: counted for pid, counted in again.items() if isinstance(counted, ReadLoops)}
        return readings

    def _count_again(self, observation: Observation, target: Target, reading: ReadLoops) -> ReadLoops:
        """A reading with the counts of now. The same one if that can't be, or if a framework counts the batches of its loop, by
        numbers of the same moment."""
        if any(count.batches for count in reading.counts) or not any(seen.iterator for seen in reading.loaders):
            return reading
        began = time.monotonic()
        with contextlib.suppress(Unreadable), observation.memory(target.pid) as memory:
            loaders = LoopReader(memory, observation.image(target.pid)).count_again(reading.loaders)
            if loaders is not None:
                return msgspec.structs.replace(reading, loaders=tuple(loaders), at=began)
        return reading

    def read(self, observation: Observation, target: Target) -> ReadLoops | Unavailable:
        """Read the loops of a process now."""
        try:
            return self._read_once(observation, target)
        except Overspent as error:
            return Unavailable(reason=str(error))
        except Unreadable:
            pass  # it runs: a frame may have ended while its caller was looked up
        try:
            return self._read_once(observation, target)
        except Unreadable as error:
            return Unavailable(reason=str(error))

    def _read_once(self, observation: Observation, target: Target) -> ReadLoops:
        image, began = observation.image(target.pid), time.monotonic()
        with observation.memory(target.pid) as memory:
            loaders, counts = LoopReader(memory, image).read(_find_main_thread(observation, target.pid))
            return ReadLoops(tuple(loaders), tuple(counts), began)


def _find_main_thread(observation: Observation, pid: int) -> int:
    """The number of a process's main thread in the process's own pid namespace."""
    try:
        return inner_pid(observation.proc, pid)
    except ProcError:
        return pid


def _add_age(loops: Loops | Unavailable, reading: ReadLoops | Unavailable, newest: float | None) -> Loops | Unavailable:
    """`newest`: when the newest reading of any rank was made (monotonic)."""
    if not isinstance(loops, Loops) or not isinstance(reading, ReadLoops) or newest is None:
        return loops
    return msgspec.structs.replace(loops, seconds_ago=round(max(0.0, newest - reading.at), 3))


def joined(reading: ReadLoops | Unavailable, before: ReadLoops | Unavailable | None) -> Loops | Unavailable:
    """A reading with the counts of the one before, where both are of the same iterator or framework."""
    if isinstance(reading, Unavailable):
        return reading
    earlier: dict[tuple[int, str, int | None], Loader] = {}
    counted: dict[tuple[str, str], int] = {}
    if isinstance(before, ReadLoops):
        earlier = {(seen.address, seen.loader.kind, seen.loader.pass_id): seen.loader for seen in before.loaders}
        counted = {(count.framework, count.name): count.done for count in before.counts}
    loaders = []
    for loader, address, _ in reading.loaders:
        loader_before = earlier.get((address, loader.kind, loader.pass_id))
        loaders.append(
            msgspec.structs.replace(loader, done_before=loader_before.done if loader_before is not None else None)
        )
    counts = [
        msgspec.structs.replace(count, done_before=counted.get((count.framework, count.name)))
        for count in reading.counts
    ]
    between = reading.at - before.at if isinstance(before, ReadLoops) and reading.at > before.at else None
    return Loops(loaders=tuple(loaders), counts=tuple(counts), between_seconds=between)
