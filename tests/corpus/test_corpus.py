"""Recorded real runs, replayed: the right answer, the same in any order, and never surer for seeing less."""

import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hangdoc import codec
from hangdoc.diagnose.engine import diagnose
from hangdoc.diagnosis import Diagnosis
from hangdoc.snapshot import Process, Snapshot, Unavailable
from hangdoc_trainer.scenarios import SCENARIOS
from tests.corpus.record import publishable
from tests.expectations import EXPECTED, check

FOLDER = Path(__file__).parent
BUNDLES = sorted(FOLDER.glob("*.hangdoc"))
GONE = Unavailable(reason="removed by the test")
SOURCES = ("clocks", "stack", "stack_before", "native", "interpreter", "progress", "data", "runtime", "environment")


def load(path: Path) -> tuple[Snapshot, float]:
    return codec.read(path), SCENARIOS[path.stem].patience


def test_every_scenario_is_recorded() -> None:
    assert {path.stem for path in BUNDLES} == set(EXPECTED) == set(SCENARIOS)


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.stem)
def test_the_recorded_run_is_told_right(path: Path) -> None:
    snapshot, patience = load(path)
    check(diagnose(snapshot, patience=patience), EXPECTED[path.stem])


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.stem)
def test_order_changes_nothing(path: Path) -> None:
    snapshot, patience = load(path)
    host = snapshot.hosts[0]
    expected = diagnose(snapshot, patience=patience)
    for seed in range(5):
        processes = list(host.processes)
        random.Random(seed).shuffle(processes)  # noqa: S311
        shuffled = msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, processes=tuple(processes)),))
        assert diagnose(shuffled, patience=patience) == expected


def test_no_order_hangs_on_the_hash_seed() -> None:
    """Sets of texts are ordered anew in every process: the answer must not show it."""
    program = (
        "import sys, msgspec; from pathlib import Path; from hangdoc import codec; "
        "from hangdoc.diagnose.engine import diagnose; "
        "print(*(msgspec.json.encode(diagnose(codec.read(Path(p)))) for p in sys.argv[1:]), sep='\\n')"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program, *map(str, BUNDLES)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(answers) == 1


def confidences(diagnosis: Diagnosis) -> dict[tuple[str, tuple[int, ...]], float]:
    return {(f.code, f.culprits): f.confidence for job in diagnosis.jobs for f in job.findings}


def without(snapshot: Snapshot, source: str, only: int | None) -> Snapshot:
    """The snapshot with one source removed from all ranks, or from the one of a pid."""
    host = snapshot.hosts[0]

    def strip(process: Process) -> Process:
        if process.role != "rank" or only not in (None, process.pid):
            return process
        return msgspec.structs.replace(process, **{source: GONE})

    if source == "connections":
        return msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, connections=GONE),))
    processes = tuple(strip(process) for process in host.processes)
    return msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, processes=processes),))


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.stem)
def test_less_evidence_never_makes_surer(path: Path) -> None:
    snapshot, patience = load(path)
    full = diagnose(snapshot, patience=patience)
    known = confidences(full)
    ranks = [process.pid for process in snapshot.hosts[0].processes if process.role == "rank"]
    for source in (*SOURCES, "connections"):
        for only in (None, *ranks):
            less = diagnose(without(snapshot, source, only), patience=patience)
            assert not [p for p in less.problems if p.startswith("rule ")], less.problems
            for key, confidence in confidences(less).items():
                assert confidence <= known.get(key, 1.0), (source, only, key)
            if EXPECTED[path.stem].verdict != "hung":  # seeing less never makes a healthy run hung
                assert less.verdict != "hung", (source, only)


def test_recordings_hold_nothing_of_the_recording_machine() -> None:
    for path in BUNDLES:
        snapshot = codec.read(path)
        assert publishable(snapshot) == snapshot
