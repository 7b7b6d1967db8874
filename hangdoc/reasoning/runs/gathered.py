"""The processes of one run, before anything is concluded about its ranks."""

from collections.abc import Iterable

import msgspec

from hangdoc.reasoning.model import Placed


def numbers_of(members: Iterable[Placed]) -> set[int]:
    """The ranks that some processes are."""
    return {process.identity.rank for _, process in members if process.identity is not None}


class Gathered(msgspec.Struct):
    """The processes of one run."""

    name: str
    """Equal for processes that belong together by their variables or their launch line."""
    master: str | None = None
    run_id: str | None = None
    alone_on: str | None = None
    """The host that all of the run is on, where its meeting point is a loopback address."""
    members: list[Placed] = msgspec.field(default_factory=list)
    """Ranks with an identity."""
    launchers: list[Placed] = msgspec.field(default_factory=list)
    zombies: list[Placed] = msgspec.field(default_factory=list)
    """Ended processes that may have been ranks of this run."""
    left_over: int = 0
    """Above 0 for the ranks of an earlier run of the same name; counts them."""

    @property
    def numbers(self) -> set[int]:
        """Its ranks."""
        return numbers_of(self.members)

    @property
    def by_rank(self) -> dict[int, Placed]:
        """The process of each rank."""
        return {
            process.identity.rank: (host, process) for host, process in self.members if process.identity is not None
        }

    @property
    def stores(self) -> set[int]:
        """Ports of its stores, as its variables name them."""
        identities = (process.identity for _, process in self.members)
        return {who.master_port for who in identities if who is not None and who.master_port is not None}
