"""Recorded real runs, replayed: the right answer, the same in any order, and never wrong for seeing less."""

import os
import random
import subprocess
import sys

import msgspec
import pytest

from hangbench.case import Case, cases
from hangbench.look import judged as judge
from hangbench.record import CORPUS, bundle, publishable
from hangbench.score import score
from hangdoc import codec, redact
from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.summary import summarized
from hangdoc.snapshot import Process, Snapshot, Unavailable

CASES = list(cases().values())
BUNDLES = sorted(CORPUS.glob("*.hangdoc"))
GONE = Unavailable(reason="removed by the test")
SOURCES = (
    "clocks",
    "stack",
    "stack_before",
    "native",
    "interpreter",
    "progress",
    "data",
    "runtime",
    "environment",
    "files",
)
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def load(case: Case) -> Snapshot:
    return codec.read(bundle(case.name))


def test_every_case_is_recorded() -> None:
    assert {path.stem for path in BUNDLES} == {case.name for case in CASES}
    assert len(CASES) >= 40
    assert sum(case.control for case in CASES) >= 15


@every_case
def test_the_recorded_run_is_told_right(case: Case) -> None:
    judged = judge(case, load(case)).score
    assert judged.right, judged.complaints()


@every_case
def test_order_changes_nothing(case: Case) -> None:
    snapshot = load(case)
    host = snapshot.hosts[0]
    expected = diagnose(snapshot, patience=case.tolerance)
    for seed in range(3):
        processes = list(host.processes)
        random.Random(seed).shuffle(processes)  # noqa: S311
        shuffled = msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, processes=tuple(processes)),))
        assert diagnose(shuffled, patience=case.tolerance) == expected


def test_no_order_hangs_on_the_hash_seed() -> None:
    """Sets of texts are ordered anew in every process: the answer must not show it."""
    program = (
        "import sys, msgspec; from pathlib import Path; from hangdoc import codec; "
        "from hangdoc.reasoning.engine import diagnose; "
        "print(*(msgspec.json.encode(diagnose(codec.read(Path(p)))) for p in sys.argv[1:]), sep='\\n')"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program, *map(str, BUNDLES)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(answers) == 1


# HD901 is about what is missing: it must grow surer.
def confidences(diagnosis: Diagnosis) -> dict[tuple[str, str, tuple[int, ...]], float]:
    return {
        (job.id, f.code, f.culprits): f.confidence for job in diagnosis.jobs for f in job.findings if f.code != "HD901"
    }


def without(snapshot: Snapshot, source: str, only: int | None = None) -> Snapshot:
    """The snapshot with one source removed from all ranks, or from the one of a pid."""
    host = snapshot.hosts[0]

    def strip(process: Process) -> Process:
        if process.role != "rank" or only not in (None, process.pid):
            return process
        return msgspec.structs.replace(process, **{source: GONE})

    if source in ("connections", "machine"):
        return msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, **{source: GONE}),))
    processes = tuple(strip(process) for process in host.processes)
    return msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, processes=processes),))


@every_case
@pytest.mark.parametrize("source", [*SOURCES, "connections", "machine"])
def test_seeing_less_never_makes_wrong(case: Case, source: str) -> None:
    """A hung run stays hung or becomes unknown, a control never becomes hung, and whoever is blamed is to blame."""
    snapshot = load(case)
    ranks = [process.pid for process in snapshot.hosts[0].processes if process.role == "rank"]
    for only in (None, *(ranks if source not in ("connections", "machine") else ())):
        less = diagnose(without(snapshot, source, only), patience=case.tolerance)
        assert not [p for p in less.problems if p.startswith("rule ")], less.problems
        judged = score(case, less, snapshot)
        said = {"unknown", *case.verdict} if "hung" in case.verdict else {"unknown", "waiting", "healthy"}
        assert judged.verdict in said, (only, judged.verdict)
        errors = [f for job in less.jobs for f in job.findings if f.severity == "error"]
        for finding in errors:
            # Of several culprits one may not be seen, or one be named among others, but never a rank in their stead.
            named, truth = set(finding.culprits), set(case.culprits)
            assert not named or not truth or truth <= named or named <= truth, (only, finding)


@every_case
def test_less_evidence_never_makes_surer(case: Case) -> None:
    snapshot = load(case)
    known = confidences(diagnose(snapshot, patience=case.tolerance))
    for source in (*SOURCES, "connections", "machine"):
        less = diagnose(without(snapshot, source), patience=case.tolerance)
        for key, confidence in confidences(less).items():
            assert confidence <= known.get(key, 1.0), (source, key)


@every_case
@pytest.mark.parametrize("locals_", redact.LOCALS)
def test_the_answer_needs_nothing_that_is_removed(case: Case, locals_: redact.Locals) -> None:
    snapshot = load(case)
    kept = redact.snapshot(snapshot, locals_)
    assert redact.snapshot(kept, locals_) == kept
    assert _told(diagnose(kept, patience=case.tolerance)) == _told(diagnose(snapshot, patience=case.tolerance))


def _told(diagnosis: Diagnosis) -> object:
    """All of an answer but its quotations. The first line of a finding may quote a line of source."""
    return [
        (job.id, job.verdict, job.unseen, [msgspec.structs.replace(rank, where=None) for rank in job.ranks],
         [msgspec.structs.replace(finding, summary="", evidence=()) for finding in job.findings])
        for job in diagnosis.jobs
    ]  # fmt: skip


def test_recordings_hold_nothing_of_the_recording_machine() -> None:
    for path in BUNDLES:
        snapshot = codec.read(path)
        assert publishable(snapshot) == snapshot


def test_a_summary_gives_the_same_answer() -> None:
    """Of the ranks that are alike, it has the evidence of one. A bundle with such ranks is read as it was written."""
    alike = 0
    for case in CASES:
        snapshot = load(case)
        short = summarized(snapshot)
        alike += sum(process.like is not None for host in short.hosts for process in host.processes)
        assert codec.decode(codec.encode(short)) == short, case.name
        assert _without_like(diagnose(short)) == _without_like(diagnose(snapshot)), case.name
    assert alike >= 10


def _without_like(diagnosis: Diagnosis) -> Diagnosis:
    replace = msgspec.structs.replace
    jobs = (replace(job, ranks=tuple(replace(rank, like=None) for rank in job.ranks)) for job in diagnosis.jobs)
    return replace(diagnosis, jobs=tuple(jobs))
