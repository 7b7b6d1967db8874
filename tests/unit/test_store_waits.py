"""What the records of stores say of ranks: who waits for which key, and who certainly has not arrived."""

from typing import Any

from msgspec.structs import replace

from hangdoc.diagnosis import Finding
from hangdoc.reasoning.engine import diagnose
from hangdoc.redact.shapes import store_key
from hangdoc.snapshot import (
    AwaitedKey,
    Connection,
    Connections,
    Process,
    Snapshot,
    StoreServer,
    StoreServers,
)
from tests.unit.builders import TORCH, frame, rank, snapshot

PORT = 29_500
ARRIVED = (
    frame("_new_process_group_helper", 1744, TORCH + "distributed/distributed_c10d.py"),
    frame("init_process_group", 1, TORCH + "distributed/distributed_c10d.py"),
    frame("main", 3),
)
ADDRESS_OF_2 = AwaitedKey(name="/default_pg/0//cpu//0/2", sockets=(1, 2))


def ends(pid: int, inode: int, server: int = 100, port: int = PORT) -> tuple[Connection, Connection]:
    """Both ends of the connection of a process to a store of process `server`, whose socket has this inode."""
    here, there = "10.0.0.1", "10.0.0.1"
    values: dict[str, Any] = {
        "namespace": "net:[1]", "state": "ESTABLISHED", "receive_queue_bytes": 0, "send_queue_bytes": 0, "bytes_moved": 0,
        "last_sent_ms": 60_000, "last_received_ms": 60_000,
    }  # fmt: skip
    served = Connection(
        pid=server, inode=inode, local_address=there, local_port=port, remote_address=here, remote_port=40_000 + pid,
        **values,
    )  # fmt: skip
    asking = Connection(
        pid=pid, inode=1_000 + inode, local_address=here, local_port=40_000 + pid, remote_address=there, remote_port=port,
        **values,
    )  # fmt: skip
    return served, asking


def looked_at(*keys: AwaitedKey, hosts: int = 1, connections: tuple[Connection, ...] | None = None) -> Snapshot:
    """Two of three ranks are in the rendezvous. With `hosts` 2, rank 2 may be on another host."""
    served = StoreServers(servers=(StoreServer(port=PORT, keys=3, clients=2, awaited=keys),))
    here = (told(0, hosts, stores=served), told(1, hosts))
    both = (*ends(100, 1), *ends(101, 2)) if connections is None else connections
    return snapshot(*here, connections=Connections(connections=both))


def told(number: int, hosts: int, **more: Any) -> Process:
    return rank(number, *ARRIVED, world=3, local_world=3 if hosts == 1 else 2, **more)


def finding(evidence: Snapshot) -> Finding:
    (job,) = diagnose(evidence).jobs
    (found,) = (one for one in job.findings if one.code == "HD401")
    return found


def lines(evidence: Snapshot) -> list[tuple[int | None, str]]:
    return [(line.rank, line.text) for line in finding(evidence).evidence if line.probe == "store"]


def test_ranks_are_told_by_their_connections() -> None:
    assert lines(looked_at(ADDRESS_OF_2)) == [
        (0, "waits for the address of rank 2, which is not in the store (key default_pg/0//cpu//0/2) (also rank 1)")
    ]
    mine = AwaitedKey(name="/result/1", sockets=(2,), alike=("/result/0", "/result/2"), alike_count=2)
    assert lines(looked_at(mine)) == [
        (1, "waits for the key result/1, which is not in the store; beside it are result/0, result/2")
    ]
    many = replace(mine, alike_count=9)
    assert lines(looked_at(many)) == [(1, "waits for the key result/1, which is not in the store")]


def test_more_keys_than_are_shown() -> None:
    keys = [AwaitedKey(name=f"/result/{number}", sockets=(1,)) for number in range(8)]
    shown = lines(looked_at(*keys))
    assert len(shown) == 4
    assert shown[-1] == (None, "they wait for 5 more keys")


def test_sockets_that_are_not_the_servers_own_name_nobody() -> None:
    """A process may write any number into its memory."""
    others = (*ends(100, 1, server=101), *ends(101, 2, server=101))
    assert lines(looked_at(ADDRESS_OF_2, connections=others)) == []
    other_port = (*ends(100, 1, port=PORT + 1), *ends(101, 2, port=PORT + 1))
    assert lines(looked_at(ADDRESS_OF_2, connections=other_port)) == []
    assert lines(looked_at(AwaitedKey(name="/key", sockets=(77,)))) == []
    assert lines(looked_at()) == []


def test_a_rank_that_may_be_elsewhere_has_certainly_not_arrived() -> None:
    unsure, sure = finding(looked_at(hosts=2)), finding(looked_at(ADDRESS_OF_2, hosts=2))
    assert "may be on a host that was not observed" in unsure.summary
    assert sure.summary.endswith("; rank 2 is missing")
    assert (unsure.confidence, sure.confidence) == (0.6, 0.9)
    other = AwaitedKey(name="/default_pg/0//tp//cpu//0/2", sockets=(1, 2))  # of a group, whose ranks are others
    assert finding(looked_at(other, hosts=2)).summary == unsure.summary


def test_what_is_kept_of_a_key() -> None:
    for key in (
        "/default_pg/0//cpu//0/2",
        "//worker/attempt_0/default_pg/0//cuda//1/17",
        "/result/-8213746/done",
        "init/",
    ):
        assert store_key(key) == key
    assert store_key("/thing/other") == "/thing/other", "one other word"
    first, second = store_key("/index/-8213746012345678901"), store_key("/index/-8213746012345678902")
    assert first != second
    assert first.startswith("/index/<redacted ")
    secrets = {
        "/hunter2-x/result": "hunter2", "/meeting about swordfish": "swordfish", "/password/correcthorse": "correcthorse",
        "/api_key/4711": "4711", "sk-abc123def456ghi7": "abc123", "a" * 9000: "aaa",
    }  # fmt: skip
    for key, secret in secrets.items():
        kept = store_key(key)
        assert secret not in kept
        assert "<str>" in kept
        assert store_key(kept) == kept
