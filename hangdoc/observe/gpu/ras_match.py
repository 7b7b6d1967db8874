"""Finds the observed processes in an answer of RAS, which names ranks by the address of their host and their inner pid.

An answer may be about another job of the same user, which listens on the same port. So it counts only if it names an observed
process, or if nobody else listens there.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from hangdoc.observe.access.observation import Target
from hangdoc.observe.gpu.ras_counts import is_uniform
from hangdoc.observe.kernel.interfaces import interfaces
from hangdoc.procfs import ProcError, ProcFS, inner_pid
from hangdoc.snapshot import RasAnswer, RasCommunicator, RasMissingRank, RasRank

R = TypeVar("R", RasRank, RasMissingRank)
_MOST_KEPT = 32_768
"""Ranks of all communicators that are kept."""


class LocalRanks(NamedTuple):
    """The observed ranks of one user in one network namespace, as RAS names them."""

    addresses: frozenset[str]
    """Of the namespace."""
    pids: dict[int, int]
    """From the pid in its own pid namespace to the one here. Without those that two of them have."""

    def process(self, host: str | None, pid: int | None) -> int | None:
        """The observed process that an answer names so."""
        return self.pids.get(pid) if host in self.addresses and pid is not None else None


def find_local_ranks(proc: ProcFS, namespace_file: str | None, targets: Iterable[Target]) -> LocalRanks:
    """What RAS calls these ranks, which share a network namespace. Raises OSError."""
    inner: dict[int, int] = {}
    for target in targets:
        try:
            inner[target.pid] = inner_pid(proc, target.pid)
        except ProcError:  # it has ended
            continue
    times = Counter(inner.values())
    addresses = {address for interface in interfaces(namespace_file) for address in interface.addresses}
    return LocalRanks(
        frozenset(address.partition("%")[0] for address in addresses),
        {mine: pid for pid, mine in inner.items() if times[mine] == 1},
    )


def with_processes(answer: RasAnswer, local: LocalRanks) -> RasAnswer:
    """The answer with the observed process of each rank."""
    return replace(
        answer,
        communicators=tuple(
            replace(
                communicator,
                ranks=tuple(_with_process(rank, local) for rank in communicator.ranks),
                missing=tuple(_with_process(rank, local) for rank in communicator.missing),
            )
            for communicator in answer.communicators
        ),
    )


def _with_process(rank: R, local: LocalRanks) -> R:
    process = local.process(rank.host, rank.pid)
    return replace(rank, process=process) if process is not None else rank


def processes_in(communicators: Iterable[RasCommunicator]) -> Iterator[int]:
    """The observed processes that an answer names."""
    for communicator in communicators:
        ranks: tuple[RasRank | RasMissingRank, ...] = (*communicator.ranks, *communicator.missing)
        for rank in ranks:
            if rank.process is not None:
                yield rank.process


def with_others(answer: RasAnswer, other: RasAnswer) -> RasAnswer:
    """The answer with the communicators that only another answer has: that of another job."""
    hashes = {communicator.hash for communicator in answer.communicators}
    more = tuple(communicator for communicator in other.communicators if communicator.hash not in hashes)
    return replace(answer, communicators=(*answer.communicators, *more), left_out=answer.left_out + other.left_out)


def shortened(answer: RasAnswer) -> RasAnswer:
    """The answer without communicators in which no observed process is and nothing differs, and with at most so many ranks."""
    kept: list[RasCommunicator] = []
    left = _MOST_KEPT
    for communicator in sorted(answer.communicators, key=_is_elsewhere):
        size = len(communicator.ranks) + len(communicator.missing)
        if size > left:
            problem = f"the answer names more than {_MOST_KEPT:,} ranks, and the rest is left out"
            answer = replace(answer, problems=(*answer.problems, problem))
            break
        if _is_elsewhere(communicator) and is_uniform(communicator):
            continue
        left -= size
        kept.append(communicator)
    out = len(answer.communicators) - len(kept)
    return replace(answer, communicators=tuple(kept), left_out=answer.left_out + out)


def _is_elsewhere(communicator: RasCommunicator) -> bool:
    return not any(True for _ in processes_in((communicator,)))


def counts_for(answer: RasAnswer, pids: Collection[int]) -> bool:
    """Whether an answer, which may be another job's, is about one of these processes. One in text form names only some ranks, and
    of a healthy job none."""
    return not answer.communicators or any(pid in pids for pid in processes_in(answer.communicators))
