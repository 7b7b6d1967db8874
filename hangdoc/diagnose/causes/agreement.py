"""One value of each rank (or node), and who is the odd one out. The one home of every comparison between ranks."""

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value", covariant=True)
Member = TypeVar("Member", int, str)


class Agreement(NamedTuple, Generic[Value, Member]):
    """Which values there are, and who has which."""

    values: tuple[tuple[Value, tuple[Member, ...]], ...]
    """Each value with those that have it, ascending; the commonest value first."""

    @property
    def differs(self) -> bool:
        """Whether there are two values."""
        return len(self.values) > 1

    @property
    def odd(self) -> tuple[Member, ...]:
        """Those that differ from the most; all where no value is commoner than another: nobody knows who is right."""
        if not self.differs:
            return ()
        tied = len(self.values[0][1]) == len(self.values[1][1])
        return tuple(member for _, members in self.values[0 if tied else 1 :] for member in members)


def agreement(values: Mapping[Member, Value]) -> Agreement[Value, Member]:
    """Compare the values of some members."""
    found: dict[Value, list[Member]] = {}
    for member, value in sorted(values.items()):
        found.setdefault(value, []).append(member)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[1][0]))
    return Agreement(tuple((value, tuple(members)) for value, members in ordered))
