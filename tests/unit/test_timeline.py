"""What the timeline says of built polls."""

import msgspec
import pytest

from hangdoc.diagnosis import Calls, Job, Label, Operation, RankView, Unseen, Where
from hangdoc.timeline import CELLS, Cell, Past, Recorder, Timeline, blocks


def view(rank: int, label: Label | None = "computing", state: str = "computing", **more: object) -> RankView:
    fields: dict[str, object] = {
        "rank": rank, "local_rank": rank, "host": "h0", "pid": 100 + rank, "label": label, "state": state,
        "operation": None, "where": None, "cpu_percent": None, "batches_done": None, "batches_total": None,
        "silent_seconds": None,
    }  # fmt: skip
    return RankView(**(fields | more))  # type: ignore[arg-type]


def waits(rank: int, silent: float | None = 90.0, line: int = 3) -> RankView:
    where = Where(file="train.py", line=line, function="train")
    operation = Operation(op="all_reduce")
    return view(rank, "blocked", "in-collective", operation=operation, where=where, silent_seconds=silent)


def job(*views: RankView, unseen: tuple[int, ...] = ()) -> Job:
    return Job(
        id="run@h:1", launcher="torchrun", backend="gloo", world_size=len(views), master="h:1", verdict="healthy",
        hung_for_seconds=None, ranks=views, findings=(),
        unseen=tuple(Unseen(rank=rank, why="gone") for rank in unseen),
    )  # fmt: skip


def recorded(*polls: Job, every: float = 1.0) -> Recorder:
    recorder = Recorder()
    for number, poll in enumerate(polls):
        recorder.add(100.0 + number * every, poll)
    return recorder


def cells(timeline: Timeline, rank: int) -> tuple[Cell, ...]:
    return next(row.cells for row in timeline.rows if rank in row.ranks)


@pytest.mark.parametrize(
    ("seen", "cell"),
    [
        (view(0), "computing"),
        (view(0, state="checkpointing"), "computing"),
        (view(0, state="loading-data"), "data"),
        (view(0, "blocked", "waiting-data"), "waiting"),
        (view(0, "blocked", "stopped", silent_seconds=0.1), "stopped"),
        (waits(0), "waiting"),
        (waits(0, silent=None), "waiting"),
        (waits(0, silent=0.2), "moving"),
        (view(0, "dead", "killed"), "dead"),
        (view(0, None, "unknown"), "unseen"),
    ],
)
def test_one_poll_is_one_cell(seen: RankView, cell: Cell) -> None:
    timeline = recorded(job(seen)).timeline()
    assert (timeline.seconds, cells(timeline, 0)) == ((0.0,), (cell,))


def test_a_rank_moves_where_bytes_passed_or_it_stands_elsewhere_since_the_poll_before() -> None:
    timeline = recorded(job(waits(0)), job(waits(0, line=9)), job(waits(0, line=9)), job(waits(0, 0.5, 9))).timeline()
    assert cells(timeline, 0) == ("waiting", "moving", "waiting", "moving")
    # A byte of two seconds ago is news where the poll before is older than that.
    assert cells(recorded(job(view(0)), job(waits(0, 2.0)), every=5.0).timeline(), 0)[-1] == "moving"


def test_what_only_one_of_two_polls_read_is_no_progress() -> None:
    whole = msgspec.structs.replace(
        waits(0), operation=Operation(op="barrier", seq=131, backend="gloo"), where_source="stack",
        batches_done=123, batches_source="loader",
        calls=(Calls(group=None, made=131, pending=131, last=None, age_seconds=90.0, source="recorder"),),
    )  # fmt: skip
    # A poll of a busy host that had no time for the record and the loops, and one that had none for the stack.
    without_record = msgspec.structs.replace(
        whole, operation=Operation(op="barrier", origin="user"), batches_done=None, batches_source=None, calls=()
    )
    without_stack = msgspec.structs.replace(whole, where_source="recorder", where=None)
    frozen = recorded(*(job(each) for each in (whole, without_record, whole, without_stack, whole)))
    assert set(cells(frozen.timeline(), 0)) == {"waiting"}

    (calls,) = whole.calls
    called = msgspec.structs.replace(whole, calls=(msgspec.structs.replace(calls, made=132, age_seconds=0.3),))
    assert cells(recorded(job(whole), job(called)).timeline(), 0)[-1] == "moving"


def test_a_rank_moves_though_not_each_poll_reads_its_line() -> None:
    lines = [waits(0, line=line) for line in (3, 9, 12, 15)]
    unread = msgspec.structs.replace(waits(0), where=None)
    polls = [job(each) for at in lines for each in (at, unread)]
    assert cells(recorded(*polls).timeline(), 0)[::2] == ("waiting", "moving", "moving", "moving")
    one, two = (
        msgspec.structs.replace(waits(0), operation=Operation(op="all_reduce", group=group)) for group in ("1", "2")
    )
    assert cells(recorded(*map(job, (one, two, one))).timeline(), 0)[1:] == ("moving", "moving")
    later = recorded(job(lines[0]), *(job(unread) for _ in range(9)), job(lines[1]))
    assert cells(later.timeline(), 0)[-1] == "waiting"  # it may have moved long ago


def test_ranks_that_nobody_could_look_at_or_that_come_later_are_unseen() -> None:
    timeline = recorded(job(view(0), unseen=(1,)), job(view(0), view(1), view(2))).timeline()
    assert [cells(timeline, rank) for rank in (1, 2)] == [("unseen", "computing")] * 2
    assert timeline.seconds == (-1.0, 0.0)


def test_equal_histories_share_a_row_and_the_last_progress_is_found() -> None:
    still = [job(waits(0), waits(1), waits(2))] * 3
    timeline = recorded(job(view(0), view(1), waits(2)), *still).timeline()
    assert [row.ranks for row in timeline.rows] == [(0, 1), (2,)]
    assert cells(timeline, 0) == ("computing", "moving", "waiting", "waiting")
    assert timeline.last_progress() == 1
    assert recorded(*still).timeline().last_progress() is None


def test_one_rank_among_many_keeps_its_share() -> None:
    recorder = recorded(job(view(517), *(waits(rank) for rank in range(1024) if rank != 517)))
    whole, part = recorder.timeline([range(1024), range(512)]).rows
    assert (whole.cells, part.cells) == (("waiting",), ("waiting",))
    assert 0 < whole.progress[0] < 0.01
    assert part.progress == (0.0,)


def test_a_dead_rank_among_many_is_seen() -> None:
    (row,) = recorded(job(view(0, "dead", "killed"), *(view(rank) for rank in range(1, 64)))).timeline([range(64)]).rows
    assert (row.cells, row.progress) == (("dead",), (63 / 64,))


def test_many_different_histories_become_blocks() -> None:
    several = [job(*(view(rank) if rank >> bit & 1 else waits(rank) for rank in range(1024))) for bit in range(10)]
    rows = recorded(*several).timeline().rows
    assert [len(row.ranks) for row in rows] == [16] * 64


def test_turning_back_in_a_recording_forgets_what_came_later() -> None:
    recorder = recorded(job(view(0)), job(waits(0)), job(waits(0)))
    recorder.add(101.0, job(waits(0)))
    assert recorder.timeline().seconds == (-1.0, 0.0)


def test_memory_is_bounded() -> None:
    recorder = Recorder(polls=5)
    for second in range(50):
        recorder.add(float(second), job(view(0)))
    assert len(recorder.timeline().seconds) == 5
    assert len(recorder.timeline(polls=2).rows[0].cells) == 2
    assert Recorder().timeline() == Timeline(seconds=(), rows=())


def test_it_survives_json() -> None:
    timeline = recorded(job(view(0), waits(1))).timeline()
    assert msgspec.json.decode(msgspec.json.encode(timeline), type=Timeline) == timeline
    assert set(CELLS) == set(Cell.__args__)


def test_blocks_are_powers_of_two() -> None:
    assert [len(block) for block in blocks(range(1000), 64)] == [16] * 62 + [8]
    assert blocks((5, 3), 64) == [(3,), (5,)]


def test_how_long_no_rank_has_made_progress() -> None:
    still = [job(waits(0), waits(1))] * 3
    assert recorded(*still).polls_since_progress is None
    recorder = recorded(
        job(view(0), waits(1)), job(waits(0), waits(1)), *still
    )  # at the second poll it stands elsewhere
    assert (recorder.polls_since_progress, recorder.seconds) == (3, (-4.0, -3.0, -2.0, -1.0, 0.0))
    recorder.add(101.5, still[0])
    assert recorder.polls_since_progress == 1
    recorder.add(100.5, still[0])
    assert recorder.polls_since_progress == 1
    recorder.add(100.0, still[0])
    assert recorder.polls_since_progress is None


def calls(made: int, age: float, *, waits_in: bool = True) -> tuple[Calls, ...]:
    return (
        Calls(group=None, made=made, pending=made if waits_in else None, last=None, age_seconds=age, source="recorder"),
    )


def test_the_last_progress_is_as_old_as_the_call_or_byte_that_was_read() -> None:
    """Polls of a busy host come seconds apart, and one of them saw that a rank stands elsewhere: `silent` and the verdict said
    3.9 s, the mark 3.0 s."""
    after = [2.0, 4.0, 6.0, 8.0]  # the run froze 1.5 s before the second poll, which has not read the stacks
    for known, since in (({}, 3), ({"calls": True}, 4)):  # the third saw them elsewhere, and the record says since when
        recorder = Recorder()
        recorder.add(100.0, job(view(0), view(1)))
        recorder.add(102.0, job(view(0), view(1)))
        for at in after:
            age = at + 1.5
            more = {"calls": calls(7, age)} if known else {}
            stand = [msgspec.structs.replace(waits(rank, silent=age), **more) for rank in (0, 1)]  # type: ignore[arg-type]
            recorder.add(102.0 + at, job(*stand))
        assert recorder.polls_since_progress == since
        assert recorder.seconds_since_progress == pytest.approx(9.5)
    assert Recorder().seconds_since_progress is None


def test_a_cell_shows_what_a_rank_did_for_most_of_its_time() -> None:
    """Two bundles were 38 s apart, and the run froze 20 s before the second one: it was drawn as communicating until then."""
    for stood, cell in ((20.0, "waiting"), (15.0, "moving")):
        later = msgspec.structs.replace(waits(0, silent=stood, line=9), calls=calls(8, stood))
        recorder = recorded(job(view(0)), job(later), every=38.0)
        assert cells(recorder.timeline(), 0)[-1] == cell
        assert recorder.seconds_since_progress == stood
    # It waited for a part of the time that is known, and is drawn with that.
    assert cells(recorded(job(waits(0)), job(waits(0, 0.8))).timeline(), 0)[-1] == "waiting"
    passing = msgspec.structs.replace(waits(0, 0.8), waited_share=0.8)
    assert cells(recorded(job(waits(0)), job(passing)).timeline(), 0)[-1] == "moving"


def test_what_the_last_polls_show() -> None:
    recorder = begun()
    assert recorder.find_used(1) == {"computing", "waiting"}
    assert recorder.find_used(4) == {"computing", "waiting", "unseen"}
    assert (recorder.has_parts(1), recorder.has_parts(3)) == (False, True)
    assert (recorder.count_recorded(1), recorder.count_recorded(3)) == (0, 2)
    recorder.add(101.0, job(view(0, waited_share=0.2)))
    assert recorder.has_parts(1)


def test_a_call_long_before_the_last_progress_says_nothing_of_it() -> None:
    """A rank computed after its call, or data from others is older than what its stack shows."""
    polls = [job(view(0), waits(1))] * 9
    still = [waits(0, silent=20.0), waits(1, silent=90.0)]
    for shown in (
        still,
        [msgspec.structs.replace(still[0], calls=calls(7, 20.0, waits_in=False)), still[1]],
        [view(0, "blocked", "stopped", silent_seconds=20.0, calls=calls(7, 20.0)), still[1]],
    ):
        recorder = recorded(*polls, job(*shown), job(*shown))
        assert recorder.seconds_since_progress == -recorder.seconds[-1 - (recorder.polls_since_progress or 0)]
    for age, since in ((4.5, 4.5), (7.5, 2.0)):  # with `async_op=True` it computed after the start of the call
        pending = msgspec.structs.replace(still[0], calls=calls(7, age))
        assert recorded(*polls, job(pending, still[1]), job(pending, still[1])).seconds_since_progress == since


def test_a_stopped_rank_made_its_last_progress_when_the_hang_began() -> None:
    """A screen had `HUNG for 2.4 s` beside `last progress 2.0 s ago`, the time of a poll."""
    recorder = recorded(job(view(0), view(1)), job(view(0), view(1)))
    stopped = msgspec.structs.replace(waits(0, silent=2.4), calls=calls(7, 2.4)), view(1, "blocked", "stopped")
    for hung, since in ((2.4, 2.4), (20.0, 2.0)):  # not if it made progress after that
        recorder.add(103.0, msgspec.structs.replace(job(*stopped), hung_for_seconds=hung))
        assert recorder.seconds_since_progress == pytest.approx(since)
    assert cells(recorder.timeline(), 1)[-1] == "stopped"


def test_the_newest_poll() -> None:
    assert Recorder().newest() == {}
    assert recorded(job(view(0)), job(waits(0), view(1), unseen=(2,))).newest() == {
        0: "moving", 1: "computing", 2: "unseen",
    }  # fmt: skip


# --- before the first poll --------------------------------------------------------------------------------------------

BEFORE = Past(
    seconds=(-3.0, -2.0, -1.0),
    cells={
        0: (("computing", 1.0), ("waiting", 0.001), ("waiting", 0.0)),
        1: (("computing", 0.999), ("computing", 0.5), ("unseen", 0.0)),
    },
)


def begun() -> Recorder:
    recorder = Recorder()
    recorder.begin(100.0, BEFORE)
    recorder.add(100.0, job(waits(0), view(1), view(2)))
    return recorder


def test_the_past_comes_before_the_first_poll() -> None:
    timeline = begun().timeline()
    assert (timeline.seconds, timeline.recorded) == ((-3.0, -2.0, -1.0, 0.0), 3)
    assert cells(timeline, 0) == ("computing", "waiting", "waiting", "waiting")
    assert cells(timeline, 1) == ("computing", "computing", "unseen", "computing")
    assert cells(timeline, 2) == ("unseen", "unseen", "unseen", "computing")
    shares = {row.ranks: row.progress for row in timeline.rows}
    assert shares[0,] == pytest.approx((1.0, 0.001, 0.0, 0.0), abs=0.005)
    assert shares[0,][1] > 0  # never rounded to none or all
    assert shares[1,][0] < 1


def test_progress_of_the_past_counts_until_a_poll_has_some() -> None:
    recorder = Recorder()
    recorder.begin(100.0, BEFORE)
    recorder.add(100.0, job(waits(0), waits(1)))
    assert recorder.polls_since_progress == 2
    recorder.add(101.0, job(view(0), waits(1)))
    assert recorder.polls_since_progress == 0


def test_a_row_of_several_ranks_has_the_share_of_those_that_are_known() -> None:
    (row,) = begun().timeline([(0, 1)]).rows
    assert row.cells[:3] == ("computing", "waiting", "waiting")
    assert row.progress[1] == pytest.approx(0.25, abs=0.01)
    assert row.progress[2] == 0.0


def test_the_past_leaves_like_old_polls_and_stays_when_a_recording_is_rewound() -> None:
    recorder = begun()
    recorder.add(101.0, job(view(0)))
    recorder.add(100.0, job(view(0)))
    assert recorder.timeline().seconds == (-3.0, -2.0, -1.0, 0.0)
    assert (recorder.timeline(polls=2).recorded, recorder.recorded) == (1, 3)
    short = Recorder(polls=3)
    short.begin(100.0, BEFORE)
    for at in range(3):
        short.add(100.0 + at, job(view(0)))
    assert short.recorded == 0


def test_a_poll_shows_how_long_a_rank_that_moves_waited() -> None:
    """It is never drawn as one that makes no progress."""
    recorder = Recorder()
    recorder.add(100.0, job(view(0, waited_share=0.75), view(1, waited_share=1.0), view(2), waits(3)))
    rows = recorder.timeline().rows
    shares = {rank: row.progress for row in rows for rank in row.ranks}
    assert [row.cells for row in rows] == [("computing",), ("waiting",)]
    (several,) = recorder.timeline([(0,)]).rows
    assert several.progress == pytest.approx((0.25,), abs=0.01)
    (barely,) = recorder.timeline([(1,)]).rows
    assert 0 < barely.progress[0] < 0.01
    assert shares[0] == pytest.approx(((0.25 + 1.0 + 1 / 255) / 3,), abs=0.01)
    assert shares[3] == (0.0,)
