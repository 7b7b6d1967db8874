"""What a host or a bundle contains is diagnosed in linear time, and a host may send only so many processes; each of its users has
a share of them."""

import gzip
import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hangdoc import codec
from hangdoc.host_bounds import MOST_PROCESSES
from hangdoc.reasoning.build.runs import build_runs
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Snapshot

_MOST_TIMES_SLOWER = 12.0
"""For 4 times as many processes. Quadratic time would be 16 times slower, and the fixed part of it makes it look better."""


def process(pid: int, role: str, **more: Any) -> dict[str, Any]:
    return {"pid": pid, "ppid": 1, "role": role, "name": "python", "argv": ["python", "t.py"], "state": "S",
            "started_seconds_ago": 10.0, "uid": 1000, **more}  # fmt: skip


def rank(pid: int, *, number: int = 0, port: int = 1, world_size: int = 2, **more: Any) -> dict[str, Any]:
    who = {
        "rank": number,
        "source": "torch",
        "world_size": world_size,
        "master_address": "10.0.0.1",
        "master_port": port,
    }
    return process(pid, "rank", identity=who, **more)


def launcher(pid: int, **more: Any) -> dict[str, Any]:
    asked = {"tool": "torchrun", "nnodes": "2", "endpoint": f"10.0.0.1:{pid}", "run_id": "x"}
    return process(pid, "launcher", launch=asked, **more)


def connection(pid: int, at: int) -> dict[str, Any]:
    return {"pid": pid, "namespace": "", "state": "ESTABLISHED", "local_address": "10.0.0.1", "local_port": 1 + at % 60_000,
            "remote_address": "10.0.0.1", "remote_port": 1 + (at * 7) % 60_000, "receive_queue_bytes": 0,
            "send_queue_bytes": 0, "bytes_moved": 0, "last_sent_ms": 1, "last_received_ms": 1}  # fmt: skip


def bundle(processes: list[dict[str, Any]], connections: list[dict[str, Any]] | None = None) -> bytes:
    host: dict[str, Any] = {"name": "h", "taken_at": "2026-01-01T00:00:00+00:00", "window_seconds": 1.0,
                            "elapsed_seconds": 1.0, "machine_id": "m", "processes": processes}  # fmt: skip
    if connections:
        host["connections"] = {"kind": "connections", "connections": connections}
    return gzip.compress(json.dumps({"schema": "hangdoc.snapshot/4", "hangdoc": "0", "hosts": [host]}).encode(), 1)


SHAPES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "launchers and owners": lambda n: (
        [launcher(i) for i in range(1, n)] + [rank(n + i, owner=10**6 + i, port=i, ppid=10**6 + i) for i in range(n)]
    ),
    "one run with many launchers": lambda n: (
        [launcher(i) for i in range(1, n)] + [rank(n + i, owner=i, number=i, world_size=n, ppid=i) for i in range(1, n)]
    ),
    "many runs": lambda n: [rank(i, port=i) for i in range(1, 2 * n)],
    "one number": lambda n: [rank(i, launcher_gone=bool(i % 2)) for i in range(1, 2 * n)],
    "one launch line": lambda n: [
        {**launcher(i), "launch": {"tool": "torchrun", "nnodes": "2", "endpoint": "127.0.0.1:1", "run_id": str(i)}}
        for i in range(1, 2 * n)
    ],
    "waiting agents": lambda n: [launcher(i) for i in range(1, n)] + [rank(n + i, port=n + i) for i in range(n)],
    "a chain of launchers": lambda n: [rank(1)] + [launcher(i, ppid=i - 1) for i in range(2, 2 * n)],
    "zombies": lambda n: (
        [rank(i, ppid=n + i, port=i) for i in range(1, n)]
        + [{**rank(2 * n + i, ppid=n + i), "identity": None, "state": "Z"} for i in range(1, n)]
    ),
    "many users": lambda n: [rank(i, port=i, uid=i) for i in range(1, 2 * n)],
}


def seconds(snapshot: Snapshot) -> float:
    """CPU time, which other processes of the machine do not change."""
    began = time.process_time()
    build_runs(snapshot, 30.0)
    return time.process_time() - began


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("linked", [False, True])
def test_runs_are_gathered_in_linear_time(shape: str, linked: bool) -> None:
    def made(n: int) -> Snapshot:
        links = [connection(1 + at % (2 * n), at) for at in range(8 * n)] if linked else None
        return codec.decode(bundle(SHAPES[shape](n), links))

    small, large = made(250), made(1000)
    seconds(small)  # which imports and compiles
    short, long = min(seconds(small) for _ in range(3)), seconds(large)
    assert long < _MOST_TIMES_SLOWER * short + 0.3, (short, long)


def test_a_host_has_a_bounded_number_of_processes() -> None:
    snapshot = codec.decode(bundle([rank(i, port=i) for i in range(1, 3 * MOST_PROCESSES)]))
    (host,) = snapshot.hosts
    assert len(host.processes) == MOST_PROCESSES
    assert "8,191 of them are left out" in host.problems[0]


def test_processes_with_one_pid_count_each() -> None:
    (host,) = codec.decode(bundle([rank(7)] * (2 * MOST_PROCESSES))).hosts
    assert len(host.processes) == MOST_PROCESSES


def test_another_user_cannot_take_the_share_of_a_run() -> None:
    """10,000 processes of one user that look like ranks, before and after the ranks of another."""
    fake = [rank(i, port=i, uid=1) for i in range(1, 10_000)]
    victim = [rank(20_000 + i, number=i, port=77, world_size=8, uid=2, owner=50) for i in range(8)]
    (host,) = codec.decode(bundle([*fake[:5000], *victim, *fake[5000:]])).hosts
    assert sum(one.uid == 2 for one in host.processes) == 8
    assert len(host.processes) == MOST_PROCESSES


def test_ranks_that_are_like_others_count() -> None:
    like = {"pid": 0, "like": 1, "state": "S", "rank": 0, "local_rank": None, "started_seconds_ago": 1.0, "cpu_ns": 0}
    raw = json.loads(gzip.decompress(bundle([rank(1), rank(2, uid=2)])))
    raw["hosts"][0]["alike"] = [{**like, "pid": 10 + at, "rank": at} for at in range(2 * MOST_PROCESSES)]
    (host,) = codec.decode(gzip.compress(json.dumps(raw).encode())).hosts
    assert [one.uid for one in host.processes] == [2]


def test_a_usual_host_is_as_it_was_sent() -> None:
    sent = bundle([rank(i, number=i, world_size=512) for i in range(512)])
    (host,) = codec.decode(sent).hosts
    assert not host.problems
    assert len(diagnose(msgspec.structs.replace(codec.decode(sent))).jobs) == 1
