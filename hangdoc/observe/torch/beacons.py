"""The probe of the beacons: the files in which trainers publish their progress (`hangdoc.beacon`)."""

import time

from hangdoc import beacon
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.torch.watchdog_files import beat_of
from hangdoc.snapshot import BeaconReading, Progress

_AGAIN_SECONDS = 5.0
"""A rank without a beacon is looked at again after this time: its first step may come late."""


class Beacons:
    """The probe that reads each rank's beacon at both ends of the window."""

    name = "progress"

    def __init__(self) -> None:
        self._first: dict[int, beacon.Beat] = {}
        self._second: dict[int, tuple[beacon.Beat, int]] = {}
        self._without: dict[int, tuple[int, float]] = {}
        """Ranks without one, by pid: when each started (clock ticks), and when it was looked at (monotonic)."""

    def open(self, observation: Observation) -> None:
        """Read the first beat."""
        self._first |= {pid: beat for pid, (beat, _) in self._read_beats(observation).items()}

    def during(self, observation: Observation) -> None:
        """Nothing."""

    def close(self, observation: Observation) -> None:
        """Read the second beat."""
        self._second = self._read_beats(observation)

    def start_next_window(self, observation: Observation) -> None:
        """The end of this window becomes the beginning of the next."""
        self._first = {pid: beat for pid, (beat, _) in self._second.items()}
        for pid in [pid for pid in self._without if pid not in observation.targets]:
            del self._without[pid]

    def evidence(self, observation: Observation) -> list[tuple[int | None, str, object]]:
        """A Progress with only the beacon; `observe` adds the counters."""
        results: list[tuple[int | None, str, object]] = []
        for pid, (beat, now) in self._second.items():
            if pid not in self._first:
                continue  # it has just started: whether it beats needs two readings
            reading = BeaconReading(
                step=beat.step,
                batches_done=beat.batches_done,
                batches_total=beat.batches_total,
                epoch=beat.epoch,
                phase=beat.phase,
                shards=beat.shards,
                shards_digest=beat.shards_digest,
                age_seconds=max(0.0, (now - beat.monotonic_ns) / 1e9),
                moved=beat.sequence != self._first[pid].sequence,
                patience_seconds=beat.patience_seconds,
                stages=beat.stages,
            )
            results.append((pid, "progress", Progress(counters=(), beacon=reading)))
        return results

    def _read_beats(self, observation: Observation) -> dict[int, tuple[beacon.Beat, int]]:
        """The last beat of each rank that has one, and when it was read (monotonic, ns)."""
        now = time.monotonic()
        due = []
        for target in observation.ranks():
            started, looked_at = self._without.get(target.pid, (None, 0.0))
            if started != target.start_ticks or now - looked_at >= _AGAIN_SECONDS:
                due.append(target)
        beats = {}
        for pid, read in observation.read_each(due, lambda target: _read_beat(observation, target)).items():
            self._without.pop(pid, None)
            if isinstance(read, tuple):
                beats[pid] = read
            elif read is None:
                self._without[pid] = observation.targets[pid].start_ticks, now
        return beats


def _read_beat(observation: Observation, target: Target) -> tuple[beacon.Beat, int] | None:
    beat = beat_of(observation.proc, target.pid, target.start_ticks, target.environment)
    return (beat, time.monotonic_ns()) if beat is not None else None
