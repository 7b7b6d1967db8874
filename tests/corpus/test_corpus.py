"""Recorded real runs, replayed: the right answer, the same in any order, and never wrong for seeing less.

Each case was recorded twice: once with torch's record of the ranks' calls (`recorded/`), and once without it, as with a torch
before 2.11 and Gloo."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from hangbench.case import Case, cases
from hangbench.look import judged as judge
from hangbench.record import CORPUS, RECORDED, bundle, publishable
from hangbench.score import score
from hangdoc import codec, redact
from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.summary import summarized
from hangdoc.snapshot import Clocks, Process, Snapshot, Unavailable

CASES = list(cases().values())
BUNDLES = sorted([*CORPUS.glob("*.hangdoc"), *RECORDED.glob("*.hangdoc")])
TIES = {
    "averaging_period", "critic_skipped", "gather_by_data", "gather_early_return", "hf_trainer_preempted", "nan_skip",
    "nan_skip_fsdp", "skipped_work", "trainer_skipped_collective", "zero_loss",
}  # fmt: skip
"""Without the record, nothing shows which side is odd: HD201 names all."""
MINORITIES = {"expert_without_tokens", "metrics_per_class"}
"""Without the record, the fewer ranks are odd, and nothing shows that they left out a call."""


def without_record(case: Case) -> Case:
    """What is right about a look that has no record of calls."""
    if case.name not in TIES | MINORITIES:
        return case
    everyone = tuple(sorted({*case.culprits, *case.victims})) if case.name in TIES else case.culprits
    victims = () if case.name in TIES else case.victims
    return msgspec.structs.replace(case, finding="HD201", culprits=everyone, victims=victims)


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
    "recorder",
    "loops",
)


class Look(NamedTuple):
    """A recording, and what is right about it."""

    case: Case
    path: Path

    def load(self) -> Snapshot:
        return codec.read(self.path)


LOOKS = [
    *(
        Look(without_record(case), CORPUS / f"{case.name}.hangdoc")
        for case in CASES
        if (CORPUS / f"{case.name}.hangdoc").exists()
    ),
    *(Look(case, bundle(case.name)) for case in CASES),
]
every_look = pytest.mark.parametrize("look", LOOKS, ids=lambda look: f"{look.path.parent.name}-{look.case.name}")


def test_every_case_is_recorded() -> None:
    names = {case.name for case in CASES}
    assert {path.stem for path in RECORDED.glob("*.hangdoc")} == names
    assert {path.stem for path in CORPUS.glob("*.hangdoc")} <= names
    assert len(CASES) >= 40
    assert sum(case.control for case in CASES) >= 15


@every_look
def test_the_recorded_run_is_told_right(look: Look) -> None:
    case = look.case
    judged = judge(case, look.load()).score
    assert judged.verdict_right, judged.complaints()
    assert judged.right == (case.known_miss is None), judged.complaints()


@every_look
def test_order_changes_nothing(look: Look) -> None:
    case = look.case
    snapshot = look.load()
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


@every_look
@pytest.mark.parametrize("source", [*SOURCES, "connections", "machine"])
def test_seeing_less_never_makes_wrong(look: Look, source: str) -> None:
    """A hung run stays hung or becomes unknown, a control never becomes hung, and whoever is blamed is to blame."""
    case, snapshot = look.case, look.load()
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


PTRACE = ("stack", "stack_before", "native", "interpreter", "progress", "recorder", "loops", "communicators", "stores")
"""What needs the right to attach to a rank, and the system calls of its threads."""
_CALL = {
    "syscall": None,
    "files": (),
    "sleep_seconds": None,
    "whole_sleep_seconds": None,
    "timeout_seconds": None,
    "timed": None,
}


def without_ptrace(process: Process) -> Process:
    clocks = process.clocks
    if isinstance(clocks, Clocks):
        threads = tuple(msgspec.structs.replace(thread, **_CALL) for thread in clocks.threads)
        clocks = msgspec.structs.replace(clocks, threads=threads)
    return msgspec.structs.replace(process, clocks=clocks, **dict.fromkeys(PTRACE, GONE))


@every_look
def test_without_ptrace_only_what_needs_none_decides(look: Look) -> None:
    """A control never becomes hung, a hung run is hung or unknown, and whoever is blamed is to blame."""
    snapshot = look.load()
    (host,) = snapshot.hosts
    less = msgspec.structs.replace(host, processes=tuple(map(without_ptrace, host.processes)))
    found = diagnose(msgspec.structs.replace(snapshot, hosts=(less,)), patience=look.case.tolerance)
    assert not [p for p in found.problems if p.startswith("rule ")], found.problems
    verdicts = {job.verdict for job in found.jobs}
    whole = {job.verdict for job in diagnose(snapshot, patience=look.case.tolerance).jobs}
    assert "hung" in whole or "hung" not in verdicts
    assert "hung" not in whole or verdicts & {"hung", "unknown"}
    for finding in (f for job in found.jobs for f in job.findings if f.severity == "error"):
        named, truth = set(finding.culprits), set(look.case.culprits)
        assert not named or not truth or truth <= named or named <= truth, finding


@every_look
def test_less_evidence_never_makes_surer(look: Look) -> None:
    case = look.case
    snapshot = look.load()
    known = confidences(diagnose(snapshot, patience=case.tolerance))
    for source in (*SOURCES, "connections", "machine"):
        less = diagnose(without(snapshot, source), patience=case.tolerance)
        for key, confidence in confidences(less).items():
            assert confidence <= known.get(key, 1.0), (source, key)


@every_look
@pytest.mark.parametrize("locals_", redact.LOCALS)
def test_the_answer_needs_nothing_that_is_removed(look: Look, locals_: redact.Locals) -> None:
    case = look.case
    snapshot = look.load()
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
    for look in LOOKS:
        case, snapshot = look.case, look.load()
        short = summarized(snapshot)
        alike += sum(process.like is not None for host in short.hosts for process in host.processes)
        assert codec.decode(codec.encode(short)) == short, case.name
        recorded = look.path.parent == RECORDED
        answers = [_comparable(diagnose(one), recorded=recorded) for one in (short, snapshot)]
        assert answers[0] == answers[1], case.name
    assert alike >= 10


def _comparable(diagnosis: Diagnosis, *, recorded: bool) -> object:
    """An answer without what a summary leaves out: which ranks are alike, and of their records all but the numbers."""
    if recorded:
        found = [
            (job.id, job.verdict, [(f.code, f.severity, f.culprits, f.victims, f.summary) for f in job.findings])
            for job in diagnosis.jobs
        ]
        return found, [
            (rank.rank, rank.label, rank.state, rank.operation) for job in diagnosis.jobs for rank in job.ranks
        ]
    replace = msgspec.structs.replace
    jobs = (replace(job, ranks=tuple(replace(rank, like=None) for rank in job.ranks)) for job in diagnosis.jobs)
    return replace(diagnosis, jobs=tuple(jobs))
