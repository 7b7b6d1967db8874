"""What blocks a run, apart from what blocks a single rank (`holds`): ranks that wait for each other."""

from typing import ClassVar

from hangdoc.reasoning.model.agreement import Agreement, Difference
from hangdoc.reasoning.model.holds import Ends, Hold, Stopped
from hangdoc.reasoning.model.ledger import Call, GroupCalls
from hangdoc.reasoning.model.rank import Class
from hangdoc.snapshot import Frame, Loop, Process


class Cycle(Hold, frozen=True, kw_only=True):
    """Base class of cycles: each of some ranks waits for another of them, so none can continue."""

    NAME: ClassVar[str] = "cycle"
    ends: Ends = "never"

    @property
    def sure(self) -> bool:
        """False if an operation was inferred, or its name is unknown."""
        return self.ends == "never"


class LeftLoop(Cycle, frozen=True, kw_only=True):
    """Some ranks have left a loop that others are still inside."""

    NAME = "left-loop"
    short: Class
    inside: Class
    loop: Loop
    skippable: bool = False
    """Whether one side may instead have skipped the call of the other, which is only made in some iterations of the loop around:
    no counter of that is known, and no statement ends the inner loop early."""
    differences: tuple[Difference, ...] = ()
    """The data of which `short` visibly has less than `inside`, the strongest difference first."""
    begins_differ: bool = False
    """Whether the two began the loop at different values of its counter."""
    ends_differ: bool = False
    """Whether a loop over numbers ends at a lower one on `short`."""
    met: Call | None = None
    """What a rank of `inside` called where the present call of `short` met it before: each role has a loop of its own around this
    one, and `short` is in the next round of its own."""


class Subset(Cycle, frozen=True, kw_only=True):
    """Only some ranks of a group make a call."""

    NAME = "subset"
    parts: tuple[Class, ...]
    """One class for each call, the smallest first."""
    reason: str
    """Which ranks made the call, or did not, and in which call one side waits."""
    others: tuple[Class, ...] = ()
    """Classes whose call the reason does not name."""
    asked: str | None = None
    """The condition under which a framework makes the call, if it is the framework's."""
    group: GroupCalls | None = None
    """The group of the call, if the calls of its members show who left it out."""
    loop: Loop | None = None
    """The loop in some rounds of which `others` left the call out, if the record shows that the rest made it in each."""
    perhaps_later: bool = False
    """Whether ranks that did not make the call may make it after the one in which they wait: only the record shows that they
    made both before, and their lines do not show that they have passed it."""


class HoldsLock(Cycle, frozen=True, kw_only=True):
    """A rank holds a lock on a file and waits for the ranks that need it."""

    NAME = "holds-lock"
    holder: Class
    needs: Class
    path: str


class OutsideBarrier(Cycle, frozen=True, kw_only=True):
    """Only one rank has not come to a barrier in shared memory, and it waits for ranks that are in it. How many the barrier waits
    for is not known."""

    NAME = "outside-barrier"
    absent: Class
    inside: Class


class OwesReply(Cycle, frozen=True, kw_only=True):
    """A rank waits in a call, although another one waits at a connection that only the thread in that call can serve."""

    NAME = "owes-reply"
    owes: Class
    needs: Class


class GroupOrder(Cycle, frozen=True, kw_only=True):
    """Ranks entered the collectives of several groups in conflicting order."""

    NAME = "group-order"
    parts: tuple[Class, ...]
    reason: str = ""
    """Why some of them are to blame; empty if nothing singles them out."""


class Mismatch(Cycle, frozen=True, kw_only=True):
    """Different calls at one point of the program."""

    NAME = "mismatch"
    parts: tuple[Class, ...]
    reason: str
    """Why some of them are to blame; empty if nothing singles them out."""
    met_before: bool = False
    """Whether such calls met before, at lines of their own: then the branches around them are no reason."""


class PointToPoint(Cycle, frozen=True, kw_only=True):
    """Sends and receives that do not match, or a peer that is in another operation."""

    NAME = "point-to-point"
    parts: tuple[Class, ...]
    pair: tuple[Class, Class] | None = None
    """The ranks that send to a different rank or are in another operation, and ranks that wait for them; None if all are to
    blame."""
    left: LeftLoop | None = None
    """The loop that the former have left and the latter are still inside. Nothing shows that they left it before its end."""


class Unposted(Cycle, frozen=True, kw_only=True):
    """Sends and receives of batch_isend_irecv, some of which meet none."""

    NAME = "unposted"
    parts: tuple[Class, ...]
    unmatched: tuple[tuple[int, int, bool], ...]
    """(sender, receiver, whether it is the send that is missing)."""
    peers: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    """Of each rank, those to which it sends and those from which it receives."""


class Roots(Cycle, frozen=True, kw_only=True):
    """One collective, called with different roots."""

    NAME = "roots"
    values: Agreement[str, int]


class Tensors(Cycle, frozen=True, kw_only=True):
    """One collective, called with tensors that do not match."""

    NAME = "tensors"
    values: Agreement[str, int]
    """Type and number of elements."""
    shown: dict[int, str]
    """The tensor of each rank."""
    op: str | None = None
    """The collective, if the records of the ranks show the tensors."""
    earlier: int | None = None
    """Its number, if the ranks have come out of it: a card checks no sizes, and later calls met others than their own."""


class Threads(Cycle, frozen=True, kw_only=True):
    """Two threads of a rank call collectives of one group: nothing makes their order the same on all ranks."""

    NAME = "threads"
    calls: tuple[tuple[Class, str, str], ...]
    """Ranks with the name of their second thread and what it calls."""


class SameCall(Hold, frozen=True, kw_only=True):
    """All ranks of a group wait in one call, and no rank is missing."""

    NAME = "same-call"


class Rendezvous(Hold, frozen=True, kw_only=True):
    """The rendezvous of the run, or of a group, is not complete. If an absent rank is making progress, it may still arrive."""

    NAME = "rendezvous"
    arrived: tuple[Class, ...]


class AgentsWait(Hold, frozen=True, kw_only=True):
    """Launchers wait for other nodes, and no rank has started yet."""

    NAME = "rendezvous"
    agents: tuple[tuple[Process, Frame], ...]


class Apart(Hold, frozen=True, kw_only=True):
    """Some ranks wait in a rendezvous that others have passed or never enter."""

    NAME = "apart"
    parts: tuple[Class, ...]


class Standstill(Hold, frozen=True, kw_only=True):
    """No rank waits for another, but none makes progress."""

    NAME = "standstill"


class Idle(Hold, frozen=True, kw_only=True):
    """Ranks that have nothing to do: they wait for requests, and the others, if any, for what the request of these will be."""

    NAME = "idle"
    ends: Ends = "by-itself"
    receives: str
    """What the first ones do: `waiting for requests from pid 7 (python)`."""
    sure: bool = True
    """False if they poll, and nothing shows whether somebody makes what they poll for."""
    own_store: bool = False
    """Whether all ranks only ask a store of the run, of which they and their launchers are the only clients now."""

    def __str__(self) -> str:
        return self.receives


class LaunchedNotFinished(Hold, frozen=True, kw_only=True):
    """All ranks that a call needs have made it, and their cards do not finish it. It ends by itself if one of the cards works."""

    NAME = "launched-not-finished"
    group: str | None
    number: int
    call: Call
    pair: tuple[int, int] | None = None
    """Of a send or receive, the rank that made it and its peer."""
    cards_wait: bool = False
    """Whether the meters of all these cards show that they wait, and none computes before the call."""


class Spinning(Hold, frozen=True, kw_only=True):
    """Ranks spin in the GPU driver. The host cannot tell whether for a collective or for a kernel of their own."""

    NAME = "gpu-spin"


class LauncherStopped(Hold, frozen=True, kw_only=True):
    """The launcher is stopped, and its ranks have ended: no process collects or restarts them."""

    NAME = "launcher-stopped"
    ends: Ends = "never"
    launcher: Process
    stop: Stopped
    ended: tuple[int, ...]


class Ended(Hold, frozen=True, kw_only=True):
    """All ranks are dead, but the process that started them is alive. It ends by itself if the launcher monitors its ranks (as
    torchrun's agent does), or if they have ended without an error."""

    NAME = "ended"
    launcher: Process
    ranks: tuple[int, ...]
