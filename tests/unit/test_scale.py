"""The time of a diagnosis is in proportion to the number of hosts, also with launchers above launchers and lost ranks."""

import time

import pytest
from msgspec.structs import replace

from hangdoc.reasoning.build.runs import build_runs
from hangdoc.reasoning.causes import launches
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.kinds import SameCall
from hangdoc.snapshot import (
    Connection,
    Connections,
    Host,
    Launch,
    Listener,
    Process,
    RankIdentity,
    Snapshot,
)
from tests.unit.builders import c10d, rank, train

_MOST_TIMES_SLOWER = 24  # what compares each host with each other takes 64 times as long
_PER_HOST = 4


def host(number: int, hosts: int, *, lost: int) -> Host:
    """A host with srun above torchrun above four ranks, of which `lost` are gone."""
    first = number * _PER_HOST
    ranks = tuple(
        rank(
            first + n,
            *c10d("all_reduce"),
            train(15),
            world=hosts * _PER_HOST,
            local_world=_PER_HOST,
            pid=100 + n,
            ppid=50,
        )
        for n in range(_PER_HOST - lost)
    )
    asked = Launch(tool="torchrun", nnodes=str(hosts), nproc_per_node=str(_PER_HOST), endpoint="10.0.0.1:29500")
    started = {"role": "launcher", "state": "S", "started_seconds_ago": 200.0}
    return Host(
        name=f"node{number:05}", taken_at="2026-01-01T00:00:00+00:00", window_seconds=1.0, elapsed_seconds=1.2,
        processes=(
            Process(pid=40, ppid=1, name="srun", argv=("srun",), **started),  # type: ignore[arg-type]
            Process(pid=50, ppid=40, name="pt_elastic", argv=("torchrun",), launch=asked, **started),  # type: ignore[arg-type]
            *ranks,
        ),
        connections=Connections(connections=(), listeners=(Listener(port=29500, namespace="net:[1]", pid=50),)),
    )  # fmt: skip


def in_a_ring(number: int, hosts: int, kind: str) -> Host:
    """A host whose ranks are connected to those of the next and the previous host. The launcher of the last one is gone. `kind`:
    `named`; `nameless`, where no variable names the run; `apart`, where no connection shows that the hosts belong together."""
    whole = host(number, hosts, lost=0)
    gone = number == hosts - 1
    ranks = [one for one in whole.processes if one.role == "rank"]
    ends = tuple(
        Connection(
            pid=one.pid, namespace="net:[1]", state="ESTABLISHED", local_address=f"10.1.{number >> 8}.{number & 255}",
            local_port=(40_000 if side else 50_000) + at, remote_address=f"10.1.{peer >> 8}.{peer & 255}",
            remote_port=(50_000 if side else 40_000) + at, receive_queue_bytes=0, send_queue_bytes=0, bytes_moved=0,
            last_sent_ms=60_000, last_received_ms=60_000,
        )
        for at, one in enumerate(ranks)
        for side, peer in enumerate(((number - 1) % hosts, (number + 1) % hosts))
    )  # fmt: skip
    known = ranks if kind != "nameless" else [replace(one, identity=_without_meeting(one)) for one in ranks]
    shown = [replace(one, launcher_gone=gone, owner=None if gone else one.owner) for one in known]
    launchers = [one for one in whole.processes if one.role != "rank" and not gone]
    return replace(
        whole, processes=(*launchers, *shown), connections=Connections(connections=() if kind == "apart" else ends)
    )


def _without_meeting(process: Process) -> RankIdentity | None:
    who = process.identity
    return replace(who, master_address=None, master_port=None, run_id=None) if who is not None else None


def seconds(hosts: int, ring: str = "") -> float:
    made = (in_a_ring(n, hosts, ring) if ring else host(n, hosts, lost=n % 2 * 2) for n in range(hosts))
    run = Snapshot(hangdoc="test", hosts=tuple(made))
    began = time.process_time()
    (job,) = diagnose(run).jobs
    taken = time.process_time() - began
    assert len(job.ranks) + len(job.unseen) == hosts * _PER_HOST
    return taken


def ratio(ring: str = "") -> float:
    """How many times as long eight times the hosts take, at best: other work on the machine empties the caches."""
    seconds(10, ring)
    ratios: list[float] = []
    while len(ratios) < 5 and min(ratios, default=99.0) >= _MOST_TIMES_SLOWER:
        few = min(seconds(150, ring) for _ in range(3))
        ratios.append(seconds(1200, ring) / few)
    return min(ratios)


def test_eight_times_the_hosts_take_about_eight_times_as_long() -> None:
    assert ratio() < _MOST_TIMES_SLOWER


@pytest.mark.parametrize("kind", ["named", "nameless", "apart"])
def test_what_may_be_left_over_is_found_in_proportion_too(kind: str) -> None:
    assert ratio(kind) < _MOST_TIMES_SLOWER


def test_a_pid_of_another_host_of_the_run_does_not_make_a_stranger_its_own() -> None:
    """A process that listens on the master port of one host may have the pid of a rank on another host."""
    one, other = host(0, 2, lost=3), host(1, 2, lost=0)
    stranger = Listener(port=29500, namespace="net:[1]", pid=103, name="redis-server")
    held = replace(
        one,
        processes=tuple(replace(process, namespaces={"net": "net:[1]"}) for process in one.processes),
        connections=Connections(connections=(), listeners=(stranger,)),
    )
    waiting = replace(
        other, connections=Connections(connections=()),
        processes=tuple(replace(process, namespaces={"net": "net:[1]"}) for process in other.processes),
    )  # fmt: skip
    (run,) = build_runs(Snapshot(hangdoc="test", hosts=(held, waiting)), 30.0)
    taken = launches.find_taken_port(run, Blockage(kind=SameCall(), awaited=(), culprits=()))
    assert taken is not None and taken.listener == stranger
