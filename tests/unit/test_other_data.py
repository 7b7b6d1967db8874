"""Options and arguments by which ranks were given different data, and what they explain."""

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Job
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Exit, Process
from tests.rules.shapes import behind_loop, data, in_loop
from tests.unit.builders import LOOP, backward, c10d, frame, local, native_backward, rank, snapshot, train

ENDS_EARLY = replace(LOOP, exits=(Exit(statement="break", line=14, conditions=("loss < target",)),))


def started(words: str) -> tuple[str, ...]:
    return ("python3", "train.py", *words.split())


def parted(inside: str, short: str, target: object = 1) -> Job:
    """Rank 1 has left a loop that a `break` may end. Both ranks have `target`; its value on rank 0 is 1."""
    at = [frame("train", line, loops=(ENDS_EARLY,)) for line in (15, 22)]
    known = [
        replace(place, locals=(local("step", step), local("target", value)))
        for place, step, value in zip(at, (4, 3), (1, target), strict=True)
    ]
    ranks = (
        rank(0, *backward(), known[0], native=native_backward(), argv=started(inside)),
        rank(1, *c10d("barrier"), known[1], argv=started(short)),
    )
    return diagnose(snapshot(*ranks)).jobs[0]


@pytest.mark.parametrize(
    ("inside", "short", "target", "code"),
    [
        ("--data-dir imgs", "--data-dir imgs_small", 1, "HD101"),
        ("--train-path /d/a.jsonl", "--train-path /d/b.jsonl", 1, "HD101"),
        ("--dataset=c4", "", 1, "HD101"),
        ("data.path=a", "data.path=b", 1, "HD101"),
        ("--data-dir imgs", "--data-dir imgs_small", 2, "HD105"),  # another value decides when the loop ends
        ("--data-dir /n0/imgs", "--data-dir /n1/imgs/", 1, "HD105"),
        ("--train-file part-00", "--train-file part-01", 1, "HD105"),  # each rank has its own part
        ("--input-size 224", "--input-size 256", 1, "HD105"),
        ("imgs", "imgs_small", 1, "HD105"),  # it may be anything
    ],
)
def test_ranks_with_other_data_leave_a_loop(inside: str, short: str, target: object, code: str) -> None:
    assert (found := parted(inside, short, target).findings[0]).code == code
    if code == "HD101":
        assert "names other data" in found.summary
        assert {line.rank for line in found.evidence if line.probe == "arguments"} == {0, 1}


def test_words_that_belong_to_no_option_are_shown() -> None:
    lines = [line.text for line in parted("imgs 3", "imgs_small 4").findings[0].evidence if line.probe == "arguments"]
    assert lines == ["argument 1=imgs", "argument 1=imgs_small"]


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("--data-dir imgs", "--data-dir imgs_small", "HD101"),
        ("--data-dir imgs", "--data-dir imgs", "HD102"),
        ("a.json", "b.json", "HD102"),
    ],
)
def test_other_data_is_no_uneven_split(first: str, second: str, code: str) -> None:
    ranks = in_loop(0, 25, 26, argv=started(first)), behind_loop(1, 24, 25, argv=started(second))
    assert diagnose(snapshot(*ranks)).jobs[0].findings[0].code == code


def test_a_run_that_trains_with_other_data_is_healthy() -> None:
    def trains(number: int, words: str) -> Process:
        return rank(number, train(12), cpu=0.9, argv=started(words))

    (job,) = diagnose(snapshot(trains(0, "--data-dir imgs"), trains(1, "--data-dir imgs_small"))).jobs
    assert (job.verdict, [(f.code, f.severity) for f in job.findings]) == ("healthy", [("HD501", "info")])
    assert "`data-dir` differs between ranks: imgs on rank 0; imgs_small on rank 1" in job.findings[0].summary


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("--data data0", "--data data0", "--data data1", "--data data1"), "If each node has a part of the data"),
        (("--data data0", "--data data1", "--data data1", "--data data1"), "Start all ranks with the same"),
        (("--data data0", "--data data0", "", ""), "Start all ranks with the same"),  # one node was forgotten
        (("--batch-size 2", "--batch-size 2", "--batch-size 4", "--batch-size 4"), "Start all ranks with the same"),
    ],
)
def test_each_node_may_have_data_of_its_own(words: tuple[str, ...], remedy: str) -> None:
    """Each of two launchers started two ranks. With the same argument, the second node would read a folder of the first one."""
    ranks = [rank(n, train(12), cpu=0.9, argv=started(words[n]), owner=40 + n // 2, world=4) for n in range(4)]
    (found,) = diagnose(snapshot(*ranks)).jobs[0].findings
    assert found.code == "HD501" and found.remedy.startswith(remedy)


def test_one_file_is_no_files() -> None:
    ranks = in_loop(0, 4, data=data(2, "a")), behind_loop(1, 3, data=data(1, "b"))
    assert "(1 file vs. 2 on rank 0)" in diagnose(snapshot(*ranks)).jobs[0].findings[0].summary
