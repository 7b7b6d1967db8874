"""What holds a rank up by itself: no other rank could end it. Exactly one for each rank that others may wait for."""

from collections.abc import Hashable
from typing import ClassVar, Literal

from msgspec import Struct

from hangdoc.snapshot import AwaitedFile, Holder, Process

Ends = Literal["never", "unknown", "by-itself"]
"""Whether it can end without anybody's help."""


SHORT_SLEEP = 60.0
"""Seconds. Such a sleep is a pause between two attempts; an hour of it is a hang to whoever waits."""


class Hold(Struct, frozen=True):
    """Base of all."""

    NAME: ClassVar[str]
    _ENDS: ClassVar[Ends] = "unknown"

    @property
    def ends(self) -> Ends:
        """Whether it can end without anybody's help, as far as can be told without the patience."""
        return self._ENDS

    @property
    def alike(self) -> Hashable:
        """Equal for ranks that are held up in the same way."""
        return self.NAME


class Dead(Hold, frozen=True):
    """Its process has ended."""

    NAME = "dead"
    _ENDS = "never"
    traced: bool
    """Whether its zombie was seen; else it is missing where it must be."""


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
    """It waits for a person: a prompt, a debugger."""

    NAME = "waiting-input"
    _ENDS = "never"


class InFile(Hold, frozen=True):
    """In a system call on a file or a pipe."""

    NAME = "in-file"
    wchan: str = ""
    file: AwaitedFile | None = None
    abandoned: bool = False
    """A pipe or FIFO of which nobody else holds the other end."""

    @property
    def ends(self) -> Ends:
        return "never" if self.abandoned else "unknown"


class AtLock(Hold, frozen=True):
    """At a lock of its own process, or waiting for the GIL."""

    NAME = "at-lock"
    what: str
    """Who holds it, in words."""
    certainty: float
    threads: tuple[str, ...]
    """What each of the threads does that have to do with it."""
    crosswise: bool = False
    """Threads wait for each other's locks, or one keeps the GIL: nothing in the process can end it."""

    @property
    def ends(self) -> Ends:
        return "never" if self.crosswise else "unknown"


class WaitsForLoader(Hold, frozen=True):
    """In torch's DataLoader, for a batch."""

    NAME = "waiting-data"
    about: str
    """Of the worker, or of the loader where no one worker is to blame."""
    certainty: float
    worker: Process | None = None
    gone: bool = False
    """Whether the worker can't deliver any more."""
    shown: tuple[Process, ...] = ()
    """Workers that say something."""

    @property
    def ends(self) -> Ends:
        return "never" if self.gone else "unknown"

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.about, self.worker is None

    def __str__(self) -> str:
        return f"its worker (pid {self.worker.pid}) {self.about}" if self.worker is not None else self.about


class Asleep(Hold, frozen=True):
    """In a sleep: of a certain length, or again and again between two looks at something."""

    NAME = "asleep"
    polls: bool = False
    seconds: float | None = None
    """How much longer at the most."""

    @property
    def ends(self) -> Ends:
        return "by-itself" if not self.polls and self.seconds is not None and self.seconds <= SHORT_SLEEP else "unknown"


class OnNetwork(Hold, frozen=True):
    """It waits for an answer from outside of the run."""

    NAME = "on-network"
    peer: str | None = None
    """Address and port, where they were seen."""
    silent_seconds: float | None = None
    """Since the last byte on that connection."""


class AtFileLock(Hold, frozen=True):
    """It waits for a lock on a file, which another process holds."""

    NAME = "at-file-lock"
    path: str
    holders: tuple[Holder, ...] = ()


class Serves(Hold, frozen=True):
    """It waits for a request from outside of the run."""

    NAME = "serving"
    _ENDS = "by-itself"
    address: str


class Elsewhere(Hold, frozen=True):
    """It stands still in something that no more is known of: a child process, an event, a queue."""

    NAME = "elsewhere"


class Works(Hold, frozen=True):
    """It does something that counts."""

    NAME = "working"
    _ENDS = "by-itself"
    what: str
    certain: bool = False
    """Whether a number that its loops move on shows it."""

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.what


class Starves(Hold, frozen=True):
    """It fetches its next batch all the time, and none comes."""

    NAME = "starving"


class Busy(Hold, frozen=True):
    """It uses a processor, and nothing shows that it comes on."""

    NAME = "busy"
    counts: bool = False
    """Whether numbers of the user's code move all the same: work, or a search without end."""

    @property
    def ends(self) -> Ends:
        return "by-itself" if self.counts else "unknown"


class Unreadable(Hold, frozen=True):
    """Alive, and nobody could see what it does."""

    NAME = "unreadable"


class Unseen(Hold, frozen=True):
    """Nobody looked at it."""

    NAME = "unseen"
