"""The probe of torch's flight recorder: the last collectives of each rank, with their tensors and call sites.

It is read from the memory of the rank, without a pause, also if the rank is stopped or holds the GIL. Where that is not possible,
a dump of the watchdog or torch's worker server is read (`recorder_dumps`).
"""

import time
from collections.abc import Iterable

from msgspec.structs import replace

from hangdoc.observe.access.observation import Observation, ProbeResult, Target
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.torch.recorder_dumps import read_dump
from hangdoc.observe.torch.recorder_history import Record, recorder_of
from hangdoc.observe.torch.recorder_memory import MemoryReader
from hangdoc.snapshot import FlightRecorder, Unavailable

_QUIET_SECONDS = 1.0
"""If a rank has made no call for so long, all entries of its run are read, not only the last few."""
_WHOLE_RANKS = 16
"""All entries of a rank take 30 to 60 ms of CPU."""
_GLOO = "cpu"
_DUMP_SECONDS = 5.0
"""A dump is read again after this time."""


class FlightRecorders:
    """The probe. With `whole`, all entries of every rank are read, also if it makes calls, unless there are many ranks."""

    name = "flight recorder"

    def __init__(self, *, whole: bool = False) -> None:
        self.whole = whole
        """Whether the next `during` and `close` read all entries in any case."""
        self._readers: dict[int, tuple[int, MemoryReader]] = {}
        """By pid: when the process started, and its reader."""
        self._made_before: dict[int, dict[str, int]] = {}
        self._made: dict[int, dict[str, int]] = {}
        self._dumps: dict[int, tuple[float, int, FlightRecorder | Unavailable]] = {}
        """By pid: when it was read (monotonic), when the process started, and what was read."""
        self._found: dict[int, FlightRecorder | Unavailable] = {}

    def open(self, observation: Observation) -> None:
        """Count the calls of each rank."""
        self._made_before |= self.count_calls(observation, _list_living(observation))

    def during(self, observation: Observation) -> None:
        """Read the dumps of the ranks whose memory has no record, and whole records already now: at the end of the window, only
        what is new then takes time."""
        living = _list_living(observation)
        self._read_dumps(observation, [t for t in living if t.pid not in self._made_before])
        if self.whole and len(living) <= _WHOLE_RANKS:
            recorded = [target for target in living if target.pid in self._made_before]
            records = observation.read_each(
                recorded, lambda target: self._reader(target).read(observation, target, None)
            )
            for target in recorded:
                target.in_call_since = _in_call_since(records[target.pid])

    def close(self, observation: Observation) -> None:
        """Read the records: the last entries, and all of them in a run of which a rank makes no calls."""
        living = _list_living(observation)
        records = observation.read_each(living, lambda target: self._reader(target).read(observation, target))
        whole = self.whole and len(living) <= _WHOLE_RANKS
        quiet = {target.run for target in living if _is_quiet(records[target.pid])}
        more = [
            target
            for target in living
            if not isinstance(records[target.pid], Unavailable) and (whole or target.run in quiet)
        ]
        all_calls = observation.read_each(more, lambda target: self._reader(target).read(observation, target, None))
        for pid, result in all_calls.items():
            if not isinstance(result, Unavailable):
                records[pid] = result
        self._read_dumps(observation, [t for t in living if isinstance(records[t.pid], Unavailable)])
        self._found, self._made = {}, {}
        for pid, result in records.items():
            if isinstance(result, Unavailable):
                dump = self._dump_of(observation.targets[pid], result)
                self._found[pid] = result if isinstance(dump, Unavailable) else dump
            else:
                self._made[pid] = {record.kind: record.made for record in result}
                self._found[pid] = recorder_of(result, self._made_before.get(pid, {}))

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The recorder of each rank."""
        for pid, recorder in list(self._found.items()):
            yield pid, "recorder", recorder

    def start_next_window(self, observation: Observation) -> None:
        """What was read last is the beginning of the next window."""
        self._made_before = self._made
        for table in (self._readers, self._dumps):
            for pid in [pid for pid in table if pid not in observation.targets]:
                del table[pid]

    def are_of_gloo(self, observation: Observation) -> bool:
        """Whether every living rank has a record of calls, and only of Gloo: those of a card go on although no thread runs."""
        counts = [self._made_before.get(target.pid, {}) for target in _list_living(observation)]
        return all({kind for kind, made in calls.items() if made} == {_GLOO} for calls in counts)

    def find_moving(self, observation: Observation, targets: Iterable[Target]) -> dict[int, bool]:
        """Whether some ranks have made calls since the window began, by pid; without those of which that is not known."""
        now = self.count_calls(observation, [target for target in targets if target.pid in self._made_before])
        return {pid: made != self._made_before[pid] for pid, made in now.items()}

    def count_calls(self, observation: Observation, targets: Iterable[Target]) -> dict[int, dict[str, int]]:
        """How many calls some ranks have made so far, by pid and kind of backend; without those of which that can't be read."""
        counts = observation.read_each(targets, lambda target: self._count(observation, target))
        return {pid: made for pid, made in counts.items() if not isinstance(made, Unavailable)}

    def _count(self, observation: Observation, target: Target) -> dict[str, int]:
        made = self._reader(target).count(observation, target)
        if not made:
            raise Unreadable("no record")
        return made

    def _reader(self, target: Target) -> MemoryReader:
        started, reader = self._readers.get(target.pid, (None, None))
        if reader is None or started != target.start_ticks:
            reader = MemoryReader()
            self._readers[target.pid] = target.start_ticks, reader
        return reader

    def _read_dumps(self, observation: Observation, targets: list[Target]) -> None:
        now = time.monotonic()
        due = []
        for target in targets:
            read_at, started, _ = self._dumps.get(target.pid, (float("-inf"), None, None))
            if started != target.start_ticks or now - read_at >= _DUMP_SECONDS:
                due.append(target)
        starts = {target.pid: target.start_ticks for target in due}
        for pid, dump in observation.read_each(due, lambda target: read_dump(observation, target)).items():
            self._dumps[pid] = now, starts[pid], dump

    def _dump_of(self, target: Target, otherwise: Unavailable) -> FlightRecorder | Unavailable:
        """The last dump of a process, with its age; `otherwise` if there is none."""
        read_at, started, dump = self._dumps.get(target.pid, (0.0, None, otherwise))
        if started != target.start_ticks:
            return otherwise
        if isinstance(dump, Unavailable):
            return dump
        older = time.monotonic() - read_at
        return dump if older < 1 else replace(dump, age_seconds=round(dump.age_seconds + older, 3))


def _list_living(observation: Observation) -> list[Target]:
    return [target for target in observation.ranks() if target.state not in "ZX"]


def _in_call_since(records: list[Record] | Unavailable) -> float | None:
    """When a rank made its last call (monotonic); None if that has finished, or is not known."""
    if isinstance(records, Unavailable):
        return None
    last = max(
        ((record.calls.calls[-1], record.read_ns) for record in records if record.calls.calls),
        key=lambda call: call[0].made_ns, default=None,
    )  # fmt: skip
    if last is None or last[0].completed:
        return None
    return time.monotonic() - max(0, last[1] - last[0].made_ns) / 1e9


def _is_quiet(records: list[Record] | Unavailable) -> bool:
    """Whether a rank has made no call for a while."""
    if isinstance(records, Unavailable):
        return False
    last = max((record.calls.calls[-1].made_ns for record in records if record.calls.calls), default=None)
    return last is not None and records[0].read_ns - last >= _QUIET_SECONDS * 1e9
