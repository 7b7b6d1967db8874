"""The directory of one hang: where all ranks of a run leave what they have, and how they agree on it.

`hangdoc-<digest of the run's name>-<time>/` holds
`rank-<n>.stacks.txt` of every rank that could dump, `host-<name>.hangdoc` of every host, and
`report.txt`. Who does what only one may do is settled by a file that only one can create.
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
    """The run's whole name (hangdoc.run_identity, or what the trainer calls it): the same for all ranks, another for another
    run of the same user."""

    @property
    def digest(self) -> str:
        """The run's name in a short field or a file's name."""
        return run_identity.digest(self.run)


def clean(name: str) -> str:
    """A name that may stand in a file's name."""
    return re.sub(r"[^\w.-]+", "_", name)[:48] or "run"


def claim(path: Path) -> bool:
    """Whether this process is the one that may: the file could be created. Raises OSError where nothing can be."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def make_room(folder: Path, rank: int) -> None:
    """Make a directory; raises OSError where a rank could not leave its evidence in it: it is read-only, or the disk is
    full."""
    folder.mkdir(parents=True, exist_ok=True)
    trial = folder / f"rank-{rank}.trial"
    try:
        trial.write_bytes(b"\0" * _ROOM_BYTES)
    finally:
        with contextlib.suppress(OSError):
            trial.unlink(missing_ok=True)


class Call:
    """The call that goes out to all ranks that see one folder: a file that names the directory of a hang."""

    def __init__(self, folder: Path, run: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` in seconds is one that those ranks have in common: within a host the monotonic one, which no
        administrator turns; between hosts the wall clock."""
        self._file = folder / f".hangdoc-{run_identity.digest(run)}.call"
        self._clock = clock
        self._since = clock()

    def heard(self) -> Path | None:
        """The directory of a hang that somebody called out since this watchdog started, and lately."""
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

    def out(self, folder: Path) -> Path:
        """Call this directory out; it, or another that is already called out."""
        mine = folder.absolute()
        fresh = self._file.with_suffix(f".{os.getpid()}")
        for _ in range(3):
            if (known := self.heard()) is not None:
                return known
            try:
                fresh.write_text(f"{self._clock()} {mine}")
                os.link(fresh, self._file)  # of two that call at once, one comes first
                break
            except FileExistsError:
                if self.heard() is None:  # an earlier hang's
                    self._file.unlink(missing_ok=True)
            except OSError:
                break  # the others come by their own deadlines
            finally:
                with contextlib.suppress(OSError):
                    fresh.unlink(missing_ok=True)
        return mine


def name_of_hang(run: str) -> str:
    """`hangdoc-<digest of the run's name>-<time, UTC>`."""
    return f"hangdoc-{run_identity.digest(run)[:12]}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
