"""One blind case: its truth, the run, one look at it, and the comparison."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from hangdoc_trainer.offspring import free_port


class Truth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the author of the case says, in `truth.toml`."""

    about: str
    verdict: tuple[str, ...]
    leading: tuple[str, ...]
    """Accepted codes of the main finding."""
    culprits: tuple[int, ...]
    """Empty if no rank is the culprit or if it can be argued about; then it is not scored."""
    look_after: float
    """Seconds from the start to the look."""


class Result(msgspec.Struct, frozen=True):
    """What a look answered about the job with the worst verdict."""

    verdict: str
    leading: str | None
    """Code of the first finding that is more than a note; of the first note if there are only notes."""
    severity: str | None
    culprits: tuple[int, ...]
    jobs: tuple[str, ...]
    seconds: float
    load: float


def inside(folder: Path, hangdoc: list[str], python: Path, stem: Path, slack: float) -> None:
    """Start the case, look once after the time that its truth gives (times `slack`), and write the result. Runs in namespaces of
    its own."""
    truth = msgspec.toml.decode((folder / "truth.toml").read_bytes(), type=Truth)
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "PORT": str(free_port()), "PYTHON": str(python),
        "PATH": f"{python.parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    began = time.monotonic()
    with stem.with_suffix(".log").open("wb") as log:
        # Standard input stays open, as in a terminal.
        run = subprocess.Popen(["bash", "run.sh"], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=log,
                               stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        time.sleep(max(truth.look_after * slack - (time.monotonic() - began), 0.0))
        ended = run.poll()
        load = os.getloadavg()[0]
        began = time.monotonic()
        bundle = stem.with_suffix(".hangdoc")
        look = subprocess.run([*hangdoc, "diagnose", "--json", "--save", str(bundle)], capture_output=True, text=True,
                              timeout=300, check=False)  # fmt: skip
        seconds = time.monotonic() - began
    stem.with_suffix(".json").write_text(look.stdout)
    note = f"run.sh had ended with {ended}.\n" if ended is not None else ""
    report = subprocess.run(
        [*hangdoc, "diagnose", str(bundle)], capture_output=True, text=True, timeout=300, check=False
    )
    stem.with_suffix(".txt").write_text(note + report.stdout + look.stderr)
    result = _answer(json.loads(look.stdout) if look.stdout.strip() else {"verdict": "none", "jobs": []}, seconds, load)
    stem.with_suffix(".result.json").write_bytes(msgspec.json.encode(result))


def _answer(document: dict[str, Any], seconds: float, load: float) -> Result:
    nothing: dict[str, Any] = {"verdict": "none", "findings": []}
    jobs: list[dict[str, Any]] = document["jobs"]
    job = next((job for job in jobs if job["verdict"] == document["verdict"]), nothing)
    findings: list[dict[str, Any]] = job["findings"]
    first = next((f for f in findings if f["severity"] != "info"), findings[0] if findings else {})
    return Result(
        verdict=job["verdict"],
        leading=first.get("code"),
        severity=first.get("severity"),
        culprits=tuple(first.get("culprits", ())),
        jobs=tuple(job["verdict"] for job in jobs),
        seconds=round(seconds, 1),
        load=round(load, 1),
    )


def rating(truth: Truth, result: Result) -> str:
    """One line: the answer and what is wrong in it."""
    hung = "hung" in truth.verdict
    wrong = []
    if result.verdict not in truth.verdict:
        wrong.append(f"verdict is {'/'.join(truth.verdict)}")
    if hung and truth.leading and result.leading not in truth.leading:
        wrong.append(f"cause is {'/'.join(truth.leading)}")
    if hung and truth.culprits and set(result.culprits) != set(truth.culprits):
        wrong.append(f"culprits are {list(truth.culprits)}")
    if not hung and result.severity in ("error", "warning") and result.leading not in truth.leading:
        wrong.append("false finding")
    answer = f"{result.verdict:<8} {result.leading or '-'} {list(result.culprits)} {len(result.jobs)} jobs {result.seconds:.1f} s"
    return f"{answer:<44} {'WRONG: ' + '; '.join(wrong) if wrong else 'right'}"
