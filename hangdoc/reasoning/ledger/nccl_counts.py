"""What each rank has launched in NCCL's communicators, by NCCL's own counts and those of its RAS: for calls that torch does not
record.

These are replays of CUDA graphs, and all calls of a torch without a record and of libraries that call NCCL themselves. A count
has no operation and no line, so it only shows which ranks have launched less.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import structs

from hangdoc.diagnosis import Operation
from hangdoc.phrases import do
from hangdoc.reasoning.model.rank import Rank, Wait
from hangdoc.reasoning.ranks.on_card import may_wait_for_card
from hangdoc.snapshot import (
    Communicator,
    Communicators,
    FlightRecorder,
    Host,
    Machine,
    Process,
    RasAnswer,
    RasCommunicator,
    RasMissingRank,
    RasRank,
)
from hangdoc.torch_facts import call_names


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
    """The communicators of all answers, by hash. RAS numbers ranks in their communicator, so they are joined with
    processes by pid. Of an observed process, what its own host was told counts: no host speaks for another. Of the
    others, the newest answer counts."""
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


# --- uneven counts ----------------------------------------------------------------------------------------------------


class Launches(NamedTuple):
    """A communicator in which some ranks have launched less than others, and none launches anything."""

    launched: dict[int, int]
    """By rank: collectives, or kernels if it is used in CUDA graphs."""
    graphs: bool
    unobserved: dict[tuple[str, int], int]
    """The same of processes that were not observed, by host and pid."""

    @property
    def behind(self) -> tuple[int, ...]:
        """The ranks that have launched the least."""
        least = min(self.launched.values())
        return tuple(sorted(rank for rank, count in self.launched.items() if count == least))


def find_uneven_by_ras(groups: Iterable[RasGroup], ranks: Mapping[tuple[str, int], int]) -> list[Launches]:
    """The same by the answers of RAS, which also needs no right to read a process. `ranks`: the rank of each process, by host and
    pid."""
    found = []
    for group in groups:
        if len(group.members) != group.size or any(counts.grew is not False for counts in group.members.values()):
            continue
        sums = {
            member: sum(count for count in counts.counts if count is not None)
            for member, counts in group.members.items()
        }
        if len(set(sums.values())) > 1 and all(None not in counts.counts for counts in group.members.values()):
            at = {(member.host, member.pid): number for member, number in sums.items()}
            seen = {ranks[place]: number for place, number in at.items() if place in ranks}
            unobserved = {place: number for place, number in at.items() if place not in ranks}
            found.append(Launches(seen, graphs=False, unobserved=unobserved))
    return found


def find_uneven(processes: Mapping[int, Process]) -> list[Launches]:
    """The communicators of some ranks whose counts differ, and did not change in the window. Communicators of which a rank was
    not observed are left out."""
    members: dict[tuple[int, int], dict[int, Communicator]] = {}
    for rank, process in processes.items():
        if isinstance(process.communicators, Communicators):
            for each in process.communicators.communicators:
                members.setdefault((each.hash, each.size), {})[rank] = each
    found = []
    for (_, size), by_rank in members.items():
        graphs = any(each.graphs for each in by_rank.values())
        if len(by_rank) != size or (graphs and _transfers(processes[rank] for rank in by_rank)):
            continue  # sends and receives are kernels too, and each rank may launch another number of them
        if all(map(_rests, by_rank.values())):
            launches = Launches({rank: _launched(each, graphs=graphs) for rank, each in by_rank.items()}, graphs, {})
            if len(set(launches.launched.values())) > 1:
                found.append(launches)
    return found


def _launched(communicator: Communicator, *, graphs: bool) -> int:
    return communicator.launches if graphs else sum(communicator.counts)


def _rests(communicator: Communicator) -> bool:
    before = communicator.launches_before, communicator.counts_before
    return before == (communicator.launches, communicator.counts)


def _transfers(processes: Iterable[Process]) -> bool:
    return any(
        group.transfers
        for process in processes
        if isinstance(process.recorder, FlightRecorder)
        for group in process.recorder.groups
    )


# --- ranks that wait for the others' launches -------------------------------------------------------------------------


def waiting_for_launches(ranks: dict[int, Rank]) -> dict[int, Rank]:
    """The ranks, of which those wait that are busy at one line, as in the driver of a card, and have launched more in a
    communicator than ranks that wait for no other one. None of these has launched anything in the window."""
    found = dict(ranks)
    uneven = find_uneven({number: rank.process for number, rank in ranks.items() if rank.process is not None})
    for launches in uneven:
        if any(ranks[number].waits for number in launches.behind):
            continue  # it is not known for what these wait, so it may be for the others
        for number in launches.launched.keys() - set(launches.behind):
            rank = ranks[number]
            if (
                (not rank.waits or rank.spins)
                and rank.process is not None
                and may_wait_for_card(rank.process, rank.thread)
            ):
                found[number] = _waiting(rank, launches)
    return found


def _waiting(rank: Rank, launches: Launches) -> Rank:
    operation = Operation(op="wait", origin=call_names.GPU_WAIT, backend="nccl")
    number, members = launches.launched[rank.rank], tuple(sorted(launches.launched))
    wait = Wait("collective", operation, members, sure=False, number=number)
    why = f"its card waits for what {do(launches.behind, 'has', 'have')} not launched"
    return structs.replace(
        rank, label="blocked", state="in-collective", why=why, wait=wait, moving=False, work=None, hold=None
    )
