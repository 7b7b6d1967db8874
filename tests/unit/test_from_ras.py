"""What RAS counts, joined with the processes of one host and of several."""

from typing import Any

from hangdoc.reasoning.ledger.nccl_counts import Member, MemberCounts, RasGroup, ras_groups
from hangdoc.snapshot import (
    Host,
    Ras,
    RasAnswer,
    RasCommunicator,
    RasMissingRank,
    RasRank,
)
from tests.unit.builders import rank


def host(name: str, *services: Ras) -> Host:
    """A host with ranks of the pids 100 and 101."""
    processes = tuple(rank(number, pid=100 + number) for number in range(2))
    return Host(
        name=name, taken_at="", window_seconds=1, elapsed_seconds=1, processes=processes, ras=services
    )  # fmt: skip


def service(*communicators: RasCommunicator, between: float | None = 2.0, age: float = 0.0) -> Ras:
    answer = RasAnswer(
        nccl_version="2.29.7", form="json", communicators=communicators, seconds_between=between, age_seconds=age
    )
    return Ras(namespace="net:[1]", address="localhost:28028", processes=(100,), answer=answer)


def told(number: int, now: int, before: int | None = None, **more: Any) -> RasRank:
    counts_before = (0, 0, 0, 0, before) if before is not None else ()
    return RasRank(rank=number, counts=(0, 0, 0, 0, now), counts_before=counts_before, **more)


def communicator(*ranks: RasRank, missing: tuple[RasMissingRank, ...] = (), size: int = 2) -> RasCommunicator:
    return RasCommunicator(hash="0" * 15 + "7", size=size, ranks=ranks, missing=missing)


def only(*hosts: Host) -> RasGroup:
    (group,) = ras_groups(hosts)
    return group


def counts(now: int, grew: bool | None) -> MemberCounts:
    return MemberCounts((0, 0, 0, 0, now), grew)


def test_processes_of_the_host_and_of_one_that_was_not_observed() -> None:
    here = told(0, 12, 12, host="10.0.0.1", pid=7, process=100), told(1, 11, 10, host="10.0.0.2", pid=55)
    group = only(host("a", service(communicator(*here))))
    assert group.members == {
        Member("a", 100, observed=True): counts(12, False),
        Member("10.0.0.2", 55, observed=False): counts(11, True),
    }
    assert group.size == 2


def test_one_reading_says_nothing_of_growth() -> None:
    group = only(host("a", service(communicator(told(0, 12, process=100, host="10.0.0.1", pid=7)), between=None)))
    assert group.members == {Member("a", 100, observed=True): counts(12, None)}
    without_before = communicator(told(0, 12, process=100, host="10.0.0.1", pid=7))
    assert only(host("a", service(without_before))).members[Member("a", 100, observed=True)].grew is None


def test_ranks_without_a_process_or_counts() -> None:
    """Ranks that a text answer does not name, and missing ones."""
    mine = told(0, 3, 3, host="10.0.0.1", pid=7, process=100)
    gone = RasMissingRank(rank=1, host="10.0.0.1", pid=8, process=101, unresponsive=True)
    group = only(host("a", service(communicator(mine, RasRank(rank=2), missing=(gone,), size=3))))
    assert set(group.members) == {Member("a", 100, observed=True)}


def test_each_host_speaks_for_its_own_processes() -> None:
    mine = told(0, 5, 5, host="10.0.0.1", pid=100, process=100)
    true = service(communicator(mine, told(1, 4, 4, host="10.0.0.2", pid=100)))
    lies = service(
        communicator(told(0, 99, 98, host="10.0.0.1", pid=100), told(1, 4, 4, host="10.0.0.2", pid=100, process=100))
    )
    for services in ((true, lies), (lies, true)):
        hosts = [host("a" if service is true else "b", service) for service in services]
        assert only(*hosts).members == {
            Member("a", 100, observed=True): counts(5, False),
            Member("b", 100, observed=True): counts(4, False),
        }


def test_two_hosts_that_claim_one_rank() -> None:
    claims = [service(communicator(told(0, 5, host="10.0.0.7", pid=3, process=100))) for _ in range(2)]
    group = only(host("a", claims[0]), host("b", claims[1]))
    assert set(group.members) == {Member("10.0.0.7", 3, observed=False)}


def test_a_process_that_is_not_in_the_evidence() -> None:
    group = only(host("a", service(communicator(told(0, 5, host="10.0.0.7", pid=3, process=4_242)))))
    assert set(group.members) == {Member("10.0.0.7", 3, observed=False)}


def test_the_newest_of_two_answers() -> None:
    old = service(communicator(told(0, 5, host="10.0.0.9", pid=3)), age=25.0)
    new = service(communicator(told(0, 8, host="10.0.0.9", pid=3)), age=1.0)
    for services in ((old, new), (new, old)):
        assert only(host("a", *services)).members == {Member("10.0.0.9", 3, observed=False): counts(8, None)}


def test_counts_of_another_length() -> None:
    """A bundle may say anything."""
    odd = RasRank(rank=0, host="10.0.0.9", pid=3, counts=(1,), counts_before=(0, 0, 0, 0, 0, 0, 0))
    group = only(host("a", service(communicator(odd))))
    assert group.members == {Member("10.0.0.9", 3, observed=False): MemberCounts((1,), True)}


def test_no_answer() -> None:
    assert ras_groups(()) == ()
    assert ras_groups((host("a"),)) == ()
