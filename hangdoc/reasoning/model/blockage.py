"""What blocks some ranks of a run, and what follows from that."""

from functools import cached_property

from msgspec import Struct

from hangdoc.diagnosis import Severity
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.holds import Ends, Hold, Unreadable, Unseen
from hangdoc.reasoning.model.kinds import Cycle
from hangdoc.reasoning.model.rank import Class, numbers_of

GRAVITY: dict[Ends, int] = {"never": 0, "unknown": 1, "by-itself": 2}
"""The gravest first."""
UNOBSERVED = (Unseen, Unreadable)
"""Kinds of blockages whose ranks were not observed."""


class Blockage(Struct, frozen=True, dict=True):
    """What blocks some ranks."""

    kind: Hold
    awaited: tuple[Class, ...]
    """The ranks that all others wait for: the end of the chains of waiting ranks. Empty if they were not observed."""
    culprits: tuple[int, ...]
    waiting: tuple[Class, ...] = ()
    """All other ranks that it blocks and that made no progress."""
    age_seconds: float | None = None
    renewed: bool = False
    """Whether its age is that of the last thing that came for the awaited rank, and other ranks have waited longer."""
    old_from_seconds: float = float("inf")
    """The age from which it is old: the patience, or what a rank that polls needs for a few attempts."""
    given_seconds: float | None = None
    """The timeout of the ranks that wait, if it makes that age longer than usual."""
    under_way: bool = False
    """Whether data between its ranks may still be in transit."""
    after_the_fact: bool = False
    """Whether it is known from dumps. Once the timeout of a call has passed, torch ends the run."""
    cause: Cause | None = None
    idle: "Blockage | None" = None
    """Of a dead rank, the idle ranks for which all that wait also wait: only the next request needs the dead one."""

    @property
    def old(self) -> bool:
        """Whether it has lasted so long that it is not taken for a wait that may still end."""
        return self.age_seconds is not None and self.age_seconds >= self.old_from_seconds

    @property
    def hung_from_seconds(self) -> float | None:
        """The age from which it is a hang; None if it is one, or if its age does not decide that."""
        decides = self.ends == "unknown" and self.age_seconds is not None and not isinstance(self.kind, UNOBSERVED)
        return self.old_from_seconds if decides and not self.old else None

    @property
    def ends(self) -> Ends:
        """Whether it can end without help, by its cause or else its kind. A cycle with data in transit may be none: a rank
        continues with its next call as soon as the kernel has accepted its bytes."""
        if self.cause is None and self.under_way and isinstance(self.kind, Cycle):
            return "unknown"
        return (self.cause.ends if self.cause is not None else None) or self.kind.ends

    @property
    def blamed(self) -> tuple[int, ...]:
        """The culprits, by its cause if that names other ones."""
        named = self.cause.culprits if self.cause is not None else None
        return self.culprits if named is None else named

    @cached_property
    def victims(self) -> tuple[int, ...]:
        """Ranks that only wait."""
        all_wait = isinstance(self.kind, Cycle) or not self.culprits
        waiting = (*self.waiting, *(alike for alike in self.awaited if all_wait or alike.first.waits))
        return tuple(sorted(set(numbers_of(waiting)) - set(self.blamed)))

    @property
    def severity(self) -> Severity:
        """By the contract: what never ends is an error at once, anything else once it is older than the patience. What could
        not be observed is an error only if torch has ended the run for it."""
        if isinstance(self.kind, UNOBSERVED):
            return "error" if self.after_the_fact and self.old else "warning"
        return "error" if self.ends == "never" or (self.ends == "unknown" and self.old) else "info"

    @property
    def about(self) -> Hold | Cause:
        """What the finding reports."""
        return self.cause if self.cause is not None else self.kind
