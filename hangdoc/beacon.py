"""The progress beacon: a small memory-mapped file to which a trainer writes its progress.

Layout, version 3, 256 bytes, little-endian:

    offset size
      0     8   magic `HANGDOC3`
      8     8   sequence, odd while a beat is being written (a seqlock)
     16     8   CLOCK_MONOTONIC of the beat, ns
     24     8   pid, in the writer's own pid namespace
     32     8   step                     -1 if unknown, also in the fields below
     40     8   batches done
     48     8   batches expected
     56     8   epoch
     64     8   number of shards
     72    32   phase, UTF-8, padded with NUL
    104    64   digest of the shard names, ASCII, padded with NUL
    168     8   seconds that the phase may take without a beat, IEEE double; 0 if unknown
    176     8   rank
    184     8   world size
    192    32   digest of the run's name (hangdoc.run_identity), ASCII, padded with NUL
    224    32   four stages (data, forward, backward, optimizer): microseconds of the last step, then smoothed, u32 each

The path is `<directory>/<pid>.beacon`, in a per-user directory of mode 0700. Readers treat the content as untrusted.
A stale file is harmless: no process has its pid any more, or the process started after the last beat.
"""

import contextlib
import math
import mmap
import os
import struct
import time
import weakref
from pathlib import Path
from typing import NamedTuple

from hangdoc import run_identity
from hangdoc.private_directory import PrivateDirectory

MAGIC = b"HANGDOC3"
SIZE = 256
SUFFIX = ".beacon"
FLIGHT_SUFFIX = ".flight.json"
"""Suffix of the dump of torch's flight recorder, which the rank writes next to the beacon at an alarm."""
STAGES = ("data", "forward", "backward", "optimizer")
_LAYOUT = struct.Struct("<8s Q q q q q q q q 32s 64s d q q 32s 8I")
_BEAT = struct.Struct("<Q q q q q q q q")
_BEAT_AT = 8
_SEQUENCE = struct.Struct("<Q")
_TEXTS = struct.Struct("<32s 64s d")
_TEXTS_AT = 72
_STAGES = struct.Struct("<8I")
_STAGES_AT = 224
_UNKNOWN = -1
_SMOOTH = 0.1
_LONGEST_US = 0xFFFFFFFF


class Beat(NamedTuple):
    """One beat. Numbers that the trainer does not know are None."""

    sequence: int
    monotonic_ns: int
    pid: int
    step: int | None
    batches_done: int | None
    batches_total: int | None
    epoch: int | None
    shards: int | None
    phase: str
    shards_digest: str | None
    patience_seconds: float | None = None
    rank: int | None = None
    world_size: int | None = None
    run_digest: str | None = None
    stages: tuple[float, ...] = ()
    """Smoothed seconds of each of STAGES; empty if the trainer does not measure them."""


def directory(uid: int, runtime_dir: str | None = None) -> Path:
    """The directory of the beacons of user `uid`: below its XDG_RUNTIME_DIR, else below /tmp."""
    return Path(runtime_dir) / "hangdoc" if runtime_dir else Path(f"/tmp/hangdoc-{uid}")  # noqa: S108


def parse(raw: bytes) -> Beat | None:
    """The beat in `raw`. None if it is not a beacon, is truncated, or was being written (then read the file again)."""
    if len(raw) < SIZE:
        return None
    magic, sequence, when, pid, *numbers, phase, digest, patience, rank, world, run, s0, s1, s2, s3, t0, t1, t2, t3 = (
        _LAYOUT.unpack_from(raw)
    )
    if magic != MAGIC or sequence % 2:
        return None
    step, done, total, epoch, shards = (None if n == _UNKNOWN else n for n in numbers)
    smoothed = tuple(us / 1e6 for us in (t0, t1, t2, t3))
    return Beat(
        sequence,
        when,
        pid,
        step,
        done,
        total,
        epoch,
        shards,
        _text(phase),
        _text(digest) or None,
        patience if math.isfinite(patience) and patience > 0 else None,
        None if rank == _UNKNOWN else rank,
        None if world == _UNKNOWN else world,
        _text(run) or None,
        smoothed if any((s0, s1, s2, s3, t0, t1, t2, t3)) else (),
    )


def _text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)


_living: "weakref.WeakSet[Beacon]" = weakref.WeakSet()


def _in_child() -> None:
    for beacon in _living:
        beacon.disown()


os.register_at_fork(after_in_child=_in_child)


class Beacon:
    """Writes this process's beacon. Only the constructor raises: a beacon must never end its trainer.

    `run` is the full name of the run (hangdoc.run_identity). With `published=False`, the beacon stays in memory and no file is
    created. The constructor raises OSError if the directory can't be created, or if another user may have prepared it.
    """

    def __init__(
        self, *, rank: int | None = None, world_size: int | None = None, run: str | None = None, published: bool = True
    ) -> None:
        self._mine = True
        self._sequence = 0
        self.last_ns = time.monotonic_ns()
        """Time of the last beat, on the monotonic clock."""
        self._numbers = [_UNKNOWN] * 5
        self._texts: tuple[str, str, float] = ("train", "", 0.0)
        self._smoothed = [0.0] * len(STAGES)
        self._pid = os.getpid()
        folder = directory(os.getuid(), os.environ.get("XDG_RUNTIME_DIR"))
        self.path = folder / f"{self._pid}{SUFFIX}"
        fresh = f"{self._pid}.new"
        self.directory = PrivateDirectory(folder, create=True) if published else None
        """The directory of the beacons, opened; None if this one is not published."""
        self._map = mmap.mmap(-1, SIZE) if self.directory is None else _map_file(self.directory, fresh)
        who = (_UNKNOWN if rank is None else rank, _UNKNOWN if world_size is None else world_size)
        _LAYOUT.pack_into(self._map, 0, MAGIC, 0, self.last_ns, self._pid, *self._numbers, b"train", b"", 0.0,
                          *who, _fit(run_identity.digest(run) if run else "", 32), *[0] * 8)  # fmt: skip
        if self.directory is not None:  # renamed when complete, so that no reader sees a short file
            self.directory.rename(fresh, self.path.name)
        _living.add(self)

    def beat(
        self,
        step: int | None = None,
        *,
        batches: int | None = None,
        of: int | None = None,
        epoch: int | None = None,
        shards: int | None = None,
        digest: str | None = None,
        phase: str | None = None,
        patience: float | None = None,
    ) -> None:
        """Publish the trainer's progress. Arguments that are not given keep their value. Takes less than a microsecond, without a
        system call.

        `batches` is the number of batches done, `of` the number expected. `digest` is a digest of the shard names. `patience` is
        the number of seconds that the phase may take without another beat.
        """
        if not self._mine:
            return
        numbers = self._numbers
        if step is not None:
            numbers[0] = step
        if batches is not None:
            numbers[1] = batches
        if of is not None:
            numbers[2] = of
        if epoch is not None:
            numbers[3] = epoch
        if shards is not None:
            numbers[4] = shards
        self.last_ns = now = time.monotonic_ns()
        self._sequence = sequence = self._sequence + 2
        _BEAT.pack_into(self._map, _BEAT_AT, sequence - 1, now, self._pid, *numbers)
        if phase is not None or digest is not None or patience is not None:
            texts = (
                self._texts[0] if phase is None else phase,
                self._texts[1] if digest is None else digest,
                self._texts[2] if patience is None else patience,
            )
            if texts != self._texts:
                self._texts = texts
                _TEXTS.pack_into(self._map, _TEXTS_AT, _fit(texts[0], 32), _fit(texts[1], 64), texts[2])
        _SEQUENCE.pack_into(self._map, _BEAT_AT, sequence)

    @property
    def beats(self) -> int:
        """The approximate number of beats so far."""
        return self._sequence // 2

    @property
    def step(self) -> int | None:
        """The last published step."""
        return None if self._numbers[0] == _UNKNOWN else self._numbers[0]

    @property
    def phase(self) -> tuple[str, float]:
        """(name, patience in seconds) of the current phase; patience 0 is unknown."""
        return self._texts[0], self._texts[2]

    def stages(self, seconds: tuple[float, ...]) -> None:
        """Publish the seconds that each of STAGES took in the last step, and a moving average of them."""
        if not self._mine:
            return
        old = self._smoothed
        self._smoothed = [b if a == 0.0 else a + _SMOOTH * (b - a) for a, b in zip(old, seconds, strict=True)]
        values = (min(int(s * 1e6), _LONGEST_US) for s in (*seconds, *self._smoothed))
        self._sequence += 2
        _SEQUENCE.pack_into(self._map, _BEAT_AT, self._sequence - 1)
        _STAGES.pack_into(self._map, _STAGES_AT, *values)
        _SEQUENCE.pack_into(self._map, _BEAT_AT, self._sequence)

    def disown(self) -> None:
        """Stop writing. A forked child inherits the object, but the beacon belongs to its parent."""
        self._mine = False

    def close(self) -> None:
        """Remove the file. May be called twice, and in a forked child, where it does nothing."""
        if self._mine:
            self._mine = False
            if self.directory is not None:
                with contextlib.suppress(OSError):
                    self.directory.remove(self.path.name)
                self.directory.close()


def _map_file(folder: PrivateDirectory, fresh: str) -> mmap.mmap:
    """Map a new file that only this user can read. Raises OSError."""
    file = folder.open_new(fresh)
    try:
        os.ftruncate(file, SIZE)
        return mmap.mmap(file, SIZE)
    finally:
        os.close(file)


def _fit(text: str, size: int) -> bytes:
    """The text as UTF-8, cut at a character boundary. A text that fills its field has no NUL at the end."""
    return text.encode()[:size].decode("utf-8", "ignore").encode()
