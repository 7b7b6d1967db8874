"""What each rank has launched in NCCL's communicators, by NCCL's own counts: for calls that torch does not record.

These are replays of CUDA graphs, and all calls of a torch without a record and of libraries that call NCCL themselves. A count
has no operation and no line, so it only shows which ranks have launched less.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hangdoc.reasoning.ledger.from_ras import RasGroup
from hangdoc.snapshot import Communicator, Communicators, FlightRecorder, Process


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
