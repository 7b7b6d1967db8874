"""The progress beacon: a small memory-mapped file in which a trainer says how far it is.

Layout, version 1, 256 bytes, little-endian:

    offset size
      0     8   magic `HANGDOC1`
      8     8   sequence, odd while a beat is being written (a seqlock)
     16     8   CLOCK_MONOTONIC of the beat, ns
     24     8   pid, in the writer's own pid namespace
     32     8   step                     -1 where unknown, here and below
     40     8   batches done
     48     8   batches expected
     56     8   epoch
     64     8   number of shards
     72    32   phase, UTF-8, padded with NUL
    104    64   digest of the shard names, ASCII, padded with NUL
    168    88   reserved, NUL

The file lies at `<directory>/<pid>.beacon` in a per-user directory of mode 0700. A reader treats it as untrusted bytes.
A left-over file is harmless: its pid or its start no longer fits.
"""

import contextlib
import mmap
import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

MAGIC = b"HANGDOC1"
SIZE = 256
_LAYOUT = struct.Struct("<8s Q q q q q q q q 32s 64s")
_SEQUENCE = struct.Struct("<Q")
_UNKNOWN = -1


class Beat(NamedTuple):
    """One beat, as read: numbers are None where the trainer does not know them."""

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


def directory(uid: int, runtime_dir: str | None = None) -> Path:
    """Where the beacons of user `uid` lie: below its XDG_RUNTIME_DIR, else below /tmp."""
    return Path(runtime_dir) / "hangdoc" if runtime_dir else Path(f"/tmp/hangdoc-{uid}")  # noqa: S108


def parse(raw: bytes) -> Beat | None:
    """The beat in `raw`, or None where it is no beacon, was cut short, or was being written (read it again)."""
    if len(raw) < SIZE:
        return None
    magic, sequence, when, pid, *numbers, phase, digest = _LAYOUT.unpack_from(raw)
    if magic != MAGIC or sequence % 2:
        return None
    step, done, total, epoch, shards = (None if n == _UNKNOWN else n for n in numbers)
    return Beat(sequence, when, pid, step, done, total, epoch, shards, _text(phase), _text(digest) or None)


def _text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)


class Beacon:
    """Writes this process's beacon. Never raises after construction: a trainer must not die of its beacon.

    Raises OSError from the constructor where the directory can't be made or belongs to somebody else.
    """

    def __init__(self) -> None:
        folder = directory(os.getuid(), os.environ.get("XDG_RUNTIME_DIR"))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} is not this user's own directory")
        self._pid = os.getpid()
        self._sequence = 0
        self.path = folder / f"{self._pid}.beacon"
        # Made aside and renamed, so that no reader ever sees a short file and a left-over is replaced whole.
        fresh = self.path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b") as file:
            file.truncate(SIZE)
            self._map = mmap.mmap(file.fileno(), SIZE)
        fresh.rename(self.path)

    def beat(
        self,
        *,
        step: int | None = None,
        batches_done: int | None = None,
        batches_total: int | None = None,
        epoch: int | None = None,
        shards: int | None = None,
        shards_digest: str | None = None,
        phase: str = "train",
    ) -> None:
        """Publish where the trainer is. About a microsecond; no system call."""
        if os.getpid() != self._pid:  # a forked dataloader worker inherits the object, not the right to speak
            return
        numbers = (step, batches_done, batches_total, epoch, shards)
        self._sequence += 2
        _SEQUENCE.pack_into(self._map, 8, self._sequence - 1)
        _LAYOUT.pack_into(
            self._map,
            0,
            MAGIC,
            self._sequence - 1,
            time.monotonic_ns(),
            self._pid,
            *(_UNKNOWN if n is None else n for n in numbers),
            phase.encode()[:31],
            (shards_digest or "").encode()[:63],
        )
        _SEQUENCE.pack_into(self._map, 8, self._sequence)

    def close(self) -> None:
        """Remove the file; safe to call twice and in a forked child (which removes nothing)."""
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
