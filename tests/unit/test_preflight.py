"""What reports and links mean for a launch."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hangdoc.commands.errors import CommandError
from hangdoc.commands.preflight import parameters
from hangdoc.preflight import connections, session
from hangdoc.preflight.checks import all_checks
from hangdoc.preflight.network_checks import all_reduce_seconds
from hangdoc.preflight.plan import Card, Check, Link, NodeReport, Plan
from hangdoc.snapshot import DataSource, Interface, Listener, Unavailable
from tests.rules.shapes import machine


def node(number: int, **more: object) -> NodeReport:
    """A node in good order at 10.0.0.number."""
    name, address = f"n{number}", f"10.0.0.{number}"
    card = Interface(name="eth0", up=True, addresses=(address,), networks=("10.0.0.0/24",))
    good = NodeReport(
        name=name, node=name, address=address, machine=machine(interfaces=(card,), memory_available_bytes=10**10),
        cards=(Card(name="eth0", wireless=False, speed_mbit=1000, mtu=1500),),
        versions={"hangdoc": "1", "Python": "3.11", "torch": "2.13"}, resolved={name: (address,), "n1": ("10.0.0.1",)},
        is_master=number == 1, holder=None, environment={"OMP_NUM_THREADS": "1"}, arguments=("--depth", "4"), data=(),
        left_over=(), attach=(), free_bytes=10**10, port=1,
    )  # fmt: skip
    return replace(good, **more)


def ok(caller: str, called: str, **more: object) -> Link:
    values: dict[str, object] = {"outcome": "ok", "rtt_ms": 0.1, "mbit": 900.0, "mtu": 1500}
    return Link(caller=caller, called=called, target="10.0.0.9:1", **{**values, **more})  # type: ignore[arg-type]


PLAN = Plan(master="n1:29500", nodes=2)
LINKS = [ok("n1", "n2"), ok("n2", "n1")]


def failing(reports: list[NodeReport], links: list[Link] = LINKS, plan: Plan = PLAN) -> dict[str, Check]:
    return {check.name: check for check in all_checks(reports, links, plan) if check.status in ("fail", "warn")}


def test_two_nodes_in_good_order() -> None:
    assert not failing([node(1), node(2)])


def test_each_thing_that_is_wrong_is_the_only_one_named() -> None:
    data = DataSource(path="/d", origin="DATA_DIR", files=201, bytes=1, suffixes=(), digest="a")
    stranger = Listener(port=29500, namespace="", pid=7, name="nc", argv=("nc",), orphan=True)
    wrong: dict[str, tuple[list[NodeReport], list[Link]]] = {
        "master's name": (
            [node(1), node(2, resolved={"n2": ("10.0.0.2",), "n1": Unavailable(reason="unknown")})],
            LINKS,
        ),
        "own name": ([node(1), node(2, resolved={"n2": ("127.0.1.1",), "n1": ("10.0.0.1",)})], LINKS),
        "master port": ([node(1, holder=stranger), node(2)], LINKS),
        "connections": ([node(1), node(2)], [ok("n1", "n2"), ok("n2", "n1", outcome="timeout")]),
        "interface": ([node(1), node(2, environment={"GLOO_SOCKET_IFNAME": "eth9", "OMP_NUM_THREADS": "1"})], LINKS),
        "link": ([node(1), node(2, cards=(Card(name="eth0", wireless=True, speed_mbit=None, mtu=1500),))], LINKS),
        "throughput": ([node(1), node(2)], [ok("n1", "n2"), ok("n2", "n1", mbit=30.0)]),
        "MTU": ([node(1), node(2)], [ok("n1", "n2", mtu=9000), ok("n2", "n1")]),
        "torch": ([node(1), node(2, versions={"hangdoc": "1", "Python": "3.11", "torch": "2.12"})], LINKS),
        "data": ([node(1, data=(data,)), node(2, data=(replace(data, files=4, digest="b"),))], LINKS),
        "--depth": ([node(1), node(2, arguments=("--depth", "2"))], LINKS),
        "left-overs": ([node(1), node(2, left_over=("rank 0, pid 7",))], LINKS),
    }
    for name, (reports, links) in wrong.items():
        assert set(failing(reports, links)) == {name}


def test_a_one_way_firewall_names_the_direction() -> None:
    check = failing([node(1), node(2)], [ok("n1", "n2"), ok("n2", "n1", outcome="timeout")])["connections"]
    assert "n2 to n1" in check.text
    assert "the other direction works" in check.text


def test_a_loopback_name_harms_where_its_node_would_listen() -> None:
    def named(high: str) -> Check:
        own = {"n2": ("127.0.1.1",), "n1": (high,)}
        first = node(1, address=high, resolved={"n1": (high,)})
        return failing([first, node(2, address="127.0.1.1", resolved=own)])["own name"]

    assert named("10.0.0.1").status == "warn"  # the lower address listens
    assert named("192.168.0.1").status == "fail"


def test_a_model_that_does_not_fit() -> None:
    found = failing([node(1), node(2)], plan=replace(PLAN, parameters=5 * 10**9, ranks_per_node=2))
    assert {"memory", "disk"} <= set(found)


def test_time_of_an_all_reduce() -> None:
    assert all_reduce_seconds(25_000_000, 1000, 2) == pytest.approx(0.8)
    assert all_reduce_seconds(None, 1000, 2) is None


def test_numbers_of_parameters() -> None:
    assert [parameters(text) for text in ("25M", "1.3B", "124439808", None)] == [
        25_000_000,
        1_300_000_000,
        124_439_808,
        None,
    ]
    for wrong in ("x", "-3", "0", "M", "1e400"):
        with pytest.raises(CommandError):
            parameters(wrong)


def preflight(**variables: str) -> tuple[int, dict[str, Check]]:
    """The command in an environment with these variables: exit code, and the checks of the master."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MASTER_")}
    words = [str(Path(sys.executable).with_name("hangdoc")), "preflight", "--json"]
    done = subprocess.run(words, capture_output=True, timeout=60, check=False, env={**kept, **variables})
    if done.returncode == 2:
        raise CommandError(done.stderr.decode(), 2)
    checks = msgspec.convert(msgspec.json.decode(done.stdout)["checks"], list[Check])
    return done.returncode, {check.name: check for check in checks if check.name.startswith("master")}


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_the_environment_names_the_master_and_a_held_port_fails(address: str, listens: bool) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        if listens:
            holder.listen()
        port = str(holder.getsockname()[1])
        code, checks = preflight(MASTER_ADDR=address, MASTER_PORT=port)
    assert (code, checks["master port"].status) == (1, "fail")
    assert port in checks["master port"].text
    assert "MASTER_ADDR and MASTER_PORT of the environment" in checks["master port"].text
    assert (f"pid {os.getpid()}" in checks["master port"].text) == listens
    assert preflight(MASTER_ADDR=address, MASTER_PORT=port)[1]["master port"].status == "pass"


def test_a_master_that_was_not_looked_at_does_not_pass() -> None:
    assert preflight()[1] == {}
    for variables in ({"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "29500"}, {"MASTER_ADDR": "127.0.0.1"}):
        assert preflight(**variables)[1]["master port"].status == "unknown"
    with pytest.raises(CommandError, match="MASTER_PORT is '99999'"):
        preflight(MASTER_ADDR="127.0.0.1", MASTER_PORT="99999")


def test_calls_are_answered_refused_or_late() -> None:
    listener = connections.PortListener()
    with socket.socket() as bound:  # bound, and nobody listens
        bound.bind(("127.0.0.1", 0))
        began = time.monotonic()
        found = connections.reach("me", [("a", "127.0.0.1", listener.port), ("b", "127.0.0.1", bound.getsockname()[1])])
        assert time.monotonic() - began < connections.CONNECT_SECONDS + 3
    assert [link.outcome for link in found] == ["ok", "refused"]
    assert (found[0].rtt_ms or 0) > 0
    assert (connections.throughput("127.0.0.1", listener.port) or 0) > 10
    listener.close()


def test_of_many_nodes_each_calls_a_few_and_all_are_joined() -> None:
    for count in (2, 33, 34, 1000):
        called = {index: session.peers_of(index, count) for index in range(count)}
        assert all(len(peers) <= max(session.ALL_PAIRS, 24) for peers in called.values())
        seen, edge = {0}, [0]
        while edge:
            edge = [peer for index in edge for peer in called[index] if peer not in seen]
            seen |= set(edge)
        assert len(seen) == count
