"""What blocks a run, apart from what holds up one rank by itself (`ranks.holds`): ranks that wait for each other."""

from typing import ClassVar

from hangdoc.diagnose.causes.agreement import Agreement
from hangdoc.diagnose.model import Class, Placed
from hangdoc.diagnose.ranks.holds import Ends, Hold
from hangdoc.diagnose.ranks.stopped import Stop
from hangdoc.snapshot import Frame, Loop, Process


class Cycle(Hold, frozen=True, kw_only=True):
    """Base of those in which each of some ranks waits for another of them: none can end."""

    NAME: ClassVar[str] = "cycle"
    sure: bool = True
    """False where an operation is only concluded, or nobody tells its name."""

    @property
    def ends(self) -> Ends:
        return "never" if self.sure else "unknown"


class LeftLoop(Cycle, frozen=True, kw_only=True):
    """Some ranks have left the loop that others are still in."""

    NAME = "left-loop"
    short: Class
    inside: Class
    loop: Loop
    frame: Frame
    """Of `short`, in the function that has the loop."""


class Subset(Cycle, frozen=True, kw_only=True):
    """Only a part of a group makes a call."""

    NAME = "subset"
    parts: tuple[Class, ...]
    """A class for each point, the smallest first."""
    reason: str


class GroupOrder(Cycle, frozen=True, kw_only=True):
    """Ranks entered the collectives of two groups in opposite order."""

    NAME = "group-order"
    parts: tuple[Class, ...]


class Mismatch(Cycle, frozen=True, kw_only=True):
    """Different calls at one point of the program."""

    NAME = "mismatch"
    parts: tuple[Class, ...]
    reason: str
    """Why some of them are to blame; empty where nothing singles them out."""


class PointToPoint(Cycle, frozen=True, kw_only=True):
    """Sends and receives that do not fit each other, or a peer that is in another operation."""

    NAME = "point-to-point"
    astray: Class | None = None
    """Whose message goes elsewhere, or who is in another operation."""
    waits_for_it: Class | None = None
    parts: tuple[Class, ...] = ()


class Roots(Cycle, frozen=True, kw_only=True):
    """One collective, and ranks that name different roots."""

    NAME = "roots"
    values: Agreement[str, int]


class Tensors(Cycle, frozen=True, kw_only=True):
    """One collective, and ranks that gave different tensors to it."""

    NAME = "tensors"
    values: Agreement[str, int]
    """Type and number of elements."""
    shown: dict[int, str]
    """The tensor of each rank."""


class Threads(Cycle, frozen=True, kw_only=True):
    """Two threads of a rank call collectives of one group: nothing makes their order the same on all ranks."""

    NAME = "threads"
    calls: tuple[tuple[Class, str, str], ...]
    """Ranks with the name of their second thread and what it calls."""


class SameCall(Hold, frozen=True, kw_only=True):
    """All ranks of a group stand in one call, and nobody is missing."""

    NAME = "same-call"


class Rendezvous(Hold, frozen=True, kw_only=True):
    """The run, or a group, has not met yet."""

    NAME = "rendezvous"
    arrived: tuple[Class, ...] = ()
    absent: tuple[int, ...] = ()
    agents: tuple[tuple[Placed, Frame], ...] = ()
    """Launchers that wait for other nodes, where no rank was started yet."""
    starting: bool = False
    """Whether a rank that is absent moves: it may be on its way."""

    @property
    def ends(self) -> Ends:
        return "by-itself" if self.starting else "unknown"


class Apart(Hold, frozen=True, kw_only=True):
    """Some ranks wait in a rendezvous that others have left behind, or never knew of."""

    NAME = "apart"
    parts: tuple[Class, ...]


class Standstill(Hold, frozen=True, kw_only=True):
    """No rank waits for another, and none does anything."""

    NAME = "standstill"


class Spinning(Hold, frozen=True, kw_only=True):
    """Ranks spin in the GPU's driver; whether for a collective or a kernel of their own, the host can't tell."""

    NAME = "gpu-spin"
    _ENDS = "by-itself"


class LauncherStopped(Hold, frozen=True, kw_only=True):
    """The launcher is stopped, and its ranks have ended: nobody collects or restarts them."""

    NAME = "launcher-stopped"
    _ENDS = "never"
    launcher: Process
    stop: Stop
    ended: tuple[int, ...]


class Ended(Hold, frozen=True, kw_only=True):
    """No rank is left, and the process that started them is still there."""

    NAME = "ended"
    launcher: Process
    ranks: tuple[int, ...]
    monitored: bool
    """Whether the launcher looks after its ranks (torchrun's agent does), or they have ended well."""

    @property
    def ends(self) -> Ends:
        return "by-itself" if self.monitored else "never"
