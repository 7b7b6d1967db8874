"""What RAS counts, joined with the processes of one host and of several."""

from typing import Any

from msgspec.structs import replace

from hangdoc.reasoning.ledger.nccl_counts import Member, MemberCounts, RasGroup, ras_groups
from hangdoc.snapshot import (
    Host,
    Interface,
    Machine,
    Process,
    Ras,
    RasAnswer,
    RasCommunicator,
    RasMissingRank,
    RasRank,
    Unavailable,
)
from tests.unit.builders import rank

NET, PIDS = "net:[1]", "pid:[2]"


def host(name: str, address: str, *services: Ras, pids: tuple[int, ...] = (100, 101), **more: Any) -> Host:
    """A host with ranks of these pids and one address beside 127.0.0.1."""
    machine = Machine(
        cpu_model=None, cpu_flags=(), cores=1, memory_total_bytes=1, memory_available_bytes=1, swap_total_bytes=0,
        swap_used_bytes=0, swapped_bytes=None, load_1m=0, kernel="6", net_namespace=NET, hostname_addresses=(),
        interfaces=(Interface(name="eth0", up=True, addresses=(address, "127.0.0.1")),),
    )  # fmt: skip
    processes = tuple(process(number, pid) for number, pid in enumerate(pids))
    return Host(
        name=name, taken_at="", window_seconds=1, elapsed_seconds=1, processes=processes, machine=machine,
        machine_id=f"boot-of-{name} {PIDS}", ras=services, **more,
    )  # fmt: skip


def process(number: int, pid: int, pid_namespace: str = PIDS) -> Process:
    return replace(rank(number, pid=pid), namespaces={"net": NET, "pid": pid_namespace, "mnt": "mnt:[3]"})


def service(*communicators: RasCommunicator, between: float | None = 2.0, age: float = 0.0) -> Ras:
    answer = RasAnswer(
        nccl_version="2.29.7", form="json", communicators=communicators, seconds_between=between, age_seconds=age
    )
    return Ras(namespace=NET, address="localhost:28028", processes=(100,), answer=answer)


def told(number: int, now: int, before: int | None = None, **more: Any) -> RasRank:
    counts_before = (0, 0, 0, 0, before) if before is not None else ()
    return RasRank(rank=number, counts=(0, 0, 0, 0, now), counts_before=counts_before, **more)


def communicator(*ranks: RasRank, missing: tuple[RasMissingRank, ...] = (), size: int = 2) -> RasCommunicator:
    return RasCommunicator(hash="0" * 15 + "7", size=size, ranks=ranks, missing=missing)


def only(*hosts: Host) -> RasGroup:
    (group,) = ras_groups(hosts)
    return group


def counts(now: int, grew: bool | None) -> MemberCounts:
    return MemberCounts((0, 0, 0, 0, now), None, grew)


def test_processes_of_the_host_and_of_one_that_was_not_observed() -> None:
    here = told(0, 12, 12, host="10.0.0.1", pid=7, process=100), told(1, 11, 10, host="10.0.0.2", pid=55)
    group = only(host("a", "10.0.0.1", service(communicator(*here))))
    assert group.members == {
        Member("a", 100, observed=True): counts(12, False),
        Member("10.0.0.2", 55, observed=False): counts(11, True),
    }
    assert (group.size, group.missing, group.nameless) == (2, (), 0)


def test_one_reading_says_nothing_of_growth() -> None:
    group = only(
        host("a", "10.0.0.1", service(communicator(told(0, 12, process=100, host="10.0.0.1", pid=7)), between=None))
    )
    assert group.members == {Member("a", 100, observed=True): counts(12, None)}
    without_before = communicator(told(0, 12, process=100, host="10.0.0.1", pid=7))
    assert only(host("a", "10.0.0.1", service(without_before))).members[Member("a", 100, observed=True)].grew is None


def test_counts_of_all_kinds_together() -> None:
    """Of NCCL 2.24, and of ranks that a text answer does not name."""
    named = RasRank(rank=0, host="10.0.0.1", pid=7, process=100, launched=9, launched_before=8)
    group = only(host("a", "10.0.0.1", service(communicator(named, RasRank(rank=1, launched=10), size=3))))
    assert group.members == {Member("a", 100, observed=True): MemberCounts((), 9, True)}
    assert group.nameless == 1


def test_missing_ranks() -> None:
    gone = RasMissingRank(rank=1, host="10.0.0.1", pid=8, process=101, unresponsive=True)
    far = RasMissingRank(rank=2, host="10.0.0.9", pid=5, dead=True)
    mine = told(0, 3, 3, host="10.0.0.1", pid=7, process=100)
    group = only(host("a", "10.0.0.1", service(communicator(mine, missing=(gone, far), size=3))))
    assert set(group.members) == {Member("a", 100, observed=True)}
    assert group.missing == (Member("a", 101, observed=True), Member("10.0.0.9", 5, observed=False))


def test_a_second_host_that_was_not_asked() -> None:
    """By its address and pid, which is the same in the whole host."""
    answer = service(
        communicator(told(0, 5, host="10.0.0.1", pid=100, process=100), told(1, 4, host="10.0.0.2", pid=101))
    )
    refused = Ras(
        namespace=NET, address="localhost:28028", processes=(100,), answer=Unavailable(reason="no time was left")
    )
    both = only(host("a", "10.0.0.1", answer), host("b", "10.0.0.2", refused))
    assert set(both.members) == {Member("a", 100, observed=True), Member("b", 101, observed=True)}
    container = replace(host("b", "10.0.0.2"), processes=(process(1, 101, "pid:[77]"),))
    unknown = only(host("a", "10.0.0.1", answer), container)
    assert Member("10.0.0.2", 101, observed=False) in unknown.members, "the pid is another one in its container"


def test_each_host_speaks_for_its_own_processes() -> None:
    mine = told(0, 5, 5, host="10.0.0.1", pid=100, process=100)
    true = service(communicator(mine, told(1, 4, 4, host="10.0.0.2", pid=100)))
    lies = service(
        communicator(told(0, 99, 98, host="10.0.0.1", pid=100), told(1, 4, 4, host="10.0.0.2", pid=100, process=100))
    )
    for hosts in (
        (host("a", "10.0.0.1", true), host("b", "10.0.0.2", lies)),
        (host("b", "10.0.0.2", lies), host("a", "10.0.0.1", true)),
    ):
        assert only(*hosts).members == {
            Member("a", 100, observed=True): counts(5, False),
            Member("b", 100, observed=True): counts(4, False),
        }


def test_two_hosts_that_claim_one_rank() -> None:
    claims = [service(communicator(told(0, 5, host="10.0.0.7", pid=3, process=100))) for _ in range(2)]
    group = only(host("a", "10.0.0.1", claims[0]), host("b", "10.0.0.2", claims[1]))
    assert set(group.members) == {Member("10.0.0.7", 3, observed=False)}


def test_a_process_that_is_not_in_the_evidence() -> None:
    group = only(host("a", "10.0.0.1", service(communicator(told(0, 5, host="10.0.0.7", pid=3, process=4_242)))))
    assert set(group.members) == {Member("10.0.0.7", 3, observed=False)}


def test_the_newest_of_two_answers() -> None:
    old = service(communicator(told(0, 5, host="10.0.0.9", pid=3)), age=25.0)
    new = service(communicator(told(0, 8, host="10.0.0.9", pid=3)), age=1.0)
    for services in ((old, new), (new, old)):
        assert only(host("a", "10.0.0.1", *services)).members == {
            Member("10.0.0.9", 3, observed=False): counts(8, None)
        }


def test_counts_of_another_length() -> None:
    """A bundle may say anything."""
    odd = RasRank(rank=0, host="10.0.0.9", pid=3, counts=(1,), counts_before=(0, 0, 0, 0, 0, 0, 0))
    group = only(host("a", "10.0.0.1", service(communicator(odd))))
    assert group.members == {Member("10.0.0.9", 3, observed=False): MemberCounts((1,), None, True)}


def test_no_answer() -> None:
    assert ras_groups(()) == ()
    assert ras_groups((host("a", "10.0.0.1"),)) == ()
