"""What a job is called in the report, on the page and in top."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from hangdoc import codec
from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.runs.launch import script
from hangdoc.reasoning.views.detail import details
from hangdoc.render.html import page
from hangdoc.render.text import report
from hangdoc.render.words import job_names
from hangdoc.snapshot import RankIdentity
from tests.unit.builders import frame, rank, snapshot

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
    assert job_names([job]) == {job.id: "finetune.py · Ray · 1 rank"}


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
    assert script(replace(run, ranks={}, launchers=())) is None
    bare = msgspec.structs.replace(diagnosis.jobs[0], script=None, launcher=None, world_size=None)
    assert job_names([bare]) == {bare.id: bare.id}


def test_a_name_from_a_process_cannot_write_to_the_terminal() -> None:
    diagnosis, _ = examined("trainer_shard_mismatch")
    evil = msgspec.structs.replace(diagnosis.jobs[0], script="train\x1b[2J.py")
    assert "\x1b" not in job_names([evil])[evil.id]


@pytest.mark.parametrize("case", ["trainer_shard_mismatch", "spawned", "module_level"])
def test_report_and_page_call_a_job_alike(case: str) -> None:
    diagnosis, run = examined(case)
    (name,) = job_names(diagnosis.jobs).values()
    (title,) = [line for line in printed(diagnosis).splitlines() if line.startswith(diagnosis.verdict.upper())]
    assert name in title
    assert diagnosis.jobs[0].id not in title
    assert f"<b>{name}</b>" in page(diagnosis, details(diagnosis, (run,)))
