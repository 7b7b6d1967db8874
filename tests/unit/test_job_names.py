"""What a job is called in the report, on the page and in top."""

from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from hangdoc import codec
from hangdoc.diagnosis import Diagnosis, Job, RankView
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.runs.launch import script
from hangdoc.reasoning.runs.names import name_run
from hangdoc.reasoning.views.detail import details
from hangdoc.render.html import page
from hangdoc.render.text import report
from hangdoc.render.words import job_names, roles
from hangdoc.snapshot import FlightRecorder, RankIdentity, Recorded, RecordedGroup, Unavailable
from tests.unit.builders import c10d, frame, rank, snapshot

CORPUS = Path(__file__).parents[1] / "corpus"


def examined(name: str) -> tuple[Diagnosis, Run]:
    diagnosis, (run,) = examine(codec.read(CORPUS / f"{name}.hangdoc"), patience=2.0)
    return diagnosis, run


def printed(diagnosis: Diagnosis) -> str:
    text = StringIO()
    report(diagnosis, Console(file=text, width=80))
    return text.getvalue()


def test_a_job_is_called_by_script_launcher_and_size() -> None:
    diagnosis, _ = examined("trainer_shard_mismatch")
    (job,) = diagnosis.jobs
    assert job_names([job]) == {job.id: "base_train.py · torchrun · 2 ranks"}


def test_a_job_of_ray_has_the_file_of_its_training_function() -> None:
    """Ray's workers have a title in place of a command line, and learn their rank later."""
    who = RankIdentity(rank=0, source="os.environ", world_size=1)
    call = frame("train_func", 3, "/home/me/finetune.py")
    renamed = rank(0, call, argv=("ray::RayTrainWorker",), environment={"RAY_RAYLET_PID": "7"}, identity=who)
    (job,) = diagnose(snapshot(renamed)).jobs
    assert job_names([job]) == {job.id: "finetune.py · Ray · 1 actor"}


@pytest.mark.parametrize("source", ["os.environ", "process group"])
def test_the_launcher_of_actors_is_ray(source: str) -> None:
    """Ray Train's workers set the variables of their ranks; other actors have them in their process groups only."""
    who = RankIdentity(rank=0, source=source, world_size=1)
    actor = rank(0, frame("f"), argv=("ray::Trainer",), environment={"RAY_RAYLET_PID": "7"}, identity=who)
    (job,) = diagnose(snapshot(actor)).jobs
    assert job.launcher == "Ray"


def test_a_run_has_one_name_whether_its_ranks_move_or_wait() -> None:
    """multiprocessing's `spawn` gives a rank no command line, and the stack of one that moves is not read."""
    stack = (*c10d("all_reduce"), frame("worker", 7, "/home/me/serve.py"),
             frame("_bootstrap", 3, "/usr/lib/python3.11/multiprocessing/process.py", library=True))  # fmt: skip
    call = Recorded(seq=5, op="all_reduce", age_seconds=0.1, timeout_seconds=1800.0, frames=stack)
    group = RecordedGroup(name="0", default=True, issued=5, issued_before=4, pending=(), completed=call)
    record = FlightRecorder(source="memory", age_seconds=0.0, groups=(group,), capacity=2000)
    spawned = ("python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")
    not_read: dict[str, Any] = dict.fromkeys(("stack", "stack_before"), Unavailable(reason="it moves"))
    still: dict[str, Any] = {}
    names = [
        diagnose(snapshot(*(rank(n, *frames, argv=spawned, recorder=record, **more) for n in (0, 1)))).jobs[0].script
        for frames, more in ((stack, still), ((), not_read))
    ]
    assert names == ["serve.py", "serve.py"]


def test_jobs_that_look_alike_have_their_endpoint_too() -> None:
    diagnosis, _ = examined("trainer_shard_mismatch")
    (job,) = diagnosis.jobs
    other = msgspec.structs.replace(job, id="other", master="10.0.0.1:29500")
    assert job_names([job, other]) == {
        job.id: f"base_train.py · torchrun · 2 ranks · {job.master}",
        "other": "base_train.py · torchrun · 2 ranks · 10.0.0.1:29500",
    }


def test_jobs_that_share_their_endpoint_have_their_id() -> None:
    diagnosis, _ = examined("trainer_shard_mismatch")
    (job,) = diagnosis.jobs
    names = job_names([job, msgspec.structs.replace(job, id=f"{job.id}#2")])
    assert names == {one: f"base_train.py · torchrun · 2 ranks · {one}" for one in (job.id, f"{job.id}#2")}


def test_a_job_of_which_nothing_is_known_has_its_id() -> None:
    diagnosis, run = examined("trainer_shard_mismatch")
    unknown = msgspec.structs.replace(run, ranks={}, launchers=(), launcher=None, world_size=None)
    assert (script(unknown), name_run(unknown)) == (None, None)
    bare = msgspec.structs.replace(diagnosis.jobs[0], name=None)
    assert job_names([bare]) == {bare.id: bare.id}


def test_a_name_from_a_process_cannot_write_to_the_terminal() -> None:
    diagnosis, _ = examined("trainer_shard_mismatch")
    evil = msgspec.structs.replace(diagnosis.jobs[0], name="train\x1b[2J.py")
    assert "\x1b" not in job_names([evil])[evil.id]


@pytest.mark.parametrize("case", ["trainer_shard_mismatch", "spawned", "module_level"])
def test_report_and_page_call_a_job_alike(case: str) -> None:
    diagnosis, run = examined(case)
    (name,) = job_names(diagnosis.jobs).values()
    (title,) = [line for line in printed(diagnosis).splitlines() if line.startswith(diagnosis.verdict.upper())]
    assert name in title
    assert diagnosis.jobs[0].id not in title
    assert f"<b>{name}</b>" in page(diagnosis, details(diagnosis, (run,)))


# --- serving engines and actors ---------------------------------------------------------------------------------------

API_SERVER = ("/env/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "Qwen/Qwen2.5-0.5B")
CACHE = "/root/.cache/huggingface/hub/models--Qwen--Qwen2.5-0.5B/snapshots/7ae5"


def served(engine: tuple[str, ...], above: tuple[str, ...], *titles: str, world: int | None = None, **more: Any) -> Job:
    """A job whose ranks have these titles, and the process that started them."""
    size = len(titles) if world is None else world
    ranks = [rank(at, frame("run", 3), world=size, argv=(title,), **more) for at, title in enumerate(titles)]
    parent = rank(0, pid=50, role="launcher", identity=None, owner=None, argv=engine, parent_argv=above)
    (job,) = diagnose(snapshot(parent, *ranks)).jobs
    return job


@pytest.mark.parametrize(
    ("engine", "above", "titles", "name", "named"),
    [
        (("VLLM::EngineCore",), API_SERVER, ("VLLM::Worker_TP0", "VLLM::Worker_TP1"),
         "vLLM · Qwen2.5-0.5B · tp 2", ["TP 0", "TP 1"]),
        (("VLLM::EngineCore",), (*API_SERVER, "--served-model-name", "tiny"), ("VLLM::Worker",),
         "vLLM · tiny · 1 rank", ["EngineCore's worker"]),
        (("VLLM::EngineCore_DP1",), ("/env/bin/python", "/env/bin/vllm", "serve", "Qwen/Qwen2.5-0.5B", "-dp=2"),
         ("VLLM::Worker_PP0_TP0_EP0", "VLLM::Worker_PP0_TP1_EP1", "VLLM::Worker_PP1_TP0_EP0", "VLLM::Worker_PP1_TP1_EP1"),
         "vLLM · Qwen2.5-0.5B · DP 1 of 2 · pp 2 · tp 2 · ep 2",
         ["PP 0, TP 0, EP 0", "PP 0, TP 1, EP 1", "PP 1, TP 0, EP 0", "PP 1, TP 1, EP 1"]),
        (("/env/bin/vllm", "serve", CACHE), (), ("VLLM::EngineCore",), "vLLM · Qwen2.5-0.5B · 1 rank", ["EngineCore"]),
        (("VLLM::EngineCore",), ("python", "/home/me/generate.py"), ("VLLM::Worker_TP0", "VLLM::Worker_TP1"),
         "vLLM · generate.py · tp 2", ["TP 0", "TP 1"]),
        (("VLLM::EngineCore",), (), ("VLLM::Worker_TP0", "VLLM::Worker_TP1"), "vLLM · tp 2", ["TP 0", "TP 1"]),
        (("python", "-m", "sglang.launch_server", "--model-path", "deepseek-ai/DeepSeek-V3"), (),
         ("sglang::scheduler_DP0_TP0", "sglang::scheduler_DP1_TP1"),
         "SGLang · DeepSeek-V3 · dp 2 · tp 2", ["DP 0, TP 0", "DP 1, TP 1"]),
    ],
    ids=["tensor parallel", "one worker", "one of two engines", "no workers", "a script", "no server", "SGLang"],
)  # fmt: skip
def test_an_engine_is_called_by_system_model_and_size(
    engine: tuple[str, ...], above: tuple[str, ...], titles: tuple[str, ...], name: str, named: list[str]
) -> None:
    job = served(engine, above, *titles)
    assert (job.name, [view.role for view in job.ranks]) == (name, named)


def test_a_size_is_not_guessed_from_some_of_the_ranks() -> None:
    assert served(("VLLM::EngineCore",), (), "VLLM::Worker_TP0", world=2).name == "vLLM · 2 ranks"
    assert served(("VLLM::EngineCore",), (*API_SERVER, "-tp", "2"), "VLLM::Worker_TP0", world=2).name == (
        "vLLM · Qwen2.5-0.5B · tp 2"
    )


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"RAY_JOB_ID": "01000000", "RAY_LOCAL_WORLD_SIZE": "2"}, "verl · Ray job 01000000 · 2 actors"),
        ({"RAY_JOB_ID": "01000000"}, "TrainWorker · Ray job 01000000 · 2 actors"),
        ({"RAY_JOB_ID": "<str>"}, "TrainWorker · Ray · 2 actors"),
        ({"RAY_JOB_ID": "ffffffff"}, "TrainWorker · Ray · 2 actors"),  # started before the job
    ],
)
def test_actors_are_called_by_framework_or_class_and_job(variables: dict[str, str], name: str) -> None:
    titles = ("ray::TrainWorker.update_actor", "ray::TrainWorker")
    job = served(("raylet",), (), *titles, environment=variables)
    assert (job.name, [view.role for view in job.ranks]) == (name, ["actor 0", "actor 1"])


def test_a_task_of_ray_is_no_actor() -> None:
    job = served(("raylet",), (), "ray::train_function")
    assert (job.name, job.ranks[0].role) == ("train.py · 1 rank", None)


def test_roles_of_several_ranks_are_counted_together() -> None:
    def together(*named: str | None) -> str:
        (view,) = served((), (), "VLLM::Worker").ranks
        views: list[RankView] = [msgspec.structs.replace(view, role=role) for role in named]
        return roles(views)

    assert together("PP 0, TP 0", "PP 0, TP 1", "PP 0, TP 3") == "PP 0, TP 0-1, 3"
    assert together("TP 1", None) == "TP 1"
    assert together("TP 1", "EngineCore") == "2 roles"
    assert together(None) == "-"


def test_the_report_has_a_column_of_roles_in_80_characters() -> None:
    snap = codec.read(CORPUS / "serving" / "vllm_server_stopped_idle.hangdoc")
    text = printed(diagnose(snap))
    assert "HUNG for 1 min 15 s   vLLM · tp 2 · gloo" in text
    assert "culprit   rank 1 (TP 1)" in text
    assert "1     TP 1  demo" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_page_has_a_column_of_roles_where_ranks_have_some() -> None:
    for name, shown in (("serving/verl_idle", True), ("trainer_shard_mismatch", False)):
        diagnosis, run = examined(name)
        html = page(diagnosis, details(diagnosis, (run,)))
        assert ("<td>actor 1</td>" in html, ">Role</th>" in html) == (shown, shown)
