"""The processes of one run, before anything is concluded about its ranks."""

import msgspec

from hangdoc.reasoning.model.run import Placed
from hangdoc.snapshot import RankIdentity


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
    copies: dict[int, Placed] = msgspec.field(default_factory=dict)
    """Processes that were forked from ranks and have their variables, by rank."""
    left_over: int = 0
    """Above 0 for the ranks of an earlier run of the same name; counts them."""

    @property
    def processes(self) -> list[Placed]:
        """Its ranks and its launchers."""
        return [*self.members, *self.launchers]

    @property
    def identities(self) -> list[RankIdentity]:
        """Of its ranks."""
        return [process.identity for _, process in self.members if process.identity is not None]

    @property
    def numbers(self) -> set[int]:
        """Its ranks."""
        return {who.rank for who in self.identities}

    @property
    def by_rank(self) -> dict[int, Placed]:
        """The process of each rank."""
        return {who.rank: place for who, place in zip(self.identities, self.members, strict=True)}

    @property
    def stores(self) -> set[int]:
        """Ports of its stores, as its variables name them."""
        return {who.master_port for who in self.identities if who.master_port is not None}
