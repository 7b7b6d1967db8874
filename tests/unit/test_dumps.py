"""`--dumps`: the diagnosis of what torch's recorder has left behind."""

import gzip
import json
import pickle
import shutil
from pathlib import Path

import pytest

from hangdoc import codec
from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.dumps.dump_snapshot import read_dumps
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import FlightRecorder, Snapshot
from tests.unit.dumps import PREFIX, Rank, as_json, set_time, write

REAL = Path(__file__).parents[1] / "corpus" / "dumps"


def read(folder: Path) -> Snapshot:
    return read_dumps(folder, 60.0)


def answer(folder: Path) -> Diagnosis:
    return diagnose(read(folder))


def job_of(folder: Path) -> Job:
    (job,) = answer(folder).jobs
    return job


def first(job: Job) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    finding = job.findings[0]
    return finding.code, finding.culprits, finding.victims


# --- what a real card left (tests/corpus/dumps) -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "verdict", "found"),
    [
        ("absent", "hung", ("HD202", (1,), (0, 2))),
        ("fsdp", "hung", ("HD203", (1,), (0,))),
        ("order", "hung", ("HD205", (0, 1), ())),
        ("p2p", "hung", ("HD204", (0, 1), ())),
        ("notfinished", "unknown", ("HD702", (), (0, 1))),
        ("healthy", "unknown", ("HD702", (), (0, 1))),
        ("sizes", "unknown", ("HD901", (), (1,))),
    ],
)
def test_real_dumps(
    case: str, verdict: str, found: tuple[str, tuple[int, ...], tuple[int, ...]], tmp_path: Path
) -> None:
    shutil.copytree(REAL / case, tmp_path / case)
    for path in (tmp_path / case).iterdir():
        set_time(path, None)
    job = job_of(tmp_path / case)
    assert (job.verdict, first(job)) == (verdict, found)
    assert all(rank.pid is None for rank in job.ranks)
    assert job.ends_by_itself_in_seconds is None
    lines = {rank.rank: rank.where.line for rank in job.ranks if rank.where is not None}
    assert lines == {
        "absent": {0: 6, 1: 6, 2: 6}, "fsdp": {0: 14, 1: 18}, "order": {0: 10, 1: 10}, "p2p": {0: 10, 1: 10},
        "notfinished": {0: 9, 1: 9}, "healthy": {}, "sizes": {1: 8},
    }[case]  # fmt: skip


# --- public reports, by their numbers ---------------------------------------------------------------------------------


def test_all_ranks_launched_and_nothing_finishes(tmp_path: Path) -> None:
    """NVIDIA/nccl#1730: 256 ranks on 32 nodes. Rank 118 reports all_reduce 2398459 of 8,652,160 numbers after 30 minutes; it has
    launched 2398578 and completed 2398458. NCCL's RAS calls the communicator healthy."""
    ranks = []
    for number in range(256):
        rank = Rank(number, timeout=1800.0, first_id=2398449).group(range(256))
        rank.many("all_reduce", 2398450, 2398458, every=1e-5, size=[8652160])
        rank.many("all_reduce", 2398459, 2398465, every=1e-5, size=[8652160], done=False)
        ranks.append(rank.call("all_reduce", 24.0, number=2398578, size=[8652160]))
    job = job_of(write(tmp_path / "d", ranks, at=24 + 1800.1))
    assert job.verdict == "hung"
    assert first(job) == ("HD702", (), tuple(range(256)))
    assert job.hung_for_seconds == pytest.approx(1800, abs=2)
    assert "number 2398459" in job.findings[0].summary
    assert {rank.operation.seq for rank in job.ranks if rank.operation is not None} == {2398459}
    for path in (tmp_path / "d").iterdir():
        set_time(path, 24 + 900.0)
    early = job_of(tmp_path / "d")
    assert (early.verdict, early.findings[0].severity) == ("unknown", "info")
    assert "before the timeout" in early.findings[0].remedy


def test_a_rank_that_never_joined(tmp_path: Path) -> None:
    """pytorch/pytorch#152623, a desync of modded-nanogpt: rank 7 finished all_reduce 182 and did not join 183. Ranks 0 to 2 were
    at all_reduce 315, ranks 3 to 6 at all_gather 317; the timeout is 10 minutes."""
    ranks = []
    for number in range(7):
        rank = Rank(number).group(range(8)).many("all_reduce", 1, 182, size=[6])
        rank.many("all_reduce", 183, 315, size=[6], done=False)
        if number >= 3:
            rank.many("_allgather_base", 316, 317, size=[6], done=False)
        ranks.append(rank)
    last = ("/home/me/train_gpt.py", 612, "load")
    lost = (
        Rank(7)
        .group(range(8))
        .many("all_reduce", 1, 181, size=[6])
        .call("all_reduce", 18.2, done=18.21, size=[6], site=last)
    )
    job = job_of(write(tmp_path / "d", [*ranks, lost], at=18.3 + 600))
    assert job.verdict == "hung"
    assert first(job) == ("HD202", (7,), tuple(range(7)))
    assert "train_gpt.py:612" in job.findings[0].summary
    texts = [evidence.text for evidence in job.findings[0].evidence]
    assert any("has made 182 calls in the default group" in text and "not number 183" in text for text in texts)
    assert {rank.operation.seq for rank in job.ranks[:7] if rank.operation is not None} == {183}


def test_the_rank_to_blame_left_no_dump(tmp_path: Path) -> None:
    """pytorch/pytorch#196968: a rank raises, is in destroy_process_group, and no longer answers the request for a dump."""
    waits = Rank(0).group([0, 1]).many("all_reduce", 1, 5).call("all_reduce", 1.0)
    job = job_of(write(tmp_path / "d", [waits], at=602.0))
    assert job.verdict == "hung"
    assert first(job) == ("HD901", (), (0,))
    assert [(one.rank, one.why) for one in job.unseen] == [(1, f"no dump of rank 1 in {tmp_path / 'd'}")]
    assert all(rank.label != "dead" for rank in job.ranks)
    assert "log of rank 1" in job.findings[0].remedy


def test_a_pipeline_with_crossed_sends(tmp_path: Path) -> None:
    """Stages 1 and 2 of four both send first: one its activations, the other its gradients (the hang that pytorch/pytorch#108378
    and meta-pytorch/torchrec#4472 describe)."""
    stages = [Rank(number).group(range(4)) for number in range(4)]
    for step in range(3):
        at = float(step)
        for number in range(3):
            stages[number].call(f"send {number}->{number + 1}", at, done=at + 0.1)
            stages[number + 1].call(f"recv {number + 1}<-{number}", at, done=at + 0.1)
        for number in (3, 2, 1):
            stages[number].call(f"send {number}->{number - 1}", at + 0.2, done=at + 0.3)
            stages[number - 1].call(f"recv {number - 1}<-{number}", at + 0.2, done=at + 0.3)
    stages[0].call("recv 0<-1", 5.0)
    stages[1].call("send 1->2", 5.0).call("recv 1<-2", 5.1)
    stages[2].call("send 2->1", 5.0).call("recv 2<-1", 5.1)
    stages[3].call("recv 3<-2", 5.0)
    job = job_of(write(tmp_path / "d", stages, at=605.5))
    assert job.verdict == "hung"
    assert first(job) == ("HD204", (1, 2), (0, 3))
    assert "rank 1 in send to rank 2" in job.findings[0].summary
    assert job.hung_for_seconds == pytest.approx(600.5, abs=0.1)


def test_batches_of_sends_complete_together(tmp_path: Path) -> None:
    """torch never completes the entries inside of batch_isend_irecv, only that of the whole batch."""
    stages = [Rank(number).group([0, 1]) for number in range(2)]
    for step in range(4):
        for number, stage in enumerate(stages):
            stage.call(f"send {number}->{1 - number}", step, in_batch=True)
            stage.call(f"recv {number}<-{1 - number}", step, in_batch=True).call("coalesced", step, done=step + 0.1)
    stages[0].call("all_reduce", 5.0)
    job = job_of(write(tmp_path / "d", stages, at=605.5))
    assert first(job) == ("HD202", (1,), (0,))


def test_a_batch_that_is_not_complete(tmp_path: Path) -> None:
    stages = [Rank(number).group([0, 1]) for number in range(2)]
    stages[0].call("send 0->1", 1.0, in_batch=True).call("recv 0<-1", 1.0, in_batch=True).call("coalesced", 1.0)
    stages[1].call("all_reduce", 1.0)
    job = job_of(write(tmp_path / "d", stages, at=601.5))
    assert (job.verdict, job.ranks[0].state, job.ranks[1].state) == ("hung", "in-p2p", "in-collective")


def test_different_sizes(tmp_path: Path) -> None:
    ranks = [
        Rank(n).group([0, 1, 2]).many("all_reduce", 1, 9).call("all_reduce", 2.0, size=[64 + (n == 2)])
        for n in range(3)
    ]
    job = job_of(write(tmp_path / "d", ranks))
    assert (job.verdict, first(job)[:2]) == ("hung", ("HD206", (2,)))


def test_a_group_that_a_rank_never_called(tmp_path: Path) -> None:
    """Only the file of rank 0 has the group of its first call. That of rank 1 has no call left out, so it made none there."""
    waits = Rank(0).group([0, 1]).group([0, 1], "3").many("all_reduce", 1, 5).call("all_gather", 1.0, group="3")
    other = Rank(1).group([0, 1]).many("all_reduce", 1, 5)
    job = job_of(write(tmp_path / "d", [waits, other]))
    assert (job.verdict, first(job)) == ("hung", ("HD202", (1,), (0,)))
    overwritten = Rank(1, first_id=400).group([0, 1]).many("all_reduce", 1, 5)
    (job,) = answer(write(tmp_path / "e", [waits, overwritten])).jobs
    assert all(view.group is None for rank in job.ranks if rank.rank == 1 for view in rank.calls)


# --- dumps that show no hang ------------------------------------------------------------------------------------------


def test_a_rank_that_is_late_now_is_no_hang(tmp_path: Path) -> None:
    """Dumps on demand of a run in which rank 1 is a second late."""
    early = Rank(0).group([0, 1]).many("all_reduce", 1, 20).call("all_reduce", 3.0)
    late = Rank(1).group([0, 1]).many("all_reduce", 1, 20)
    job = job_of(write(tmp_path / "d", [early, late], at=4.0))
    assert (job.verdict, job.findings[0].severity) == ("unknown", "info")


def test_a_run_without_pending_calls_is_unknown(tmp_path: Path) -> None:
    ranks = [Rank(n).group([0, 1]).many("all_reduce", 1, 20) for n in range(2)]
    for at in (3.0, None):
        job = job_of(write(tmp_path / "d", ranks, at=at))
        assert (job.verdict, job.findings) == ("unknown", ())


def test_a_time_of_modification_that_torch_cannot_have_written_is_not_used(tmp_path: Path) -> None:
    ranks = [Rank(n).group([0, 1]).many("all_reduce", 1, 9).call("all_reduce", 1.0) for n in range(2)]
    for at, dated in ((1.5, True), (601.0, True), (700.0, True), (-200.0, False), (1200.0, False)):
        (host,) = read(write(tmp_path / "d", ranks, at=at)).hosts
        assert (host.wall_us is not None) == dated, at
    set_time(tmp_path / "d" / f"{PREFIX}0", 601.0)
    (host,) = read(tmp_path / "d").hosts  # rank 1's is a copy
    assert host.wall_us is None
    assert "do not show when torch wrote them" in " ".join(host.problems)


# --- the files ----------------------------------------------------------------------------------------------------------


def hung(ranks: int = 2) -> list[Rank]:
    """Rank 0 waits for the others."""
    group = range(ranks)
    return [
        Rank(0).group(group).many("all_reduce", 1, 9).call("all_reduce", 2.0),
        *(Rank(n).group(group).many("all_reduce", 1, 9) for n in range(1, ranks)),
    ]


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_json_and_pickles_say_the_same(tmp_path: Path, protocol: int) -> None:
    ranks = hung()
    for rank in ranks:
        for ending, raw in (
            ("pkl", pickle.dumps(rank.dump(), protocol)),
            ("json", json.dumps(as_json(rank.dump())).encode()),
        ):
            folder = tmp_path / ending
            folder.mkdir(exist_ok=True)
            (folder / f"fr{rank.rank}.{ending}").write_bytes(raw)
            set_time(folder / f"fr{rank.rank}.{ending}", 602.0)
    jobs = [job_of(tmp_path / ending) for ending in ("pkl", "json")]
    assert [first(job) for job in jobs] == [("HD202", (1,), (0,))] * 2
    assert jobs[0].ranks[0].where is not None
    assert jobs[1].ranks[0].where is None  # torch's JSON has no frames
    numbers = [
        [(calls.made, calls.pending, calls.age_seconds) for rank in job.ranks for calls in rank.calls] for job in jobs
    ]
    assert numbers[0] == numbers[1]


def test_of_two_formats_of_a_rank_the_one_with_frames_is_used(tmp_path: Path) -> None:
    for rank in hung():
        (tmp_path / f"fr{rank.rank}.json").write_text(json.dumps(as_json(rank.dump())))
        (tmp_path / f"fr{rank.rank}.pkl").write_bytes(pickle.dumps(rank.dump(), 2))
    found = answer(tmp_path)
    assert found.jobs[0].ranks[0].where is not None
    (text,) = [problem for problem in found.problems if "not used" in problem]
    assert text.startswith("2 files not used: fr0.json (fr0.pkl is of the same rank)")


def test_the_newest_dump_of_a_rank_is_used(tmp_path: Path) -> None:
    write(tmp_path, [Rank(1).group([0, 1]).many("all_reduce", 1, 4)], prefix="nccl_trace_rank_")
    write(tmp_path, [rank.many("broadcast", 3000, 3001) for rank in hung()])
    found = answer(tmp_path)
    assert first(found.jobs[0])[0] == "HD202"
    assert any("nccl_trace_rank_1" in problem and "same rank" in problem for problem in found.problems)


def test_other_files_are_skipped_and_named(tmp_path: Path) -> None:
    write(tmp_path, hung())
    (tmp_path / "train.log").write_text("hello")
    (tmp_path / "log_7").write_text("hello")
    (tmp_path / "config0.json").write_text('{"a": 1}')
    (tmp_path / "list1").write_bytes(pickle.dumps([1, 2], 2))
    (tmp_path / "folder3").mkdir()
    found = answer(tmp_path)
    assert len(found.jobs[0].ranks) == 2
    assert "1 file skipped (no rank at the end of the name): train.log" in found.problems
    (text,) = [problem for problem in found.problems if "no dump" in problem]
    assert text.startswith("3 files skipped (no dump of torch's recorder):")
    assert "log_7" in text
    assert "config0.json" in text


def test_files_of_nodes_in_directories_of_their_own(tmp_path: Path) -> None:
    for number, rank in enumerate(hung(3)):
        write(tmp_path / f"node{number}", [rank])
    job = job_of(tmp_path)
    assert [rank.rank for rank in job.ranks] == [0, 1, 2]
    assert first(job) == ("HD202", (1, 2), (0,))


def test_a_truncated_dump_keeps_what_it_has(tmp_path: Path) -> None:
    """It has lost the newest calls: that a rank did not make one can't be said, unless torch's own count says it."""
    write(tmp_path, hung())
    path = tmp_path / f"{PREFIX}1"
    path.write_bytes(path.read_bytes()[:-200])
    found = answer(tmp_path)
    (job,) = found.jobs
    assert any(f"{PREFIX}1 is truncated:" in problem for problem in found.problems)
    assert [calls.made for calls in job.ranks[1].calls] == [9]
    raw = path.read_bytes()
    path.write_bytes(raw[: raw.index(b"entries") + 60])
    (job,) = answer(tmp_path).jobs
    assert (job.ranks[1].label, job.ranks[1].state, job.ranks[1].calls) == (None, "unknown", ())
    assert job.verdict == "unknown"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [(b"", "is empty"), (b"\x80\x02}", "truncated"), (b"\x80\x02cos\nsystem\n.", "plain values"), (b"\x80\x02}q", "is truncated"),
     (b'{"entries": [', "damaged")],
)  # fmt: skip
def test_a_dump_that_cannot_be_read_is_a_rank_without_evidence(tmp_path: Path, raw: bytes, problem: str) -> None:
    """It is there, so it is not unseen, and nothing is said about it."""
    write(tmp_path, hung())
    (tmp_path / f"{PREFIX}1").write_bytes(raw)
    found = answer(tmp_path)
    (job,) = found.jobs
    assert not job.unseen
    assert (job.ranks[1].label, job.verdict) == (None, "unknown")
    assert any(f"{PREFIX}1" in text and problem in text for text in found.problems)
    assert first(job)[0] == "HD901"


def test_runs_of_two_sizes_are_two_jobs(tmp_path: Path) -> None:
    write(tmp_path, hung())
    write(tmp_path, [rank for rank in hung(4) if rank.rank > 1])
    found = answer(tmp_path)
    assert sorted((job.world_size, len(job.ranks)) for job in found.jobs) == [(2, 2), (4, 2)]
    assert any("the files are of 2 runs: ranks 0-1 of 2; ranks 2-3 of 4" in problem for problem in found.problems)


def test_a_file_of_an_earlier_run_is_no_rank_of_the_newest_one(tmp_path: Path) -> None:
    old = Rank(2).group([0, 1, 2]).many("all_reduce", 1, 9)
    new = [
        Rank(0).group([0, 1, 2]).many("all_reduce", 1, 9, every=1000.0).call("all_reduce", 20_000.0),
        Rank(1).group([0, 1, 2]).many("all_reduce", 1, 9, every=1000.0),
    ]
    found = answer(write(tmp_path, [*new, old]))
    (newest,) = found.jobs
    assert [one.rank for one in newest.unseen] == [2]
    (text,) = [problem for problem in found.problems if "left out" in problem]
    assert text == (
        f"{PREFIX}2 was left out, because it does not fit the others: the times of its calls do not agree with those of the "
        "others"
    )


def finished(rank: int, calls: int, *, start: float = 0.0, size: int = 3, every: float = 0.1) -> Rank:
    """A rank that has finished so many calls."""
    made = Rank(rank).group(range(size))
    for number in range(1, calls + 1):
        made.call("all_reduce", start + number * every, done=start + (number + 0.5) * every)
    return made


def left_out(found: Diagnosis) -> list[str]:
    return [problem for problem in found.problems if "left out" in problem]


@pytest.mark.parametrize(
    ("stray", "why"),
    [
        (finished(1, 4), "it has made 4 calls in the default group, in which the others have finished number 20"),
        (finished(1, 300), "it has finished call 300 in the default group, in which another rank has made only 21"),
        (finished(1, 20, start=3600.0), "it made the calls with the same numbers 1 h 0 min later than the others"),
        (finished(1, 21, every=0.7), "the times of its calls do not agree with those of the others"),
        (finished(1, 20, size=4), "its default group has 4 ranks, and that of the others 3"),
        (Rank(1).group(range(3)).call("all_reduce", 4000.0), "it has made 1 call in the default group, in which"),
    ],
)  # fmt: skip
def test_a_file_of_another_run_is_left_out(tmp_path: Path, stray: Rank, why: str) -> None:
    """Rank 1 ended without a dump, and its file is of another run with as many ranks."""
    waits = [finished(rank, 20).call("all_reduce", 5.0) for rank in (0, 2)]
    found = answer(write(tmp_path, [*waits, stray]))
    job = max(found.jobs, key=lambda job: len(job.ranks))
    assert [rank.rank for rank in job.ranks] == [0, 2]
    assert first(job)[0] == "HD901"
    assert why in " ".join(found.problems)
    assert any(f"{PREFIX}1" in problem for problem in found.problems)


@pytest.mark.parametrize("start", [-3600.0, 3600.0])
def test_a_second_file_of_a_rank_does_not_displace_the_right_one(tmp_path: Path, start: float) -> None:
    write(tmp_path, [finished(0, 20, size=2).call("all_reduce", 5.0), finished(1, 20, size=2)])
    write(tmp_path, [finished(1, 33, size=2, start=start)], prefix="nccl_trace_rank_")
    found = answer(tmp_path)
    job = max(found.jobs, key=lambda job: len(job.ranks))
    assert first(job) == ("HD202", (1,), (0,))
    assert any("nccl_trace_rank_1" in problem for problem in found.problems)


def test_two_runs_of_one_size_are_two_jobs(tmp_path: Path) -> None:
    """torch has written new files beside those of the run before, under other names."""
    write(tmp_path, hung(), prefix="before_")
    write(tmp_path, [finished(rank, 40, size=2, start=900.0, every=0.2) for rank in (0, 1)])
    found = answer(tmp_path)
    assert [[rank.rank for rank in job.ranks] for job in found.jobs] == [[0, 1], [0, 1]]
    assert [first(job) for job in found.jobs if job.findings] == [("HD202", (1,), (0,))]
    (text,) = [problem for problem in found.problems if "2 runs" in problem]
    assert "ranks 0-1 of 2; ranks 0-1 of 2, which ended 15 min" in text


def test_files_that_nothing_connects(tmp_path: Path) -> None:
    """Both ranks are in the first call of a run: the files may also be of two runs, and the report says it."""
    first_calls = [Rank(rank).group([0, 1]).call("all_reduce", 1.0 + rank) for rank in (0, 1)]
    found = answer(write(tmp_path, first_calls))
    assert len(found.jobs) == 1
    assert (
        "nothing in the files shows that those of ranks 0-1 are of one run: no call that rank 1 has finished is in another file"
        in found.problems
    )


def test_of_two_files_that_may_both_be_right_the_newer_one_is_used(tmp_path: Path) -> None:
    write(tmp_path, [Rank(rank).group([0, 1, 2]).call("all_reduce", 1.0 + rank) for rank in range(3)])
    write(tmp_path, [Rank(1).group([0, 1, 2]).call("broadcast", 4.0)], prefix="x")
    found = answer(tmp_path)
    (job,) = found.jobs
    assert first(job)[:2] == ("HD201", (1,))
    (text,) = left_out(found)
    assert text.startswith(f"{PREFIX}1 was left out")
    assert text.endswith("nothing in the files shows which of them is of their run: x1 is the newer one")


def test_a_rank_that_comes_late_to_its_first_call_is_of_the_same_run(tmp_path: Path) -> None:
    early = Rank(0).group([0, 1]).call("all_reduce", 1.0)
    late = Rank(1).group([0, 1]).call("broadcast", 200.0)
    (job,) = answer(write(tmp_path, [early, late])).jobs
    assert len(job.ranks) == 2


def test_a_clock_that_is_ahead(tmp_path: Path) -> None:
    """Hosts whose clocks differ are of one run; beyond a minute, a restarted run is more likely."""
    ranks = [finished(0, 20, size=2).call("all_reduce", 5.0), finished(1, 20, size=2, start=40.0)]
    found = answer(write(tmp_path, ranks))
    (job,) = found.jobs
    assert first(job) == ("HD202", (1,), (0,))
    assert f"the clock of {PREFIX}1 is 40 s ahead, or the file is of another run" in found.problems


def test_groups_that_share_no_rank_are_of_one_run(tmp_path: Path) -> None:
    """Two pairs, and a third group that connects them."""
    pairs = {0: "1", 1: "2", 2: "1", 3: "2"}
    ranks = []
    for rank, name in pairs.items():
        made = Rank(rank).group([0, 2] if name == "1" else [1, 3], name).many("all_reduce", 1, 9, group=name)
        ranks.append(made if rank != 3 else made.call("all_reduce", 2.0, group="2"))
    found = answer(write(tmp_path, ranks))
    (job,) = found.jobs
    assert [rank.rank for rank in job.ranks] == [0, 1, 2, 3]


def test_reading_ends_in_time(tmp_path: Path) -> None:
    write(tmp_path, hung())
    """A rank whose file was not read is not one without a file."""
    (job,) = diagnose(read_dumps(tmp_path, 0.0)).jobs
    assert [(rank.rank, rank.label) for rank in job.ranks] == [(0, None), (1, None)]
    assert not job.unseen
    problems = read_dumps(tmp_path, 0.0).hosts[0].problems
    (text,) = problems
    assert text == f"2 files of which each was not read in time (raise --timeout): {PREFIX}0, {PREFIX}1"


def test_many_ranks_have_several_pseudo_hosts_and_one_job(tmp_path: Path) -> None:
    """A bundle has at most 4,096 processes of a host."""
    group = range(4100)
    waits = [Rank(n).group(group).call("all_reduce", 1.0) for n in (0, 1, 4099)]
    for rank in waits:
        write(tmp_path, [rank])
    for number in range(2, 4099):
        (tmp_path / f"{PREFIX}{number}").write_bytes(b"")
    (job,) = diagnose(codec.decode(codec.encode(read(tmp_path)))).jobs
    assert (job.world_size, len(job.ranks)) == (4100, 4100)


def test_a_saved_snapshot_of_dumps_gives_the_same_answer(tmp_path: Path) -> None:
    snapshot = read(write(tmp_path / "d", hung(), at=602.0))
    again = codec.decode(codec.encode(snapshot))
    assert again == snapshot
    assert diagnose(again) == diagnose(snapshot)
    raw = gzip.decompress(codec.encode(snapshot))
    assert b"only torch's dump was read" in raw


def test_a_record_from_a_file_is_like_one_from_memory(tmp_path: Path) -> None:
    (host,) = read(write(tmp_path / "d", hung(), at=602.0)).hosts
    recorder = host.processes[0].recorder
    assert isinstance(recorder, FlightRecorder)
    (group,) = recorder.groups
    assert (group.name, group.default, group.ranks, group.issued, group.on_card) == ("0", True, (0, 1), 10, True)
    assert [(call.seq, call.op, call.inputs, call.timeout_seconds) for call in group.pending] == [
        (10, "all_reduce", ("float32[64]",), 600.0)
    ]
    assert group.pending[0].age_seconds == pytest.approx(600.0, abs=0.01)
    assert group.history is not None
    assert group.history.numbers == tuple(range(1, 11))
    assert recorder.whole
