"""Compares hangdoc's diagnosis of launched runs with the truth."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hangbench.launchers.launched import WORLD, Launched

Document = dict[str, Any]
"""The document of `hangdoc diagnose --json`."""
_CULPRIT = WORLD - 1


def diagnose(*arguments: str, bundle: Path | None = None) -> Document:
    """The document of `hangdoc diagnose ARGUMENTS`. Saves the evidence as `bundle` if it is given. Raises RuntimeError if the
    command prints no document."""
    command = [sys.executable, "-m", "hangdoc", "diagnose", "--json", *arguments]
    if bundle is not None:
        command += ["--save", str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    try:
        document: Document = json.loads(done.stdout)
    except ValueError as error:
        problem = f"hangdoc diagnose {' '.join(arguments)} exited with code {done.returncode}: {done.stderr[-500:]}"
        raise RuntimeError(problem) from error
    return document


def pids_of(job: Document) -> set[int]:
    """The pids of a job's ranks."""
    return {rank["pid"] for rank in job["ranks"] if rank["pid"]}


def summary(job: Document) -> str:
    """A job in one line."""
    ranks = ", ".join(f"{rank['rank']}: {rank['state']}" for rank in job["ranks"])
    lead = next((f"{f['code']} culprits {f['culprits']}" for f in job["findings"]), "nothing found")
    return f"{job['id']} ({job['launcher']}, world {job['world_size']}) {job['verdict']}, {lead} [{ranks}]"


def wrong_about(run: Launched, document: Document) -> list[str]:
    """What is wrong in a document about a run; empty if it is right."""
    ranks = run.ranks()
    mine = [job for job in document["jobs"] if pids_of(job) & set(ranks.values())]
    if len(mine) != 1:
        return [f"{len(mine)} jobs instead of one: " + "; ".join(summary(job) for job in mine)]
    job = mine[0]
    reported = {rank["rank"]: rank["pid"] for rank in job["ranks"]}
    wrong = []
    if reported != ranks:
        wrong.append(f"ranks {reported} instead of {ranks}")
    if job["world_size"] != WORLD:
        wrong.append(f"world size {job['world_size']}")
    if run.part.launcher.reported_as and job["launcher"] not in (None, run.part.launcher.reported_as):
        wrong.append(f"launcher {job['launcher']} instead of {run.part.launcher.reported_as}")
    if job["verdict"] != (verdict := "hung" if run.hung else "healthy"):
        wrong.append(f"verdict {job['verdict']} instead of {verdict}")
    errors = [finding for finding in job["findings"] if finding["severity"] == "error"]
    if not run.hung:
        wrong += [f"{finding['code']} {finding['summary']}" for finding in errors]
    elif not errors or errors[0]["culprits"] != [_CULPRIT]:
        lead = f"{errors[0]['code']} with culprits {errors[0]['culprits']}" if errors else "no error"
        wrong.append(f"{lead} instead of culprit {_CULPRIT}")
    return [f"{', '.join(wrong)} in: {summary(job)}"] if wrong else []


def strangers(runs: Iterable[Launched], document: Document) -> list[str]:
    """Jobs and ranks of a document that belong to none of these runs."""
    own_pids = {pid for run in runs for pid in run.processes()}
    return [f"a job of another run: {summary(job)}" for job in document["jobs"] if not pids_of(job) & own_pids]


def wrong_on_the_host(runs: list[Launched], document: Document) -> dict[Launched, list[str]]:
    """What is wrong in a look at the whole host, by run. Jobs of no run count with the first one."""
    wrong_by_run = {run: wrong_about(run, document) for run in runs}
    wrong_by_run[runs[0]] += strangers(runs, document)
    return wrong_by_run


def jobs_of(run: Launched, document: Document) -> str:
    """The jobs with a rank of this run, in words."""
    return "; ".join(summary(job) for job in document["jobs"] if pids_of(job) & set(run.ranks().values()))


def by_pid(run: Launched, bundle: Path | None = None) -> tuple[str, list[str]]:
    """(jobs in words, what is wrong) of a look at a run by its launcher's pid."""
    return _alone(run, *(word for pid in run.roots for word in ("--pid", str(pid))), bundle=bundle)


def by_watchdog(run: Launched) -> tuple[str, list[str]]:
    """(jobs in words, what is wrong) of the report of a run's watchdog."""
    if not run.hung:
        return "", [
            f"the watchdog reported a healthy run as hung: {path.name}" for path in run.folder.glob("hangdoc-*")
        ]
    try:
        return _alone(run, str(run.wait_for_report()))
    except RuntimeError as error:
        return "", [str(error)]


def _alone(run: Launched, *arguments: str, bundle: Path | None = None) -> tuple[str, list[str]]:
    try:
        document = diagnose(*arguments, bundle=bundle)
    except RuntimeError as error:
        return "", [str(error)]
    return jobs_of(run, document), wrong_about(run, document) + strangers([run], document)
