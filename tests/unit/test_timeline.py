"""What the timeline says of built polls."""

import msgspec
import pytest

from hangdoc.diagnosis import Job, Label, Operation, RankView, Unseen, Where
from hangdoc.timeline import CELLS, Cell, Recorder, Timeline, blocks


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
        (view(0, "blocked", "stopped", silent_seconds=0.1), "waiting"),
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


def test_the_newest_poll() -> None:
    assert Recorder().newest() == {}
    assert recorded(job(view(0)), job(waits(0), view(1), unseen=(2,))).newest() == {
        0: "moving", 1: "computing", 2: "unseen",
    }  # fmt: skip
