"""What blocks a rank on its own, so that no other rank could end it. Exactly one for each rank that others may wait for."""

from collections.abc import Hashable
from typing import ClassVar, Literal

from msgspec import Struct

from hangdoc.snapshot import AwaitedFile, Holder, Process

Ends = Literal["never", "unknown", "by-itself"]
"""Whether it can end without help."""


SHORT_SLEEP = 60.0
"""Seconds. A sleep up to this is a pause between two attempts; a sleep of an hour is a hang for the ranks that wait."""


class Hold(Struct, frozen=True):
    """Base class of everything that blocks a rank or a run."""

    NAME: ClassVar[str]
    _ENDS: ClassVar[Ends] = "unknown"

    @property
    def ends(self) -> Ends:
        """Whether it can end without help, regardless of the patience."""
        return self._ENDS

    @property
    def alike(self) -> Hashable:
        """Equal for ranks that are blocked in the same way."""
        return self.NAME


class Dead(Hold, frozen=True):
    """Its process has ended."""

    NAME = "dead"
    _ENDS = "never"
    traced: bool
    """Whether its zombie was found; otherwise its process is missing from its host."""


class Stopped(Hold, frozen=True):
    """The kernel does not run it."""

    NAME = "stopped"
    _ENDS = "never"
    by: Literal["freezer", "tracer", "signal"]
    why: str

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.by


class WaitsForInput(Hold, frozen=True):
    """It waits for user input: a prompt, a debugger."""

    NAME = "waiting-input"
    _ENDS = "never"


class InFile(Hold, frozen=True):
    """In a system call on a file or a pipe."""

    NAME = "in-file"
    wchan: str = ""
    file: AwaitedFile | None = None
    abandoned: bool = False
    """A pipe or FIFO whose other end no other process holds."""

    @property
    def ends(self) -> Ends:
        return "never" if self.abandoned else "unknown"


class AtLock(Hold, frozen=True):
    """At a lock of its own process, or waiting for the GIL."""

    NAME = "at-lock"
    what: str
    """Which thread holds it, as text."""
    certainty: float
    threads: tuple[str, ...]
    """What each thread involved is doing."""
    crosswise: bool = False
    """Threads wait for each other's locks: nothing in the process can end it."""

    @property
    def ends(self) -> Ends:
        return "never" if self.crosswise else "unknown"


class WaitsForLoader(Hold, frozen=True):
    """In torch's DataLoader, for a batch."""

    NAME = "waiting-data"
    about: str
    """Text about the worker, or about the loader if no single worker is to blame."""
    certainty: float
    worker: Process | None = None
    gone: bool = False
    """Whether the worker cannot deliver any more batches."""
    shown: tuple[Process, ...] = ()
    """Workers to list as evidence."""

    @property
    def ends(self) -> Ends:
        return "never" if self.gone else "unknown"

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.about, self.worker is None

    def __str__(self) -> str:
        return f"its worker (pid {self.worker.pid}) {self.about}" if self.worker is not None else self.about


class Asleep(Hold, frozen=True):
    """In a sleep: a single one, or one of many between two checks of a condition."""

    NAME = "asleep"
    polls: bool = False
    seconds: float | None = None
    """How much longer at most."""

    @property
    def ends(self) -> Ends:
        return "by-itself" if not self.polls and self.seconds is not None and self.seconds <= SHORT_SLEEP else "unknown"


class OnNetwork(Hold, frozen=True):
    """It waits for a reply from outside the run."""

    NAME = "on-network"
    peer: str | None = None
    """Address and port, if known."""
    silent_seconds: float | None = None
    """Since the last byte on that connection."""


class AtFileLock(Hold, frozen=True):
    """It waits for a lock on a file that another process holds."""

    NAME = "at-file-lock"
    path: str
    holders: tuple[Holder, ...] = ()


class Serves(Hold, frozen=True):
    """It waits for requests from outside the run."""

    NAME = "serving"
    _ENDS = "by-itself"
    address: str


class Elsewhere(Hold, frozen=True):
    """It waits for something else: a child process, an event, a queue."""

    NAME = "elsewhere"


class Works(Hold, frozen=True):
    """It is working."""

    NAME = "working"
    _ENDS = "by-itself"
    what: str
    certain: bool = False
    """Whether a counter of its loops shows it."""

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.what


class Starves(Hold, frozen=True):
    """It tries to fetch its next batch all the time, but none arrives."""

    NAME = "starving"


class Busy(Hold, frozen=True):
    """It uses CPU, but nothing shows progress."""

    NAME = "busy"
    counts: bool = False
    """Whether integers of the user's code change nevertheless: work, or an endless search."""

    @property
    def ends(self) -> Ends:
        return "by-itself" if self.counts else "unknown"


class Unreadable(Hold, frozen=True):
    """Alive, but its state could not be read."""

    NAME = "unreadable"


class Unseen(Hold, frozen=True):
    """It was not observed."""

    NAME = "unseen"
