"""The counts of collectives that NCCL's RAS has of each rank of a communicator, by process.

RAS numbers ranks in their communicator, so they are joined with processes by pid. Of a host that was not observed, or on which
nobody was asked, RAS has an address and a pid.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.snapshot import Host, Machine, RasAnswer, RasCommunicator, RasMissingRank, RasRank


class Member(NamedTuple):
    """A process in a communicator."""

    host: str
    """The name of its host, or, if it was not observed, an address."""
    pid: int
    observed: bool


class MemberCounts(NamedTuple):
    """What a process has launched in a communicator."""

    counts: tuple[int | None, ...]
    """As `RasRank.counts`."""
    launched: int | None
    """As `RasRank.launched`."""
    grew: bool | None
    """Whether it launched more between two readings; None if it was read once."""


class RasGroup(NamedTuple):
    """A communicator, put together of all answers that have it."""

    hash: str
    size: int
    members: dict[Member, MemberCounts]
    missing: tuple[Member, ...] = ()
    """Processes of which RAS has no counts."""
    nameless: int = 0
    """How many of its ranks an answer in text form counts, without saying which processes they are."""


def ras_groups(hosts: Iterable[Host]) -> tuple[RasGroup, ...]:
    """The communicators of all answers, by hash. Of an observed process, what its own host was told counts: no host speaks for
    another. Of the others, the newest answer counts."""
    hosts = tuple(hosts)
    names = _Names(hosts)
    answers = sorted(
        ((host, service.answer) for host in hosts for service in host.ras if isinstance(service.answer, RasAnswer)),
        key=lambda each: each[1].age_seconds,
    )
    made: dict[str, _Group] = {}
    for host, answer in answers:
        for communicator in answer.communicators:
            group = made.setdefault(communicator.hash, _Group(communicator))
            if group.size == communicator.size:
                group.add(host.name, communicator, names, twice=answer.seconds_between is not None)
    return tuple(group.result() for _, group in sorted(made.items()))


class _Group:
    """A communicator of which some answers were read, the newest first."""

    def __init__(self, communicator: RasCommunicator) -> None:
        self.hash, self.size = communicator.hash, communicator.size
        self._members: dict[Member, tuple[str, MemberCounts | None]] = {}
        """With the host that was told so; None for a process without counts."""
        self._nameless = 0

    def add(self, host: str, communicator: RasCommunicator, names: "_Names", *, twice: bool) -> None:
        """Add what a host was told."""
        nameless = 0
        for rank in communicator.ranks:
            counts = MemberCounts(rank.counts, rank.launched, _has_grown(rank) if twice else None)
            nameless += not self._add_member(host, names.member(self.hash, rank), counts)
        for missing in communicator.missing:
            self._add_member(host, names.member(self.hash, missing), None)
        self._nameless = max(self._nameless, nameless)

    def _add_member(self, host: str, member: Member | None, counts: MemberCounts | None) -> bool:
        """Whether the process is known."""
        if member is None:
            return False
        told, _ = self._members.get(member, (None, None))
        if told is None or (member.observed and told != member.host == host):
            self._members[member] = host, counts
        return True

    def result(self) -> RasGroup:
        """What all answers have of it."""
        members = {member: counts for member, (_, counts) in self._members.items() if counts is not None}
        missing = tuple(member for member, (_, counts) in self._members.items() if counts is None)
        return RasGroup(self.hash, self.size, members, missing, self._nameless)


def _has_grown(rank: RasRank) -> bool | None:
    """Whether a count of a rank is higher than before; None if no count is in both readings."""
    pairs = [
        (now, before)
        for now, before in (*zip(rank.counts, rank.counts_before, strict=False), (rank.launched, rank.launched_before))
        if now is not None and before is not None
    ]
    return any(now > before for now, before in pairs) if pairs else None


class _Names:
    """Which process a rank in an answer is."""

    def __init__(self, hosts: tuple[Host, ...]) -> None:
        self._ranks = {(host.name, one.pid) for host in hosts for one in host.processes if one.role == "rank"}
        self._by_answer: dict[tuple[str, int], Member | None] = {}
        """By communicator and rank in it: what the host of the process says; None if two hosts say that it is theirs."""
        self._by_address: dict[tuple[str, int], Member] = {}
        """By address of a host and pid, for processes whose pid is the same in the whole host."""
        for host in hosts:
            for service in host.ras:
                if isinstance(service.answer, RasAnswer):
                    for communicator in service.answer.communicators:
                        self._add_answer(host, communicator)
            self._add_addresses(host)

    def member(self, hash_: str, rank: RasRank | RasMissingRank) -> Member | None:
        """The process; None if the answer does not name one."""
        by_answer = self._by_answer.get((hash_, rank.rank))
        if by_answer is not None:
            return by_answer
        if rank.host is None or rank.pid is None:
            return None
        return self._by_address.get((rank.host, rank.pid)) or Member(rank.host, rank.pid, observed=False)

    def _add_answer(self, host: Host, communicator: RasCommunicator) -> None:
        ranks: tuple[RasRank | RasMissingRank, ...] = (*communicator.ranks, *communicator.missing)
        for rank in ranks:
            if rank.process is not None and (host.name, rank.process) in self._ranks:
                key, member = (communicator.hash, rank.rank), Member(host.name, rank.process, observed=True)
                self._by_answer[key] = member if self._by_answer.get(key, member) == member else None

    def _add_addresses(self, host: Host) -> None:
        machine = host.machine
        if not isinstance(machine, Machine) or host.machine_id is None:
            return
        addresses = [
            address
            for interface in machine.interfaces
            for address in interface.addresses
            if not address.startswith("127.") and address != "::1"
        ]
        for process in host.processes:
            spaces = process.namespaces
            if (
                process.role == "rank"
                and spaces.get("net") == machine.net_namespace
                and spaces.get("pid") == host.machine_id.rpartition(" ")[2]
            ):
                for address in addresses:
                    self._by_address[address, process.pid] = Member(host.name, process.pid, observed=True)
