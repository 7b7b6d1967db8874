"""When a hang is sure."""

from msgspec.structs import replace

from hangdoc.diagnose.engine import diagnose
from hangdoc.diagnosis import Diagnosis
from hangdoc.watch.confirm import Confirmation
from tests.rules import fires


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
    assert (first.sure, first.soon) == ([], True)
    assert len(sure.add(hung(silent=915), 15).sure) == 1


def test_a_young_hang_waits_for_the_patience() -> None:
    sure = Confirmation(patience=30)
    assert [len(sure.add(hung(), at).sure) for at in (0, 15, 29, 31, 45)] == [0, 0, 0, 1, 0]


def test_another_story_begins_anew_and_a_hang_is_told_once() -> None:
    sure = Confirmation(patience=0)
    assert [len(sure.add(hung(code=code), at).sure) for at, code in enumerate(("HD302", "HD202", "HD202", "HD302", "HD302"))] == [
        0, 0, 1, 0, 0,
    ]  # fmt: skip


def test_after_it_has_moved_it_may_hang_again() -> None:
    sure = Confirmation(patience=0)
    looks = [hung(), hung(), moving(hung()), hung(), hung()]
    news = [sure.add(look, at) for at, look in enumerate(looks)]
    assert [len(new.sure) for new in news] == [0, 1, 0, 0, 1]
    assert [len(new.over) for new in news] == [0, 0, 1, 0, 0]


def test_a_look_that_sees_too_little_does_not_end_a_reported_hang() -> None:
    sure = Confirmation(patience=0)
    blind = replace(hung(), jobs=(replace(hung().jobs[0], verdict="unknown", findings=()),))
    news = [sure.add(look, at) for at, look in enumerate([hung(), hung(), blind, hung(), hung(), moving(hung())])]
    assert [len(new.sure) for new in news] == [0, 1, 0, 0, 0, 0]
    assert [len(new.over) for new in news] == [0, 0, 0, 0, 0, 1]


def test_a_hang_that_was_never_sure_is_never_over() -> None:
    sure = Confirmation(patience=60)
    assert [sure.add(look, at).over for at, look in enumerate([hung(), hung(), moving(hung())])] == [[], [], []]


def test_another_trouble_beside_a_hang_does_not_begin_it_anew() -> None:
    """Which of two findings comes first may change from look to look."""
    one, other = (hung(code=code).jobs[0].findings[0] for code in ("HD302", "HD202"))
    job = hung().jobs[0]
    looks = [replace(hung(), jobs=(replace(job, findings=found),)) for found in ((one,), (other, one), (one, other))]
    sure = Confirmation(patience=0)
    assert [len(sure.add(look, at).sure) for at, look in enumerate(looks)] == [0, 1, 0]


def test_the_same_finding_of_another_run_of_that_name_is_another_hang() -> None:
    """Started again on the old port and stuck at once, between two looks."""
    first, job = hung(), hung().jobs[0]
    again = replace(first, jobs=(replace(job, findings=tuple(replace(f, id="other") for f in job.findings)),))
    sure = Confirmation(patience=0)
    assert [len(sure.add(look, at).sure) for at, look in enumerate([first, again, again])] == [0, 0, 1]
