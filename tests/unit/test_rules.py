"""The set of rules: each with its own code, all headings, a case that fires it and one that must not."""

import inspect
import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from hangdoc.diagnose.engine import diagnose
from hangdoc.diagnose.rules import all_rules
from hangdoc.diagnosis import Finding, Job
from hangdoc.snapshot import Counter, DataSource, DataSources, Launch, Process, Progress, Snapshot, Unavailable
from tests.unit.builders import (
    TORCH,
    backward,
    c10d,
    frame,
    helper,
    local,
    native_backward,
    rank,
    snapshot,
    stack,
    train,
)

HEADINGS = ["What it finds", "Why it hangs", "Evidence", "What to do", "When it would be wrong", "References"]


def job(evidence: Snapshot, patience: float = 30.0) -> Job:
    diagnosis = diagnose(evidence, patience=patience)
    assert not diagnosis.problems
    assert len(diagnosis.jobs) == 1
    return diagnosis.jobs[0]


def of(code: str, found: Job) -> list[Finding]:
    return [finding for finding in found.findings if finding.code == code]


def data(files: int, digest: str) -> DataSources:
    source = DataSource(
        path="/data", origin="DATA_DIR", files=files, bytes=files, suffixes=(".parquet",), digest=digest
    )
    return DataSources(sources=(source,))


def in_loop(number: int, step: int, **more: object) -> Process:
    locals_ = (local("step", step),)
    return rank(number, *backward(), train(15, locals=locals_), native=native_backward(), **more)  # type: ignore[arg-type]


def behind_loop(number: int, step: int, **more: object) -> Process:
    return rank(number, *c10d("barrier"), train(22, locals=(local("step", step),)), **more)  # type: ignore[arg-type]


LOADER = (
    frame("select", 1, "/usr/lib/python3.11/selectors.py", library=True),
    frame("_MultiProcessingDataLoaderIter._try_get_data", 9, TORCH + "utils/data/dataloader.py"),
    frame("_MultiProcessingDataLoaderIter._next_data", 9, TORCH + "utils/data/dataloader.py"),
)
WORKER = frame("_worker_loop", 300, TORCH + "utils/data/_utils/worker.py")
SPIN = (frame("batches", 44), train(10))
AGENT = Process(
    pid=50, ppid=1, role="launcher", name="pt_elastic", argv=("torchrun",), state="S", started_seconds_ago=90.0,
    launch=Launch(tool="torchrun", nnodes="2", nproc_per_node="4", node_rank=0, endpoint="10.0.0.1:29500"),
    stack=stack(frame("next_rendezvous", 5, TORCH + "distributed/elastic/rendezvous/static_tcp_rendezvous.py")),
)  # fmt: skip

FIRES: dict[str, Callable[[], Snapshot]] = {
    "HD101": lambda: snapshot(in_loop(0, 4, data=data(201, "a")), behind_loop(1, 3, data=data(4, "b"))),
    "HD102": lambda: snapshot(in_loop(0, 4, data=data(9, "a")), behind_loop(1, 3, data=data(9, "a"))),
    "HD103": lambda: snapshot(
        in_loop(0, 4), rank(1, *LOADER, train(10)), helper(7, 101, frame("Data.__getitem__", 8), WORKER)
    ),
    "HD201": lambda: snapshot(
        rank(0, *c10d("all_reduce"), frame("main", 5)), rank(1, *c10d("barrier"), frame("main", 5))
    ),
    "HD202": lambda: snapshot(in_loop(0, 4), rank(1, frame("work", 3), train(12), cpu=0.99)),
    "HD204": lambda: snapshot(
        rank(0, *c10d("send", local("dst", 1)), frame("main", 5)),
        rank(1, *c10d("send", local("dst", 0)), frame("main", 5)),
    ),
    "HD301": lambda: snapshot(in_loop(0, 4)),
    "HD302": lambda: snapshot(in_loop(0, 4), rank(1, train(12), state="T")),
    "HD401": lambda: snapshot(AGENT),
    "HD502": lambda: snapshot(in_loop(0, 4, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}), in_loop(1, 4)),
    "HD901": lambda: snapshot(in_loop(0, 4, local_world=1)),
}
QUIET: dict[str, Callable[[], Snapshot]] = {
    # Different data, but the other rank is still in the loop and computes.
    "HD101": lambda: snapshot(in_loop(0, 4, data=data(201, "a")), rank(1, train(12), cpu=0.9, data=data(4, "b"))),
    # Two ranks in the same round of the loop.
    "HD102": lambda: snapshot(in_loop(0, 4), rank(1, *c10d("barrier"), train(18, locals=(local("step", 4),)))),
    # The worker is at work: the loader moves.
    "HD103": lambda: snapshot(
        in_loop(0, 4),
        rank(1, *LOADER, train(10)),
        helper(7, 101, frame("Data.__getitem__", 8), WORKER, clocks=rank(1, cpu=0.9).clocks),
    ),
    "HD201": lambda: snapshot(in_loop(0, 4), in_loop(1, 4)),
    # Nobody waits: both compute.
    "HD202": lambda: snapshot(rank(0, train(12), cpu=0.9), rank(1, train(12), cpu=0.9)),
    "HD204": lambda: snapshot(
        rank(0, *c10d("recv", local("src", 1)), frame("main", 5)), rank(1, frame("work", 3), cpu=0.9)
    ),
    # The other rank may live on another host.
    "HD301": lambda: snapshot(in_loop(0, 4, local_world=1)),
    "HD302": lambda: snapshot(in_loop(0, 4), rank(1, train(12), cpu=0.9)),
    "HD401": lambda: snapshot(in_loop(0, 4), in_loop(1, 4)),
    "HD502": lambda: snapshot(in_loop(0, 4, environment={"OMP_NUM_THREADS": "1"}), in_loop(1, 4)),
    "HD901": lambda: snapshot(in_loop(0, 4), rank(1, train(12), cpu=0.9)),
}


def test_codes_and_names_are_unique() -> None:
    rules = all_rules()
    assert len({rule.CODE for rule in rules}) == len({rule.NAME for rule in rules}) == len(rules) >= 11
    for rule in rules:
        assert re.fullmatch(r"HD\d{3}", rule.CODE)
        assert re.fullmatch(r"[a-z0-9-]+", rule.NAME)
        for consequence in rule.EXPLAINS:
            assert re.fullmatch(r"HD\d{3}", consequence)


def test_every_rule_has_its_page() -> None:
    for rule in all_rules():
        page = inspect.cleandoc(rule.__doc__)
        assert re.findall(r"^## (.+)$", page, re.MULTILINE) == HEADINGS, rule.CODE
        for section in page.split("\n## ")[1:]:
            assert len(section.partition("\n")[2].strip()) > 20, (rule.CODE, section)


def test_every_rule_has_both_cases() -> None:
    assert set(FIRES) == set(QUIET) == {rule.CODE for rule in all_rules()}


@pytest.mark.parametrize("code", sorted(FIRES))
def test_the_rule_fires(code: str) -> None:
    found = of(code, job(FIRES[code]()))
    assert found
    for finding in found:
        assert finding.summary
        assert finding.remedy
        assert finding.evidence
        assert 0 < finding.confidence < 1
        assert not set(finding.culprits) & set(finding.victims)


@pytest.mark.parametrize("code", sorted(QUIET))
def test_the_rule_keeps_quiet(code: str) -> None:
    assert not of(code, job(QUIET[code]()))


def test_a_mismatch_that_the_data_explains_stands_below_it() -> None:
    found = job(FIRES["HD101"]())
    assert [(f.code, f.explained_by) for f in found.findings] == [("HD101", None), ("HD201", "HD101")]
    assert "3" not in found.findings[0].summary.split("after ")[1][:2]  # index 3 means 4 batches done
    assert "after 4" in found.findings[0].summary


def starving(step_moves: bool, **more: object) -> Process:
    """A rank that was in its data iterator, with an empty list, at both looks."""
    frames = (frame("batches", 44, locals=(local("files", "[]", length=0),)), train(10))
    step = Counter(name="step", function="train", file="/home/me/train.py", before=3, after=3 + step_moves, looped=True)
    spins = Counter(name="epoch", function="batches", file="/home/me/train.py", before=7, after=7_000_000)
    return rank(1, *frames, cpu=0.99, progress=Progress(counters=(step, spins)), **more)  # type: ignore[arg-type]


def test_a_loader_that_spins_on_nothing_and_one_that_is_busy() -> None:
    old, young = (snapshot(in_loop(0, 4), starving(False), silence=s) for s in (60.0, 2.0))
    assert [(f.code, f.severity) for f in of("HD101", job(old))] == [("HD101", "error")]
    assert [(f.code, f.severity) for f in of("HD101", job(young))] == [("HD101", "info")]
    # Another node visibly has shards where this one has none: that can't mend itself.
    bare = snapshot(in_loop(0, 4, data=data(12, "a")), starving(False, data=data(0, "b")), silence=2.0)
    assert of("HD101", job(bare))[0].severity == "error"
    # Batches come out of it: an evaluation that is in its loader at both looks.
    assert not of("HD101", job(snapshot(in_loop(0, 4), starving(True))))


def test_a_busy_rank_is_a_note_while_young_and_an_error_beyond_the_patience() -> None:
    young = snapshot(*FIRES["HD202"]().hosts[0].processes, silence=10.0)
    assert of("HD202", job(young))[0].severity == "info"
    assert job(young).verdict == "waiting"
    assert of("HD202", job(FIRES["HD202"]()))[0].severity == "error"
    assert job(FIRES["HD202"]()).verdict == "hung"


def test_a_thousand_equal_ranks_are_one_line_of_evidence() -> None:
    world = 1000
    ranks = [rank(n, *c10d("all_reduce"), frame("main", 5), world=world) for n in range(world - 1)]
    found = job(snapshot(*ranks, rank(999, frame("work", 3), world=world, state="T"), silence=None))
    assert found.findings[0].culprits == (999,)
    assert len(found.findings[0].victims) == 999
    assert len(found.findings[0].evidence) < 10


def test_ranks_on_hosts_nobody_looked_at_leave_the_verdict_open() -> None:
    found = job(FIRES["HD901"]())
    assert found.verdict == "unknown"
    assert [unseen.rank for unseen in found.unseen] == [1]
    assert not of("HD301", found)


def test_a_rank_whose_stack_is_refused_is_not_judged() -> None:
    refused = Unavailable(reason="permission denied (needs ptrace)")
    blind = [rank(n, stack=refused, stack_before=refused) for n in range(2)]
    found = job(snapshot(*blind))
    assert found.verdict == "unknown"
    assert {r.label for r in found.ranks} == {None}
    assert "doctor" in of("HD901", found)[0].remedy


def test_two_jobs_side_by_side_are_told_apart() -> None:
    def other(process: Process) -> Process:
        assert process.identity
        return replace(process, identity=replace(process.identity, master_port=29600))

    hung = FIRES["HD302"]().hosts[0].processes
    healthy = [other(rank(n, train(12), cpu=0.9, pid=1100 + n)) for n in range(2)]
    diagnosis = diagnose(snapshot(*hung, *healthy))
    assert [j.verdict for j in diagnosis.jobs] == ["hung", "healthy"]
    assert diagnosis.verdict == "hung"
