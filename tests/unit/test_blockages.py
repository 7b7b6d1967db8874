"""What holds of the blockages of any run, whatever its ranks are in."""

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.diagnosis import Job
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.model.run import Run
from hangdoc.snapshot import Process, Snapshot
from tests.rules import fires
from tests.rules.shapes import MEETS, STUCK_IN_NFS, steps
from tests.unit.builders import backward, c10d, frame, local, native_backward, rank, snapshot, train

WORLD = 5


def in_place_of(number: int, process: Process) -> Process:
    plain = rank(number, world=WORLD)
    return msgspec.structs.replace(process, pid=plain.pid, identity=plain.identity)


def made(number: int, kind: str, peer: int, line: int) -> Process | None:
    """A rank in one of the situations that ranks come into; None for one that is missing."""
    where = frame("main", line)
    match kind:
        case "send" | "recv":
            return rank(number, *c10d(kind, local("dst" if kind == "send" else "src", peer)), where, world=WORLD)
        case "all_reduce" | "barrier" | "broadcast":
            return rank(number, *c10d(kind), where, world=WORLD)
        case "backward":
            return rank(
                number, *backward(), train(15, locals=(local("step", peer),)), native=native_backward(), world=WORLD
            )
        case "left":
            return rank(number, *c10d("barrier"), train(22, locals=(local("step", peer),)), world=WORLD)
        case "busy":
            return rank(number, frame("work", 3), train(12), cpu=0.99, world=WORLD)
        case "steps":
            return rank(number, frame("work", 3), train(12), cpu=0.99, progress=steps(3, 4), world=WORLD)
        case "stopped":
            return rank(number, train(12), state="T", world=WORLD)
        case "asleep":
            return rank(number, train(12), kernel={"syscall": "clock_nanosleep"}, world=WORLD)
        case "nfs":
            return msgspec.structs.replace(
                STUCK_IN_NFS(), **{f: getattr(rank(number, world=WORLD), f) for f in ("pid", "identity")}
            )
        case "meets":
            process = rank(number, world=WORLD)
            return msgspec.structs.replace(MEETS(number), pid=process.pid, identity=process.identity)
        case _:
            return None


KINDS = ("send", "recv", "all_reduce", "barrier", "broadcast", "backward", "left", "busy", "steps", "stopped", "asleep",
         "nfs", "meets", "gone")  # fmt: skip


@st.composite
def runs(draw: st.DrawFn) -> list[Process]:
    ranks = [
        made(number, draw(st.sampled_from(KINDS)), draw(st.integers(0, WORLD - 1)), draw(st.integers(4, 6)))
        for number in range(WORLD)
    ]
    return [process for process in ranks if process is not None]


def examined(processes: list[Process], silence: float) -> tuple[Job, Run]:
    answer, found = examine(snapshot(*processes, silence=silence))
    assert not answer.problems
    return answer.jobs[0], found[0]


@settings(max_examples=80, deadline=None)
@given(runs().filter(bool), st.sampled_from([2.0, 60.0]))
def test_blockages_of_any_run(processes: list[Process], silence: float) -> None:
    job, run = examined(processes, silence)
    for blockage in job.blockages:
        assert not set(blockage.victims) & set(blockage.culprits)
    # Every class that waits and does not move belongs to exactly one blockage.
    belongs = Counter(one.ranks for blockage in run.blockages for one in (*blockage.awaited, *blockage.waiting))
    for one in run.still:
        assert belongs[one.ranks] == 1, one.ranks
    if job.verdict == "hung":
        assert job.findings
        assert job.findings[0].severity == "error"
    assert (job.verdict == "hung") == any(f.severity == "error" for f in job.findings)


@settings(max_examples=30, deadline=None)
@given(runs().filter(bool), st.randoms(use_true_random=False))
def test_the_order_of_processes_changes_nothing(processes: list[Process], dice: object) -> None:
    shuffled = list(processes)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert diagnose(snapshot(*shuffled)) == diagnose(snapshot(*processes))


@settings(max_examples=30, deadline=None)
@given(runs().filter(bool))
def test_a_healthy_job_beside_it_changes_nothing(processes: list[Process]) -> None:
    def other(number: int) -> Process:
        process = rank(number, train(12), cpu=0.9, pid=1100 + number)
        assert process.identity is not None
        return msgspec.structs.replace(
            process, owner=1050, identity=msgspec.structs.replace(process.identity, master_port=29600)
        )

    def job_of(evidence: Snapshot) -> Job:
        return next(job for job in diagnose(evidence).jobs if (job.master or "").endswith(":29500"))

    alone = snapshot(*processes)
    both = snapshot(*processes, other(0), other(1), connections=alone.hosts[0].connections)
    assert job_of(both) == job_of(alone)


def test_a_wait_that_is_only_too_young_for_a_hang_says_from_when_on_it_is_one() -> None:
    """Not one in which a rank works, nor one that cannot end."""
    (young,) = diagnose(fires("HD103"), patience=600.0).jobs
    assert young.verdict == "waiting"
    assert young.findings[0].summary.endswith("; this has lasted 1 min 0 s and counts as HUNG from 10 min on")
    (nearly,) = diagnose(fires("HD103"), patience=60.3).jobs
    assert nearly.findings[0].summary.endswith("; this has lasted 60.0 s and counts as HUNG from 1 min 0 s on")
    assert (
        nearly.findings[0].remedy
        == "Run hangdoc again 1 s after this look, or later: if nothing has changed by then, the run hangs."
    )
    (old,) = diagnose(fires("HD103"), patience=30.0).jobs
    (works,) = diagnose(fires("HD602"), patience=600.0).jobs
    (deadlock,) = diagnose(fires("HD203"), patience=600.0).jobs
    assert [job.verdict for job in (old, works, deadlock)] == ["hung", "waiting", "hung"]
    assert not any("counts as" in job.findings[0].summary for job in (old, works, deadlock))
