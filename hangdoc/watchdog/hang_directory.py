"""The directory of one hang: what all ranks of a run save in it, and how they agree on it.

`hangdoc-<digest of the run's name>-<time>/` holds
`rank-<n>.stacks.txt` of every rank that could dump, `host-<name>.hangdoc` of every host, and
`report.txt`. A task that only one rank may do belongs to the rank that can create a certain file. The directory is private: only
this user and root can write into it, wherever it is.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hangdoc import run_identity
from hangdoc.private_directory import OwnFiles, PrivateDirectory

_FRESH_SECONDS = 120.0
_ROOM_BYTES = 64 << 10
_MOST_BYTES = 8192


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
    return re.sub(r"[^\w.-]+", "_", name)[:48].lstrip(".") or "run"


def make_room(path: Path, rank: int) -> PrivateDirectory:
    """Create a directory for a rank's evidence, or open the one that another rank has created. Raises OSError if the rank cannot
    save its evidence in it: another user may have prepared it, it is read-only, or the disk is full."""
    folder = PrivateDirectory(path, create=True)
    trial = f"rank-{rank}.trial"
    try:
        folder.write(trial, b"\0" * _ROOM_BYTES)
        folder.remove(trial)
    except BaseException:
        folder.close()
        raise
    return folder


class Announcement:
    """The announcement of a hang to all ranks that share a folder: a file that names the hang's directory."""

    def __init__(
        self, folder: Path, run: str, clock: Callable[[], float] = time.monotonic, *, private: bool = False
    ) -> None:
        """`clock` in seconds must be common to those ranks: within a host the monotonic clock, which nobody can set; between
        hosts the wall clock. `private`: the folder is one that nobody else may write into."""
        self._folder, self._kind = folder, PrivateDirectory if private else OwnFiles
        self._file = f".hangdoc-{run_identity.digest(run)}.hang"
        self._clock = clock
        self._since = clock()

    def announced(self) -> Path | None:
        """The directory of a hang that was announced recently, and after this watchdog started."""
        try:
            with self._kind(self._folder) as folder:
                return self._announced_in(folder)
        except OSError:
            return None

    def _announced_in(self, folder: OwnFiles) -> Path | None:
        try:
            when, _, named = folder.read(self._file, _MOST_BYTES).decode("utf-8", "surrogateescape").partition(" ")
            if self._since <= float(when) and self._clock() - float(when) < _FRESH_SECONDS:
                return Path(named)
        except (OSError, ValueError):
            pass
        return None

    def announce(self, folder: Path) -> Path:
        """Announce this directory. Returns it, or another one that is already announced."""
        mine = folder.absolute()
        with (
            contextlib.suppress(OSError),
            self._kind(self._folder) as shared,
        ):  # else other ranks react at their own deadlines
            return self._announce_in(shared, mine)
        return mine

    def _announce_in(self, folder: OwnFiles, mine: Path) -> Path:
        fresh = f"{self._file}.{os.urandom(6).hex()}"
        for _ in range(3):
            if (announced := self._announced_in(folder)) is not None:
                return announced
            try:
                folder.write(fresh, f"{self._clock()} {mine}".encode("utf-8", "surrogateescape"))
                folder.link(fresh, self._file)  # if two ranks announce at once, one is first
                break
            except FileExistsError:
                if self._announced_in(folder) is None:  # from an earlier hang
                    folder.remove(self._file)
            finally:
                folder.remove(fresh)
        return mine


def name_of_hang(run: str) -> str:
    """`hangdoc-<digest of the run's name>-<time, UTC>`."""
    return f"hangdoc-{run_identity.digest(run)[:12]}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
