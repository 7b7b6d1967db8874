"""One value per rank (or node), and which ones differ from the majority. Every comparison between ranks uses it."""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from hangdoc.diagnosis import Evidence

Value = TypeVar("Value", covariant=True)


Member = TypeVar("Member", int, str)


class Agreement(msgspec.Struct, Generic[Value, Member], frozen=True):
    """The values, and the members that have them."""

    values: tuple[tuple[Value, tuple[Member, ...]], ...]
    """Each value with the members that have it, ascending; the most common value first."""

    @property
    def differs(self) -> bool:
        """Whether there are two values."""
        return len(self.values) > 1

    @property
    def has_majority(self) -> bool:
        """Whether one value is more common than each other one."""
        return not self.differs or len(self.values[0][1]) > len(self.values[1][1])

    @property
    def odd(self) -> tuple[Member, ...]:
        """The members that differ from the majority; all members if there is no majority."""
        if not self.differs:
            return ()
        return tuple(member for _, members in self.values[1 if self.has_majority else 0 :] for member in members)

    def parts_like(self, other: "Agreement[object, Member]") -> bool:
        """Whether the same members have the same value as in another one."""
        mine, theirs = ({members for _, members in each.values} for each in (self, other))
        return mine == theirs


def compare_values(values: Mapping[Member, Value]) -> Agreement[Value, Member]:
    """The members by their values."""
    by_value: dict[Value, list[Member]] = {}
    for member, value in sorted(values.items()):
        by_value.setdefault(value, []).append(member)
    ordered = sorted(by_value.items(), key=lambda item: (-len(item[1]), item[1][0]))
    return Agreement(tuple((value, tuple(members)) for value, members in ordered))


# --- amounts ----------------------------------------------------------------------------------------------------------


class Difference(msgspec.Struct, frozen=True):
    """One thing of which two ranks have different amounts."""

    fewer: int
    more: int
    evidence: tuple[Evidence, ...]
    unit: str = ""
    """`batches` if only their number is known; `files` for units that hold many batches each."""
    weight: float = 0.5
    """How strongly it shows that the amount of data differs, 0 to 1."""
    of_data: bool = True
    """False for a number by which a loop over numbers goes, if neither its name nor anything else says that it counts data."""
