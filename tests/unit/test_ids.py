"""Ids of findings: the same hang has the same id, another hang another."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hangbench.record import CORPUS
from hangdoc import codec
from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Host, Process, Snapshot, Unavailable

BUNDLES = sorted(CORPUS.glob("*.hangdoc"))
STORY = CORPUS / "trainer_shard_mismatch.hangdoc"


def ids(diagnosis: Diagnosis, severity: str | None = None) -> list[str]:
    return [f.id for job in diagnosis.jobs for f in job.findings if severity in (None, f.severity)]


def changed(
    snapshot: Snapshot,
    host: Callable[[Host], Host] = lambda one: one,
    process: Callable[[Process], Process] = lambda one: one,
) -> Snapshot:
    hosts = (host(replace(h, processes=tuple(map(process, h.processes)))) for h in snapshot.hosts)
    return replace(snapshot, hosts=tuple(hosts))


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.stem)
def test_ids_are_there_and_unique(path: Path) -> None:
    diagnosis = diagnose(codec.read(path))
    found = ids(diagnosis)
    assert len(set(found)) == len(found)
    assert all(found)


def test_patience_severity_and_clocks_do_not_change_an_id() -> None:
    snapshot = changed(
        codec.read(CORPUS / "trainer_endless_loop.hangdoc"), lambda host: replace(host, machine_id="boot pid:[1]")
    )
    young, old = diagnose(snapshot, patience=86400), diagnose(snapshot, patience=0)
    assert [f.severity for f in young.jobs[0].findings[:1]] != [f.severity for f in old.jobs[0].findings[:1]]
    assert ids(young) == ids(old)
    later = changed(
        snapshot,
        lambda host: replace(host, taken_at="2030-01-01T00:00:00+00:00", name="called-otherwise"),
        lambda process: replace(process, started_seconds_ago=process.started_seconds_ago + 3600),
    )
    assert ids(diagnose(later, patience=0)) == ids(old)


def test_a_cause_that_one_look_misses_changes_no_id() -> None:
    """The same hang, called HD102 where the data directories could be read, and HD101 where not."""
    snapshot = codec.read(CORPUS / "trainer_uneven_batches.hangdoc")
    gone = Unavailable(reason="removed by the test")
    whole, less = diagnose(snapshot), diagnose(changed(snapshot, process=lambda p: replace(p, data=gone)))
    assert [f.code for one in (whole, less) for f in one.jobs[0].findings[:1]] == ["HD102", "HD101"]
    assert ids(whole, "error") == ids(less, "error")


def test_the_same_run_started_again_has_other_ids() -> None:
    """The same name, the same port, the same fault: other processes."""
    snapshot = codec.read(STORY)
    again = changed(snapshot, process=lambda p: replace(p, pid=p.pid + 7, owner=p.owner + 7 if p.owner else None))
    first, second = diagnose(snapshot, patience=0), diagnose(again, patience=0)
    assert first.jobs[0].id == second.jobs[0].id
    assert not set(ids(first)) & set(ids(second))


def test_different_hangs_have_different_ids() -> None:
    of = {path.stem: ids(diagnose(codec.read(path), patience=0), "error") for path in BUNDLES}
    every = [one for found in of.values() for one in found]
    assert len(every) > 60
    assert len(set(every)) == len(every)
