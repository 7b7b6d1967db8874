"""Recorded looks at serving systems and RL actors on CPUs, in known states: vLLM, TRL, SGLang, verl, OpenRLHF, a plain server."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from hangbench.record import CORPUS, publishable
from hangdoc import codec
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Holder, Process, Snapshot
from tests.unit.builders import frame, stack

SERVING = CORPUS / "serving"
RECORDED = sorted(path.stem for path in SERVING.glob("*.hangdoc"))
IDLE = {
    "model_server_idle": "pid 6 (python)",
    "vllm_server_idle": "pid 24 (VLLM::EngineCor)",
    "verl_idle": "the Ray driver",
}


@pytest.mark.parametrize(
    ("name", "verdict", "code", "culprits"),
    [
        ("model_server_idle", "waiting", "HD602", (0,)),
        ("model_server_load", "healthy", None, ()),
        ("model_server_engine_stopped", "hung", "HD302", ()),
        ("model_server_engine_killed", "hung", "HD305", (0,)),
        ("model_server_swallow", "hung", "HD203", (2,)),
        # Rank 0 and the workers come to the call on ways of their own, with another batch size in each step.
        ("engine_leaves_step", "hung", "HD203", (2,)),
        ("queue_timeout_idle", "waiting", "HD602", (0, 1)),
        ("queue_front_stopped", "hung", "HD302", ()),
        ("keepalive_idle", "waiting", "HD602", (0,)),
        ("thread_server_load", "healthy", None, ()),
        ("thread_server_swallow", "hung", "HD201", (0, 1)),
        ("vllm_server_idle", "waiting", "HD602", (0, 1)),
        ("vllm_server_load", "healthy", None, ()),
        ("vllm_server_engine_stopped", "hung", "HD302", ()),
        ("vllm_server_front_stopped", "hung", "HD302", ()),
        ("vllm_server_front_killed", "hung", "HD305", ()),
        ("vllm_server_stopped_idle", "hung", "HD302", (1,)),
        ("vllm_gloo_stopped", "hung", "HD302", (1,)),
        ("verl_idle", "waiting", "HD602", (0, 1)),
        ("verl_stopped", "hung", "HD302", (1,)),
        ("verl_engine_stopped", "hung", "HD302", ()),
        ("verl_swallow", "hung", "HD202", (1,)),
        ("verl_rollout_stopped", "hung", "HD302", ()),
        ("trl_idle", "waiting", "HD602", (0, 1)),
        ("trl_front_stopped", "hung", "HD302", ()),
        ("trl_worker_stopped", "hung", "HD302", ()),
        ("sglang_idle", "healthy", None, ()),
        ("sglang_stopped", "hung", "HD302", (1,)),
        ("openrlhf_idle", "waiting", "HD602", (0, 1)),
        ("openrlhf_swallow", "hung", "HD202", (1,)),
        ("openrlhf_no_rollout", "hung", "HD202", (2,)),
    ],
)
def test_the_recorded_system_is_told_right(
    name: str, verdict: str, code: str | None, culprits: tuple[int, ...]
) -> None:
    (job,) = diagnose(codec.read(SERVING / f"{name}.hangdoc")).jobs
    first = job.findings[0] if job.findings else None
    assert (job.verdict, first and first.code) == (verdict, code)
    assert first is None or first.culprits == culprits


@pytest.mark.parametrize("name", IDLE)
def test_idle_is_not_hung_whatever_the_patience(name: str) -> None:
    (job,) = diagnose(codec.read(SERVING / f"{name}.hangdoc"), patience=0.0).jobs
    (finding,) = job.findings
    assert (job.verdict, finding.severity) == ("waiting", "info")
    assert finding.summary.startswith("idle: ")
    assert f" waiting for requests from {IDLE[name]}" in finding.summary


def test_who_is_stopped_is_reported_once() -> None:
    (job,) = diagnose(codec.read(SERVING / "model_server_engine_stopped.hangdoc")).jobs
    (finding,) = job.findings
    assert finding.summary == (
        "pid 6 (python), from which rank 0 gets requests, is stopped by a signal (state T); ranks 1-2 are waiting for rank 0 in "
        "broadcast_object_list"
    )
    assert finding.commands == ("kill -CONT 6",)


@pytest.mark.parametrize("name", RECORDED)
def test_it_holds_nothing_of_the_recording_machine(name: str) -> None:
    snapshot = codec.read(SERVING / f"{name}.hangdoc")
    assert publishable(snapshot) == snapshot


def change(snapshot: Snapshot, name: str, changed: Callable[[Process], Process]) -> Snapshot:
    """A recorded look in which the processes with a name are other ones."""
    (host,) = snapshot.hosts
    processes = tuple(changed(each) if each.name == name else each for each in host.processes)
    return replace(snapshot, hosts=(replace(host, processes=processes),))


@pytest.fixture
def idle() -> Snapshot:
    """vLLM's own server without a request."""
    return codec.read(SERVING / "vllm_server_idle.hangdoc")


ENGINE = "VLLM::EngineCor"


def test_an_engine_without_its_front_end_is_cut_off_at_once(idle: Snapshot) -> None:
    look = change(idle, ENGINE, lambda engine: replace(engine, launcher_gone=True, ppid=1))
    (job,) = diagnose(look, patience=600.0).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.code, finding.severity, finding.culprits) == ("hung", "HD305", "error", ())
    assert finding.summary.startswith(
        f"pid 24 ({ENGINE}), from which ranks 0-1 get requests, gets none itself any more"
    )


@pytest.mark.parametrize(("is_parent", "patience", "verdict"), [(True, 600.0, "hung"), (False, 600.0, "waiting"),
                                                               (False, 30.0, "hung")])  # fmt: skip
def test_what_is_stopped_behind_an_engine_is_named(
    idle: Snapshot, is_parent: bool, patience: float, verdict: str
) -> None:
    """The process that started it sends it requests; of another one it is only known that it is connected with the engine."""

    def cut(engine: Process) -> Process:
        front = Holder(pid=engine.ppid if is_parent else 77, name="python", state="T")
        return replace(engine, others_stopped=(front,))

    (job,) = diagnose(change(idle, ENGINE, cut), patience=patience).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.code, finding.culprits) == (verdict, "HD302", ())
    assert "(python), with which ranks 0-1 are connected through pid 24, is stopped by a signal" in finding.summary


def test_who_owes_the_engine_a_reply_is_not_idle(idle: Snapshot) -> None:
    """All workers dropped a request, and went back to wait for the next one."""
    waits = frame(
        "MultiprocExecutor.collective_rpc.<locals>.get_response", 9, "/lib/vllm/v1/executor/multiproc_executor.py"
    )
    loop = frame("EngineCoreProc.run_busy_loop", 9, "/lib/vllm/v1/engine/core.py")
    look = change(idle, ENGINE, lambda engine: replace(engine, stack=stack(waits, loop)))
    (job,) = diagnose(look).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.code, finding.culprits) == ("hung", "HD202", (0, 1))
    assert f"waiting for requests from pid 24 ({ENGINE}), which is waiting for a reply" in finding.summary


@pytest.mark.parametrize("name", [name for name in RECORDED if name != "sglang_rl_no_rollout"])
def test_the_rounds_inside_a_request_are_no_batches(name: str) -> None:
    """The ranks of model_server_swallow stand in a loop over the layers of a model."""
    views = [view for job in diagnose(codec.read(SERVING / f"{name}.hangdoc")).jobs for view in job.ranks]
    assert {(view.batches_done, view.batches_total) for view in views} == {(None, None)}


@pytest.mark.parametrize(
    ("name", "called", "roles"),
    [
        ("vllm_server_idle", "vLLM · tiny · tp 2", ("TP 0", "TP 1")),
        ("verl_swallow", "verl · Ray job 01000000 · 2 actors", ("actor 0", "actor 1")),
        ("model_server_idle", "model_server.py · 3 ranks", (None, None, None)),
    ],
)
def test_jobs_and_ranks_are_called_as_people_call_them(name: str, called: str, roles: tuple[str | None, ...]) -> None:
    (job,) = diagnose(codec.read(SERVING / f"{name}.hangdoc")).jobs
    assert (job.name, tuple(view.role for view in job.ranks)) == (called, roles)


def test_a_group_is_called_as_vllm_calls_it() -> None:
    (job,) = diagnose(codec.read(SERVING / "vllm_gloo_stopped.hangdoc")).jobs
    assert job.findings[0].summary.endswith("rank 0 is waiting for it in all_reduce of group tp:0")
    assert {"tp:0", "world:0 (cpu)"} <= {group.label for group in job.groups}


def test_a_group_between_trainers_and_a_server_blames_no_trainer() -> None:
    """The server's ranks never entered the broadcast of new weights. They are another run."""
    jobs = diagnose(codec.read(SERVING / "sglang_rl_no_rollout.hangdoc")).jobs
    trainers, server = sorted(jobs, key=lambda job: job.launcher is None)
    (finding,) = trainers.findings
    assert (trainers.verdict, finding.code, finding.culprits, server.verdict) == ("hung", "HD901", (), "healthy")
    assert "broadcast of group weights3, which needs processes outside of this run" in finding.summary
