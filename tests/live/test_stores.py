"""Which keys of a TCPStore ranks wait for, read from the memory of the process that serves it."""

import os
import signal
from pathlib import Path

import pytest

from hangdoc.diagnosis import Job
from hangdoc.observe.look.observe import Options, observe
from hangdoc.reasoning.engine import diagnose
from tests.live.served import read_stores, serving, store_of
from tests.live.watched import under_torchrun

pytestmark = pytest.mark.usefixtures("can_attach")


def store_evidence(folder: Path, mode: str, code: str) -> list[tuple[int | None, str]]:
    """What the store says in the first finding about three ranks of which the last one does not come."""
    with under_torchrun(folder, "stores.py", mode, options=("--nproc-per-node=3",), OMP_NUM_THREADS="1") as run:
        run.wait_for("ready", 3)
        for _ in range(20):
            (job,) = diagnose(observe(Options(pids=(run.launcher.pid,), window=1.0))).jobs
            if job.findings and job.findings[0].code == code and _victims(job) == (0, 1):
                break
    assert job.findings[0].culprits == (2,)
    return [(line.rank, line.text) for line in job.findings[0].evidence if line.probe == "store"]


def _victims(job: Job) -> tuple[int, ...]:
    return job.findings[0].victims


def test_a_rank_that_is_missing_in_the_rendezvous(tmp_path: Path) -> None:
    ((rank, text),) = store_evidence(tmp_path, "init", "HD401")
    assert rank == 0
    assert text.startswith("waits for the address of rank 2, which is not in the store (key ")
    assert text.endswith("default_pg/0//cpu//0/2) (also rank 1)")


def test_a_rank_that_is_missing_in_new_group(tmp_path: Path) -> None:
    ((rank, text),) = store_evidence(tmp_path, "group", "HD202")
    assert rank == 0
    assert text.startswith("waits for the key ")
    assert "//cpu//0/2, which is not in the store; beside it are " in text
    assert text.endswith("(also rank 1)")


def test_each_rank_waits_for_keys_of_its_own(tmp_path: Path) -> None:
    lines = store_evidence(tmp_path, "keys", "HD202")
    keys = {
        text.split(", which")[0].removeprefix("waits for the key "): (rank, "also rank 1" in text)
        for rank, text in lines
    }
    assert keys == {"result/last": (0, True), "result/0": (0, False), "result/1": (1, False)}
    assert all("beside it is " in text and "result/done" in text for _, text in lines)


def test_clients_and_keys_of_a_store() -> None:
    with serving(40) as pid:
        server = store_of(pid)
        sockets = {int(link[8:-1]) for link in map(os.readlink, _descriptors(pid)) if link.startswith("socket:[")}
    keys = {key.name: key for key in server.awaited}
    assert keys.keys() == {f"/own/{number}" for number in range(40)} | {"/shared"}
    assert (server.keys, server.clients) == (1, 41)
    assert len(keys["/shared"].sockets) == 40
    assert sockets.issuperset(keys["/shared"].sockets)
    each = [keys[f"/own/{number}"].sockets for number in range(40)]
    assert {len(clients) for clients in each} == {1}
    assert {client for (client,) in each} == set(keys["/shared"].sockets)
    assert (keys["/own/7"].alike, keys["/own/7"].alike_count) == (("/own/first",), 1)


def _descriptors(pid: int) -> list[str]:
    return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]


def test_a_stopped_process_is_read() -> None:
    with serving(3) as pid:
        before = store_of(pid)
        os.kill(pid, signal.SIGSTOP)
        assert store_of(pid) == before


def test_a_busy_store_gives_no_wrong_key() -> None:
    """It changes its tables some thousand times a second. What can't be read is said, and never guessed."""
    wanted = {"/shared", *(f"/own/{number}" for number in range(3))}
    good = 0
    with serving(3, "hammer") as pid:
        for _ in range(300):
            stores = read_stores(pid)[pid]
            if not hasattr(stores, "servers"):
                continue
            good += 1
            names = {key.name for server in stores.servers for key in server.awaited}
            assert names >= wanted
            assert all(name.startswith("/turn/") for name in names - wanted)
            (shared,) = (key for server in stores.servers for key in server.awaited if key.name == "/shared")
            assert len(shared.sockets) == 3
    assert good > 100
