"""The directory of one hang: what all ranks of a run save in it, and how they agree on it.

`hangdoc-<digest of the run's name>-<time>/` holds
`rank-<n>.stacks.txt` of every rank that could dump, `host-<name>.hangdoc` of every host, and
`report.txt`. A task that only one rank may do belongs to the rank that can create
a certain file.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hangdoc import run_identity

_FRESH_SECONDS = 120.0
_ROOM_BYTES = 64 << 10


class Member(NamedTuple):
    """One rank of one run."""

    rank: int
    world_size: int
    run: str
    """The full name of the run (hangdoc.run_identity, or chosen by the trainer). It is the same for all its ranks and differs
    between runs."""

    @property
    def digest(self) -> str:
        """The name of the run, short enough for a field or a file name."""
        return run_identity.digest(self.run)


def clean(name: str) -> str:
    """The name with only characters that are safe in a file name."""
    return re.sub(r"[^\w.-]+", "_", name)[:48] or "run"


def claim(path: Path) -> bool:
    """Create the file. Returns whether this process was the first. Raises OSError if no file can be created."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def make_room(folder: Path, rank: int) -> None:
    """Create a directory. Raises OSError if a rank cannot save its evidence in it because it is read-only or the disk is full."""
    folder.mkdir(parents=True, exist_ok=True)
    trial = folder / f"rank-{rank}.trial"
    try:
        trial.write_bytes(b"\0" * _ROOM_BYTES)
    finally:
        with contextlib.suppress(OSError):
            trial.unlink(missing_ok=True)


class Announcement:
    """The announcement of a hang to all ranks that share a folder: a file that names the hang's directory."""

    def __init__(self, folder: Path, run: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` in seconds must be common to those ranks: within a host the monotonic clock, which nobody can set; between
        hosts the wall clock."""
        self._file = folder / f".hangdoc-{run_identity.digest(run)}.hang"
        self._clock = clock
        self._since = clock()

    def announced(self) -> Path | None:
        """The directory of a hang that was announced recently, and after this watchdog started."""
        try:
            with self._file.open() as file:
                if os.fstat(file.fileno()).st_uid != os.getuid():
                    return None
                when, _, folder = file.read(8192).partition(" ")
            if not (self._since <= float(when) and self._clock() - float(when) < _FRESH_SECONDS):
                return None
            return Path(folder)
        except (OSError, ValueError):
            return None

    def announce(self, folder: Path) -> Path:
        """Announce this directory. Returns it, or another one that is already announced."""
        mine = folder.absolute()
        fresh = self._file.with_suffix(f".{os.getpid()}")
        for _ in range(3):
            if (known := self.announced()) is not None:
                return known
            try:
                fresh.write_text(f"{self._clock()} {mine}")
                os.link(fresh, self._file)  # if two ranks announce at once, one is first
                break
            except FileExistsError:
                if self.announced() is None:  # from an earlier hang
                    self._file.unlink(missing_ok=True)
            except OSError:
                break  # other ranks react at their own deadlines
            finally:
                with contextlib.suppress(OSError):
                    fresh.unlink(missing_ok=True)
        return mine


def name_of_hang(run: str) -> str:
    """`hangdoc-<digest of the run's name>-<time, UTC>`."""
    return f"hangdoc-{run_identity.digest(run)[:12]}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
