"""Recorded looks at serving systems: vLLM's own server and verl's actors on CPUs, and a plain model server, in known states."""

import pytest

from hangbench.record import CORPUS, publishable
from hangdoc import codec
from hangdoc.reasoning.engine import diagnose

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
        ("model_server_load", "healthy", "HD601", (0,)),
        ("model_server_engine_stopped", "hung", "HD302", ()),
        ("model_server_swallow", "hung", "HD203", (2,)),
        ("vllm_server_idle", "waiting", "HD602", (0, 1)),
        ("vllm_server_load", "healthy", None, ()),
        ("vllm_server_engine_stopped", "hung", "HD302", ()),
        ("vllm_server_stopped_idle", "hung", "HD302", (1,)),
        ("vllm_gloo_stopped", "hung", "HD302", (1,)),
        ("verl_idle", "waiting", "HD602", (0, 1)),
        ("verl_stopped", "hung", "HD302", (1,)),
        ("verl_engine_stopped", "hung", "HD302", ()),
        ("verl_swallow", "hung", "HD202", (1,)),
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


@pytest.mark.parametrize("name", RECORDED)
def test_the_rounds_inside_a_request_are_no_batches(name: str) -> None:
    """The ranks of model_server_swallow stand in a loop over the layers of a model."""
    (job,) = diagnose(codec.read(SERVING / f"{name}.hangdoc")).jobs
    assert {(view.batches_done, view.batches_total) for view in job.ranks} == {(None, None)}


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
