"""Other people's scripts: frozen (and healthy) runs in idioms that the included trainer does not use."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hangdoc.diagnose.engine import diagnose
from hangdoc.diagnosis import Job
from hangdoc.observe.observe import Options, observe

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Truth:
    """What a right diagnosis says."""

    ranks: int
    verdict: str
    code: str
    culprits: tuple[int, ...] = ()
    states: tuple[str, ...] = ()
    launcher: str = "torchrun"


C, P = "in-collective", "in-p2p"
TRUTHS = {
    "p2p_cycle": Truth(2, "hung", "HD204", (0, 1), (P, P)),
    "recv_never": Truth(2, "hung", "HD204", (1,), (P, C)),
    "async_work": Truth(2, "hung", "HD202", (1,), (C, "sleeping")),
    "no_counter": Truth(2, "hung", "HD102", (1,), (C, C)),
    "module_level": Truth(2, "hung", "HD101", (1,), (C, C)),
    "subgroup": Truth(4, "hung", "HD202", (1,), (C, "sleeping", C, C)),
    "conditional": Truth(2, "hung", "HD201", (0,), (C, C)),
    "spawned": Truth(3, "hung", "HD202", (2,), (C, C, "sleeping"), launcher="mp.spawn"),
    "inner_environment": Truth(2, "hung", "HD302", (0,), ("waiting-input", C), launcher="itself"),
    "told_by_arguments": Truth(2, "hung", "HD202", (1,), (C, "sleeping"), launcher="itself"),
    "dataset_object": Truth(2, "hung", "HD101", (1,), (C, C)),
}
# Never an error, however often one looks; the verdicts that are right at one moment or another.
CONTROLS = {
    "slow_steps": {"healthy"},
    "tight_loop": {"healthy"},
    "slow_loader": {"healthy", "waiting"},
    "checkpoint": {"waiting"},
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def started(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose whole offspring is ended afterwards, by a mark in its environment."""
    tag = uuid.uuid4().hex
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "HANGDOC_TEST": tag}
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield child
    finally:
        for _ in range(20):
            ours = [pid for pid in os.listdir("/proc") if pid.isdigit() and _carries(pid, tag)]
            for pid in ours:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not ours:
                break
            time.sleep(0.05)
        child.communicate()


def _carries(pid: str, tag: str) -> bool:
    try:
        return tag.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def wait_ready(log: Path, ranks: int) -> None:
    until = time.monotonic() + 90
    while log.read_bytes().count(b"ready") < ranks:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)


def settled(pid: int, patience: float, wanted: str, bound: float = 30.0) -> Job:
    """The diagnosis, once the run has come to where its script leads."""
    until = time.monotonic() + bound
    while True:
        found = diagnose(observe(Options(pids=(pid,))), patience=patience)
        assert not found.problems
        seen = [f.code for job in found.jobs for f in job.findings[:1]]
        if found.jobs and (time.monotonic() > until or seen == [wanted]):
            return found.jobs[0]
        assert time.monotonic() < until, "no job was seen"


@pytest.mark.parametrize("name", sorted(TRUTHS))
def test_idiom(name: str, tmp_path: Path) -> None:
    truth, log = TRUTHS[name], tmp_path / "log"
    port, script = str(free_port()), str(PROGRAMS / f"{name}.py")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc-per-node={truth.ranks}",
        "--master-port",
        port,
        script,
    ]
    if truth.launcher != "torchrun":
        command = [sys.executable, script, port]
    with started(command, log) as child:
        wait_ready(log, truth.ranks)
        settled(child.pid, 2.0, truth.code)
        time.sleep(2.5)  # young waits are notes: look again when it has stood for the patience
        job = settled(child.pid, 2.0, truth.code)
    assert job.verdict == truth.verdict, job
    assert job.world_size == truth.ranks
    assert [rank.rank for rank in job.ranks] == list(range(truth.ranks))
    if truth.states:
        assert tuple(rank.state for rank in job.ranks) == truth.states
    assert (job.findings[0].code, job.findings[0].culprits) == (truth.code, truth.culprits)
    assert job.findings[0].severity == "error"


@pytest.mark.parametrize("name", sorted(CONTROLS))
def test_control_that_is_not_hung(name: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port", str(free_port()),
               str(PROGRAMS / f"{name}.py")]  # fmt: skip
    with started(command, log) as child:
        # From the first moment on: imports, rendezvous, first step.
        looks = []
        while log.read_bytes().count(b"ready") < 2 or len(looks) < 2:
            looks.append(diagnose(observe(Options(pids=(child.pid,))), patience=30))
        wait_ready(log, 2)
        time.sleep(4)  # past the first step
        settled_looks = [diagnose(observe(Options(pids=(child.pid,))), patience=5) for _ in range(3)]
    for found in (*looks, *settled_looks):
        assert not [f for job in found.jobs for f in job.findings if f.severity == "error"], found
        assert found.verdict != "hung"
    assert {found.jobs[0].verdict for found in settled_looks} <= CONTROLS[name]


def test_torchrun_waits_for_a_node_that_never_comes(tmp_path: Path) -> None:
    """No rank exists yet: the agents are the run."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--node-rank=0", "--nproc-per-node=2",
               "--master-addr=127.0.0.1", f"--master-port={free_port()}", str(PROGRAMS / "subgroup.py")]  # fmt: skip
    with started(command, tmp_path / "log") as child:
        job = settled(child.pid, 1.0, "HD401")
        young = diagnose(observe(Options(pids=(child.pid,))), patience=300).jobs[0]
    assert (job.verdict, job.findings[0].code, job.findings[0].culprits) == ("hung", "HD401", (2, 3))
    assert (young.verdict, young.findings[0].severity) == ("waiting", "info")
    assert [unseen.rank for unseen in job.unseen] == [0, 1, 2, 3]


def test_rank_that_never_starts(tmp_path: Path) -> None:
    """A rank alone in its rendezvous, started without any launcher."""
    environment = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = ["env", *(f"{k}={v}" for k, v in environment.items()), sys.executable, str(PROGRAMS / "recv_never.py")]
    with started(command, tmp_path / "log") as child:
        job = settled(child.pid, 2.0, "HD401")
    assert (job.findings[0].code, job.findings[0].culprits, job.findings[0].victims) == ("HD401", (1,), (0,))
    assert job.ranks[0].state == "in-rendezvous"


def test_ranks_in_a_network_namespace_of_their_own(tmp_path: Path) -> None:
    """Their sockets are invisible from the host's namespace; the silence is known all the same."""
    torchrun = f"{sys.executable} -m torch.distributed.run --nproc-per-node=2 --master-port 29512"
    program = f"ip link set lo up && exec {torchrun} {PROGRAMS / 'recv_never.py'}"
    with started(["unshare", "--net", "sh", "-c", program], tmp_path / "log") as child:
        wait_ready(tmp_path / "log", 2)
        time.sleep(2.5)
        job = settled(child.pid, 2.0, "HD204")
    assert job.findings[0].code == "HD204"
    assert all(rank.silent_seconds is not None and 1 < rank.silent_seconds < 60 for rank in job.ranks)
