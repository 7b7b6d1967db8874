"""When a hang is sure."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from hangdoc.cli.watch import _describe_jobs
from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.engine import diagnose
from hangdoc.watch.confirm import Confirmation
from hangdoc.watch.hangs import Observed
from tests.rules import fires
from tests.unit.test_deploy import scrape
from tests.unit.test_past import job_of, passes


def hung(silent: float | None = None, code: str = "HD302") -> Diagnosis:
    answer = diagnose(fires(code), patience=0.0)
    (job,) = answer.jobs
    assert job.verdict == "hung"
    return replace(answer, jobs=(replace(job, hung_for_seconds=silent),))


def moving(answer: Diagnosis) -> Diagnosis:
    return replace(answer, jobs=(replace(answer.jobs[0], verdict="healthy", findings=()),))


def test_one_look_is_never_enough() -> None:
    sure = Confirmation(patience=30)
    first = sure.add(hung(silent=900), 0)
    assert (first.confirmed, first.soon) == ([], True)
    assert len(sure.add(hung(silent=915), 15).confirmed) == 1


def test_a_young_hang_waits_for_the_patience() -> None:
    sure = Confirmation(patience=30)
    assert [len(sure.add(hung(), at).confirmed) for at in (0, 15, 29, 31, 45)] == [0, 0, 0, 1, 0]


def test_a_hang_is_confirmed_before_torch_ends_the_run() -> None:
    def soon(seconds: float) -> Diagnosis:
        found = hung()
        return replace(found, jobs=tuple(replace(job, ends_by_itself_in_seconds=seconds) for job in found.jobs))

    for seconds, confirmed in ((400.0, False), (20.0, True)):
        sure = Confirmation(patience=1000)
        assert not sure.add(soon(seconds), now=0.0).confirmed
        assert bool(sure.add(soon(seconds - 2), now=2.0).confirmed) is confirmed


def test_another_finding_starts_anew_and_a_hang_is_confirmed_once() -> None:
    sure = Confirmation(patience=0)
    codes = ("HD302", "HD202", "HD202", "HD302", "HD302")
    confirmed = [len(sure.add(hung(code=code), at).confirmed) for at, code in enumerate(codes)]
    assert confirmed == [0, 0, 1, 0, 0]


def test_after_it_has_moved_it_may_hang_again() -> None:
    sure = Confirmation(patience=0)
    looks = [hung(), hung(), moving(hung()), moving(hung()), hung(), hung()]
    changes = [sure.add(look, at) for at, look in enumerate(looks)]
    assert [len(one.confirmed) for one in changes] == [0, 1, 0, 0, 0, 1]
    assert [len(one.over) for one in changes] == [0, 0, 0, 1, 0, 0]
    assert changes[2].soon
    assert changes[3].over[0].ending == "goes-on"


@pytest.mark.parametrize("gone", [True, False])
def test_a_run_of_which_a_rank_has_ended_does_not_go_on(gone: bool) -> None:
    """Somebody ends a hung run: the launcher kills one rank, and the other one is about to end."""

    def ending(look: Diagnosis) -> Diagnosis:
        (job,) = look.jobs
        first, *others = job.ranks
        ranks = tuple(others) if gone else (replace(first, label="dead"), *others)
        return replace(look, jobs=(replace(job, ranks=ranks),))

    sure = Confirmation(patience=0)
    looks = [hung(), hung(), ending(moving(hung())), ending(moving(hung()))]
    changes = [sure.add(look, at) for at, look in enumerate(looks)]
    assert [over.ending for over in changes[3].over] == ["ended"]


def test_one_look_that_shows_no_hang_does_not_end_it() -> None:
    sure = Confirmation(patience=0)
    changes = [sure.add(look, at) for at, look in enumerate([hung(), hung(), moving(hung()), hung(), hung()])]
    assert [len(one.confirmed) for one in changes] == [0, 1, 0, 0, 0]
    assert [len(one.over) for one in changes] == [0, 0, 0, 0, 0]


def test_a_run_that_is_gone_has_ended() -> None:
    sure = Confirmation(patience=0)
    gone = replace(hung(), jobs=())
    changes = [sure.add(look, at) for at, look in enumerate([hung(), hung(), gone, gone])]
    assert [[end.ending for end in one.over] for one in changes] == [[], [], [], ["ended"]]
    assert changes[3].over[0].hang.id == changes[1].began[0].hang.id
    assert not sure.hangs


def test_a_run_on_a_host_that_was_not_looked_at_is_not_gone() -> None:
    sure = Confirmation(patience=0)
    (host,) = {view.host for view in hung().jobs[0].ranks}
    gone = replace(hung(), jobs=())
    looks = [(hung(), {host}), (hung(), {host}), (gone, {"other"}), (gone, set()), (hung(), {host}), (gone, {host})]
    changes = [sure.add(look, at, Observed(hosts=frozenset(hosts))) for at, (look, hosts) in enumerate(looks)]
    assert [len(one.confirmed) for one in changes] == [0, 1, 0, 0, 0, 0]
    assert [len(one.over) for one in changes] == [0] * 6


def test_another_run_under_the_name_of_a_hung_one_hangs_anew() -> None:
    """Stopped, started again on the old port, and stuck again: the first hang has ended, and the second one is reported."""
    job = hung().jobs[0]
    ranks = tuple(replace(view, pid=view.pid + 1000) for view in job.ranks if view.pid is not None)
    findings = tuple(replace(finding, id="other") for finding in job.findings)
    again = replace(hung(), jobs=(replace(job, ranks=ranks, findings=findings),))
    sure = Confirmation(patience=0)
    changes = [sure.add(look, at) for at, look in enumerate([hung(), hung(), again, again])]
    assert [len(one.confirmed) for one in changes] == [0, 1, 0, 1]
    assert [[end.ending for end in one.over] for one in changes] == [[], [], [], ["ended"]]


def test_a_look_that_sees_too_little_does_not_end_a_reported_hang() -> None:
    sure = Confirmation(patience=0)
    blind = replace(hung(), jobs=(replace(hung().jobs[0], verdict="unknown", findings=()),))
    looks = [hung(), hung(), blind, hung(), hung(), moving(hung()), moving(hung())]
    changes = [sure.add(look, at) for at, look in enumerate(looks)]
    assert [len(one.confirmed) for one in changes] == [0, 1, 0, 0, 0, 0, 0]
    assert [len(one.over) for one in changes] == [0, 0, 0, 0, 0, 0, 1]


def test_a_hang_that_was_never_sure_is_never_over() -> None:
    sure = Confirmation(patience=60)
    assert [sure.add(look, at).over for at, look in enumerate([hung(), hung(), moving(hung())])] == [[], [], []]


def test_another_trouble_beside_a_hang_does_not_begin_it_anew() -> None:
    """Which of two findings comes first may change from look to look."""
    one, other = (hung(code=code).jobs[0].findings[0] for code in ("HD302", "HD202"))
    job = hung().jobs[0]
    looks = [replace(hung(), jobs=(replace(job, findings=found),)) for found in ((one,), (other, one), (one, other))]
    sure = Confirmation(patience=0)
    assert [len(sure.add(look, at).confirmed) for at, look in enumerate(looks)] == [0, 1, 0]


def test_the_same_finding_of_another_run_of_that_name_is_another_hang() -> None:
    """Started again on the old port and stuck at once, between two looks."""
    first, job = hung(), hung().jobs[0]
    ranks = tuple(replace(view, pid=view.pid + 1000) for view in job.ranks if view.pid is not None)
    again = replace(first, jobs=(replace(job, ranks=ranks),))
    sure = Confirmation(patience=0)
    assert [len(sure.add(look, at).confirmed) for at, look in enumerate([first, again, again])] == [0, 0, 1]


def test_a_process_that_could_not_be_read_has_not_ended() -> None:
    """The kernel holds up the reader of a process whose memory is locked: such a hang is not over."""
    sure = Confirmation(patience=0)
    job = hung()
    assert [len(sure.add(job, at).confirmed) for at in (0, 1)] == [0, 1]
    (hang,) = sure.hangs
    nothing = replace(job, jobs=(), verdict="healthy")
    for at in range(2, 8):
        assert not sure.add(nothing, at, Observed(unread=frozenset(hang.processes[:1]))).over
    assert [len(sure.add(nothing, at).over) for at in (8, 9)] == [0, 1]


def test_a_look_that_was_late_does_not_say_that_there_is_no_rank() -> None:
    """The first look of an overloaded host read no rank of a run whose hang was reported 30 s later."""
    late = "the host is overloaded (load 11 on 2 cores): not read in time: 2 readings in all. --verbose lists them"
    look = replace(hung(), jobs=(), problems=(late,), late=("pid 7: its stack", "pid 8: its stack"))
    assert _describe_jobs(look) == [f"no torch.distributed rank was read in time; {late}"]
    absent = replace(look, problems=("pid 7 has not loaded torch",), late=())
    assert _describe_jobs(absent) == ["no torch.distributed rank found; pid 7 has not loaded torch"]


def test_a_job_that_waits_without_a_finding_says_what_that_means() -> None:
    """`waiting: train.py · torchrun · 2 ranks` said neither who waits nor for what, while the run was ending."""
    (waits,) = _describe_jobs(replace(hung(), jobs=(replace(hung().jobs[0], verdict="waiting", findings=()),)))
    assert waits.startswith("waiting: ")
    assert ". No rank is making progress, but no rank is waiting for another rank" in waits
    assert "progress" not in _describe_jobs(moving(hung()))[0]


@pytest.mark.parametrize("read", [True, False])
def test_the_metrics_of_a_rank_that_makes_progress_do_not_depend_on_how_long_it_waits(
    tmp_path: Path, read: bool
) -> None:
    """They changed at each look: the share of the time in which it waits differs. `read`: whether its stack was read."""
    for late, label in ((0.05, "blocked"), (0.0, "computing")):
        look = passes(late=late, read=read)
        assert job_of(look).ranks[0].label == label
        lines = [line for line in scrape(tmp_path, look).splitlines() if line.startswith("hangdoc_ranks{")]
        assert [line.partition(",")[0] for line in lines if not line.endswith(" 0.0")] == [
            'hangdoc_ranks{label="computing"'
        ]
