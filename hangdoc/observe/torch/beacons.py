"""The probe of the beacons: the files in which trainers publish their progress (`hangdoc.beacon`)."""

import time

from hangdoc import beacon
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.torch.watchdog_files import beat_of
from hangdoc.snapshot import BeaconReading, Progress


class Beacons:
    """The probe that reads each rank's beacon at both ends of the window."""

    name = "progress"

    def __init__(self) -> None:
        self._first: dict[int, beacon.Beat] = {}
        self._second: dict[int, tuple[beacon.Beat, int]] = {}

    def open(self, observation: Observation) -> None:
        """Read the first beat."""
        self._first |= {pid: beat for pid, (beat, _) in _read_beats(observation).items()}

    def during(self, observation: Observation) -> None:
        """Nothing."""

    def close(self, observation: Observation) -> None:
        """Read the second beat."""
        self._second = _read_beats(observation)

    def start_next_window(self, observation: Observation) -> None:
        """The end of this window becomes the beginning of the next."""
        self._first = {pid: beat for pid, (beat, _) in self._second.items()}

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


def _read_beats(observation: Observation) -> dict[int, tuple[beacon.Beat, int]]:
    """The last beat of each rank that has one, and when it was read (monotonic, ns)."""

    def read(target: Target) -> tuple[beacon.Beat | None, int]:
        return beat_of(observation.proc, target.pid, target.start_ticks, target.environment), time.monotonic_ns()

    read_now = observation.read_each(observation.ranks(), read)
    return {
        pid: (beat[0], beat[1]) for pid, beat in read_now.items() if isinstance(beat, tuple) and beat[0] is not None
    }
