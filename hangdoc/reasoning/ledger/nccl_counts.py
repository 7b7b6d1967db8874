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
    Process,
    RasAnswer,
    RasRank,
)
from hangdoc.torch_facts import call_names


class Member(NamedTuple):
    """A process in a communicator."""

    host: str
    """The name of its host, or an address if the process is not among the observed ranks."""
    pid: int
    observed: bool


class MemberCounts(NamedTuple):
    """What a process has launched in a communicator."""

    counts: tuple[int | None, ...]
    """As `RasRank.counts`."""
    grew: bool | None
    """Whether it launched more between two readings; None if it was read once."""


class RasGroup(NamedTuple):
    """A communicator, put together of all answers that have it."""

    size: int
    members: dict[Member, MemberCounts]
    """The processes of which an answer has counts."""


def ras_groups(hosts: Iterable[Host]) -> tuple[RasGroup, ...]:
    """The communicators of all answers, by hash. RAS numbers ranks in their communicator, so they are joined with processes by
    pid. Of an observed process, what its own host was told counts: no host speaks for another. Of the others, the newest answer
    counts."""
    hosts = tuple(hosts)
    claims = _claimed_ranks(hosts)
    answers = sorted(
        ((host, service.answer) for host in hosts for service in host.ras if isinstance(service.answer, RasAnswer)),
        key=lambda each: each[1].age_seconds,
    )
    groups: dict[str, RasGroup] = {}
    asking_hosts: dict[tuple[str, Member], str] = {}  # which host was told the counts of a member
    for host, answer in answers:
        for communicator in answer.communicators:
            group = groups.setdefault(communicator.hash, RasGroup(communicator.size, {}))
            for rank in communicator.ranks if group.size == communicator.size else ():
                member = claims.get((communicator.hash, rank.rank)) or _far_member(rank)
                if member is None:
                    continue
                before = asking_hosts.get((communicator.hash, member))
                if before is None or (member.observed and before != member.host == host.name):
                    asking_hosts[communicator.hash, member] = host.name
                    grew = _has_grown(rank) if answer.seconds_between is not None else None
                    group.members[member] = MemberCounts(rank.counts, grew)
    return tuple(group for _, group in sorted(groups.items()))


def _has_grown(rank: RasRank) -> bool | None:
    """Whether a count of a rank is higher than before; None if no count is in both readings."""
    pairs = [
        (now, before)
        for now, before in zip(rank.counts, rank.counts_before, strict=False)
        if now is not None and before is not None
    ]
    return any(now > before for now, before in pairs) if pairs else None


def _claimed_ranks(hosts: Iterable[Host]) -> dict[tuple[str, int], Member | None]:
    """By communicator and rank in it, the observed process that it is: what the host of the process says; None if two hosts say
    that it is theirs."""
    claims: dict[tuple[str, int], Member | None] = {}
    for host in hosts:
        pids = {process.pid for process in host.processes if process.role == "rank"}
        answers = [service.answer for service in host.ras if isinstance(service.answer, RasAnswer)]
        for communicator in (communicator for answer in answers for communicator in answer.communicators):
            for rank in communicator.ranks:
                if rank.process is not None and rank.process in pids:
                    key, member = (communicator.hash, rank.rank), Member(host.name, rank.process, observed=True)
                    claims[key] = member if claims.get(key, member) == member else None
    return claims


def _far_member(rank: RasRank) -> Member | None:
    """A process on a host that was not observed or not asked; None if the answer does not name one."""
    return Member(rank.host, rank.pid, observed=False) if rank.host is not None and rank.pid is not None else None


# --- uneven counts ----------------------------------------------------------------------------------------------------


class Launches(NamedTuple):
    """A communicator in which some ranks have launched less than others, and none launches anything."""

    launched: dict[int, int]
    """By rank: collectives, or kernels if it is used in CUDA graphs."""
    graphs: bool
    unobserved: dict[tuple[str, int], int]
    """The same of other processes, by address of their host and pid."""

    @property
    def behind(self) -> tuple[int, ...]:
        """The ranks that have launched the least."""
        least = min(self.launched.values())
        return tuple(sorted(rank for rank, count in self.launched.items() if count == least))


def find_uneven_by_ras(groups: Iterable[RasGroup], ranks: Mapping[tuple[str, int], int]) -> list[Launches]:
    """The same by the answers of RAS, which also needs no right to read a process. `ranks`: the rank of each process, by host and
    pid."""
    uneven = []
    for group in groups:
        certain = all(counts.grew is False and None not in counts.counts for counts in group.members.values())
        if len(group.members) != group.size or not certain:
            continue
        sums = {(member.host, member.pid): sum(filter(None, counts.counts)) for member, counts in group.members.items()}
        if len(set(sums.values())) > 1:
            launched = {ranks[place]: number for place, number in sums.items() if place in ranks}
            unobserved = {place: number for place, number in sums.items() if place not in ranks}
            uneven.append(Launches(launched, graphs=False, unobserved=unobserved))
    return uneven


def find_uneven(processes: Mapping[int, Process]) -> list[Launches]:
    """The communicators of some ranks whose counts differ, and did not change in the window. Communicators of which a rank was
    not observed are left out."""
    members: dict[tuple[int, int], dict[int, Communicator]] = {}
    for rank, process in processes.items():
        if isinstance(process.communicators, Communicators):
            for communicator in process.communicators.communicators:
                members.setdefault((communicator.hash, communicator.size), {})[rank] = communicator
    uneven = []
    for (_, size), by_rank in members.items():
        graphs = any(each.graphs for each in by_rank.values())
        if len(by_rank) != size or (graphs and _transfers(processes[rank] for rank in by_rank)):
            continue  # sends and receives are kernels too, and each rank may launch another number of them
        if all(map(_rests, by_rank.values())):
            launches = Launches({rank: _launched(each, graphs=graphs) for rank, each in by_rank.items()}, graphs, {})
            if len(set(launches.launched.values())) > 1:
                uneven.append(launches)
    return uneven


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
    concluded = dict(ranks)
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
                concluded[number] = _waiting(rank, launches)
    return concluded


def _waiting(rank: Rank, launches: Launches) -> Rank:
    operation = Operation(op="wait", origin=call_names.GPU_WAIT, backend="nccl")
    number, members = launches.launched[rank.rank], tuple(sorted(launches.launched))
    wait = Wait("collective", operation, members, sure=False, number=number)
    why = f"its card waits for what {do(launches.behind, 'has', 'have')} not launched"
    return structs.replace(
        rank, label="blocked", state="in-collective", why=why, wait=wait, moving=False, work=None, hold=None
    )
