"""Cases of hangbench, for real: other people's scripts, frozen and healthy, started and diagnosed from outside.

`make hangbench` runs them all; here are those whose launch, idiom or environment no recording can show.
"""

import sys
import time
from pathlib import Path

import pytest

from hangbench.case import Case, cases
from hangbench.run import Running
from hangbench.score import Score, score
from hangdoc.diagnosis import Diagnosis
from hangdoc.observe.look.observe import Options, observe
from hangdoc.procfs import ProcFS
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Unavailable
from tests.live.needs import needs
from tests.live.watched import running

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
HUNG = (  # without those that sleep and have no launcher: other workers of pytest, in the group of their parent, may end it
    "dataset_object",
    "full_pipe",
    "gil_holder",
    "inner_environment",
    "port_taken",
    "rank_from_arguments",
    "worker_lock_at_fork",
)
CONTROLS = (
    "child_at_work",  # started below the observer, as by `hangdoc run`
    "cpu_quota",
    "download_on_rank0",
    "orphans",
    "slow_link",
    "tight_loop",
)
_NEEDED = dict.fromkeys(("two-hosts", "slow-link", "cut-link"), ("root", "ip", "tc")) | {"cpu-quota": ("root",)}


def case_of(name: str) -> Case:
    """The case, if this machine can have the situation that it is in."""
    case = cases()[name]
    needs(*_NEEDED.get(case.situation or "", ()))
    return case


def look(run: Running, window: float = 1.0) -> tuple[Diagnosis, Score]:
    snapshot = observe(Options(pids=tuple(run.launchers), window=window))
    found = diagnose(snapshot, patience=run.case.tolerance)
    return found, score(run.case, found, snapshot)


@pytest.mark.parametrize("name", HUNG)
def test_hung(name: str) -> None:
    with Running(case_of(name)) as run:
        found, judged = look(run)
    assert judged.right, (judged.complaints(), [finding.summary for job in found.jobs for finding in job.findings])


@pytest.mark.parametrize("name", CONTROLS)
def test_control(name: str) -> None:
    """From the first moment on: imports, rendezvous, first step; and then in its stride."""
    starting: list[Diagnosis] = []
    with Running(case_of(name), while_starting=lambda run: starting.append(look(run, 0.2)[0])) as run:
        settled = [look(run) for _ in range(2)]
    for found in starting:
        assert found.verdict != "hung"
        assert not [f for job in found.jobs for f in job.findings if f.severity == "error"], found
    for found, judged in settled:
        assert judged.right, (judged.complaints(), [finding.summary for job in found.jobs for finding in job.findings])


def test_an_agent_that_waits_is_young_before_it_is_hung() -> None:
    """No rank exists yet: the agents are the run."""
    with Running(cases()["node_missing"]) as run:
        snapshot = observe(Options(pids=tuple(run.launchers)))
    young, old = (diagnose(snapshot, patience=patience) for patience in (300, run.case.tolerance))
    judged = score(run.case, old, snapshot)
    assert judged.right, judged.complaints()
    (job,) = young.jobs
    assert (job.verdict, job.findings[0].severity) == ("waiting", "info")
    assert [unseen.rank for unseen in job.unseen] == [0, 1, 2, 3]


def test_ranks_in_a_network_namespace_of_their_own() -> None:
    """Their sockets are invisible from the host's namespace; the silence is known all the same."""
    needs("root", "unshare", "ip")
    run = Running(cases()["recv_never"])
    run.wrap = lambda node, command: ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    with run:
        found, judged = look(run)
    assert judged.right, judged.complaints()
    assert all(rank.silent_seconds is not None and 1 < rank.silent_seconds < 60 for rank in found.jobs[0].ranks)


def test_a_spawned_rank_that_is_stopped_is_found_stopped_and_stays_so() -> None:
    """No environment names it: who it is must be read from its own frames, without a pause."""
    with Running(cases()["spawned_rank_stops"]) as run:
        found = diagnose(observe(Options(pids=tuple(run.launchers)))).jobs[0]
        (stopped,) = [rank.pid for rank in found.ranks if rank.rank == 2]
        state = ProcFS().stat(str(stopped)).state
    leading = found.findings[0]
    assert (found.verdict, leading.code, leading.culprits) == ("hung", "HD302", (2,))
    assert state == "T"


def test_ranks_in_a_root_of_their_own_are_read_by_their_python_frames() -> None:
    """Their libraries have names that mean nothing here: native frames say nothing, and must not be believed."""
    needs("root", "unshare")
    script = f'mount --make-rprivate / && mount --bind {sys.prefix} /mnt && exec "$@"'
    run = Running(cases()["early_stop"], variables={"TORCH_FR_BUFFER_SIZE": "0"})  # else the record names the call
    run.wrap = lambda node, command: ["unshare", "--mount", "sh", "-c", script, "sh", "/mnt/bin/python", *command[1:]]
    with run:
        seen = observe(Options(pids=tuple(run.launchers)))
    found = diagnose(seen, patience=run.case.tolerance).jobs[0]
    waiting = [rank for rank in found.ranks if rank.state == "in-collective"]
    (native,) = [process.native for process in seen.hosts[0].processes if process.pid == waiting[0].pid]
    assert isinstance(native, Unavailable)
    assert "no frame of torch" in native.reason
    assert [rank.operation.op for rank in found.ranks if rank.operation is not None] == [
        op for op in run.case.operations if op
    ]
    assert found.findings[0].code == run.case.finding


def test_a_rank_that_only_a_variable_of_its_script_names(tmp_path: Path) -> None:
    """No environment, argument or process group says that it is rank 1 of 2: its rendezvous is a file, and not complete."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nimport torch.distributed as dist\nrank = int(os.environ['TASK'])\nprint('ready', flush=True)\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/rendezvous', rank=rank, world_size=2)\n"
    )
    with running(tmp_path / "run", sys.executable, str(script), TASK="1") as run:
        run.wait_for("ready")
        until = time.monotonic() + 200  # it is ready a moment before it is in the rendezvous
        while not (jobs := diagnose(observe(Options(pids=(run.launcher.pid,)))).jobs):
            assert time.monotonic() < until
    assert [(rank.rank, rank.state) for rank in jobs[0].ranks if rank.pid == run.launcher.pid] == [(1, "in-rendezvous")]


def test_the_bench_leaves_nothing_behind() -> None:
    with Running(cases()["async_work"]) as run:
        _, judged = look(run)
        ranks = list(run.ranks().values())
    assert judged.right, judged.complaints()
    assert len(ranks) == 2
    assert not [pid for pid in ranks if _runs(pid)]
    assert not run.processes()


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie, which init will have reaped in a moment."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
