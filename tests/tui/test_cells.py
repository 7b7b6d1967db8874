"""The timeline as text, and the columns and places beside it: built values."""

import dataclasses
import datetime
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.style import Style

from hangdoc.commands.looking import Looks
from hangdoc.diagnosis import Calls, Finding, Operation, RankView, Where
from hangdoc.reasoning.causes.pace import stragglers
from hangdoc.reasoning.ledger.lags import pace
from hangdoc.reasoning.model.ledger import GroupCalls, Ledger, RankCalls
from hangdoc.render import words
from hangdoc.timeline import CELLS, WORDS, Cell, Row
from hangdoc_tui import behind, calls, cells, detail, ranks
from hangdoc_tui.batches import Amount, _bounds, _ticks, amounts, bar, describe_no_count, list_corners, list_points
from hangdoc_tui.grid import Column, _fitted
from hangdoc_tui.head import finding_line
from hangdoc_tui.history import History, Track
from hangdoc_tui.places import place, placed
from hangdoc_tui.ranks import doing
from hangdoc_tui.rates import Rate, find_rate
from hangdoc_tui.source import Live
from hangdoc_tui.stacks import _show_locals, show_value
from hangdoc_tui.view_model import ViewModel
from tests.tui.sample_runs import app
from tests.unit.builders import frame, local, snapshot
from tests.unit.test_ledger import BUCKET, SYNC, timed
from tests.unit.test_past import job_of, passes
from tests.unit.test_timeline import job, view


def row(*did: Cell, ranks: int = 1, progress: tuple[float, ...] = ()) -> Row:
    return Row(ranks=tuple(range(ranks)), cells=did, progress=progress)


def test_every_cell_has_a_shape_of_its_own() -> None:
    assert len(set(cells.GLYPH.values())) == len(CELLS)
    assert cells.draw_row(row(*CELLS), 9).plain == "  █▒▄─═×·"
    assert cells.draw_row(row(*CELLS), 2).plain == "×·"  # the newest


def test_an_error_a_culprit_a_dead_and_an_unseen_rank_do_not_look_alike() -> None:
    """All of them were red or magenta, and two had the same sign."""
    hues = [words.CULPRIT_STYLE, words.LABEL_STYLE["dead"], words.LABEL_STYLE[None], words.LABEL_STYLE["blocked"]]
    assert len({Style.parse(style).color for style in hues}) == len(hues)
    assert len({"●", *words.LABEL_GLYPH.values()}) == 1 + len(words.LABEL_GLYPH)
    poll = app("dead-rank", Path()).source.poll(0)
    finding = finding_line(ViewModel(poll, poll.diagnosis.jobs[0], poll.runs[0], None, History()))
    assert finding.plain.startswith(" error  HD301")
    assert "reverse" in str(finding.spans[0].style)


def test_a_block_shows_a_single_rank_that_differs() -> None:
    shares = (0.0, 1 / 1024, 0.5, 1023 / 1024, 1.0)
    mixed = row("waiting", "waiting", "waiting", "computing", "computing", ranks=1024, progress=shares)
    assert cells.draw_row(mixed, 5).plain == "─▁▄▇█"


def test_a_block_with_a_dead_rank_is_red() -> None:
    assert cells.draw_block(["waiting", "dead"]) == ("×", "bold red")
    assert cells.draw_block([*["computing"] * 63, "dead"]) == ("▇", "red")  # type: ignore[list-item]
    assert cells.draw_block(["waiting"]) == ("─", "yellow")


def test_a_long_freeze_is_drawn_with_several_polls_to_a_cell() -> None:
    assert [cells.polls_per_cell(still, 30) for still in (None, 3, 23, 24, 48, 500)] == [1, 1, 1, 2, 4, 32]
    did: tuple[Cell, ...] = ("computing",) * 8 + ("waiting",) * 48
    assert cells.draw_row(row(*did), 14, 4).plain == "██────────────"
    assert cells.draw_row(row("dead", *did[1:]), 14, 4).plain == "▆█────────────"


def test_cells_from_the_record_are_dim_and_show_shares() -> None:
    did = row(
        "computing", "waiting", "waiting", "unseen", "waiting", "computing", progress=(1.0, 0.5, 0.01, 0.0, 0.0, 1.0)
    )
    drawn = cells.draw_row(did, 6, recorded=4)
    assert drawn.plain == "█▄▁·─█"
    assert [str(span.style) for span in drawn.spans] == ["dim green", "dim yellow", "dim magenta", "yellow", "green"]


def test_the_cell_of_the_newest_poll_shows_nothing_else() -> None:
    """The record knows nothing of a rank that makes no calls, but the poll does."""
    did = row("computing", *["unseen"] * 6, "waiting")
    assert cells.draw_row(did, 6, polls=2, recorded=7).plain == " █···─"
    assert cells.axis([float(at - 7) for at in range(8)], 7, 20, polls=2, recorded=7).plain == "     7.0 s ago ▼  ◄ "


@pytest.mark.parametrize(
    ("recorded", "width", "text"),
    [
        (30, 30, "    before hangdoc ◄       now"),
        (34, 17, " recorded ◄   now"),
        (20, 20, "       ╷12s      now"),  # it has left the column
        (30, 12, " ◄       now"),
    ],
)
def test_the_axis_marks_where_the_record_ends(recorded: int, width: int, text: str) -> None:
    seconds = tuple(float(at - 39) for at in range(40))
    assert cells.axis(seconds, None, width, recorded=recorded).plain == text


@pytest.mark.parametrize(
    ("polls", "still", "width", "text"),
    [
        (40, None, 30, "     ╷24s        ╷12s      now"),
        (80, 40, 60, "           ╷48s    ▼ last progress 40 s ago    ╷12s      now"),
        (40, 14, 30, "     ╷24s      ▼ 14 s ago  now"),
        (40, 3, 30, "  last progress 3.0 s ago ▼   "),
        (40, 4, 30, " last progress 4.0 s ago ▼ now"),
        (3, 1, 8, "      ▼ "),
    ],
)
def test_the_axis_says_when_and_marks_the_last_progress(polls: int, still: int | None, width: int, text: str) -> None:
    seconds = tuple(float(at - polls + 1) for at in range(polls))
    assert cells.axis(seconds, still, width).plain == text


def test_the_axis_has_the_time_of_the_call_not_of_the_poll_that_saw_it() -> None:
    seconds = tuple(float(at - 39) for at in range(40))
    assert cells.axis(seconds, 3, 30, still_seconds=3.9).plain == "  last progress 3.9 s ago ▼   "


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (40, "base_train.py:198  loss.backward()"),
        (34, "base_train.py:198  loss.backward()"),
        (33, "base_train.py:198  loss.backward…"),
        (25, "base_train.py:198  loss.…"),
        (24, "base_train.py:198"),
        (17, "base_train.py:198"),
        (12, "…rain.py:198"),
    ],
)
def test_a_place_is_cut_at_the_source_line_first(width: int, text: str) -> None:
    where = Where(file="hangdoc_trainer/base_train.py", line=198, function="step", source="loss.backward()")
    assert place(where, width) == text


def test_a_place_without_a_source_line_names_the_function() -> None:
    assert place(Where(file="a.py", line=1, function="step"), 40) == "a.py:1  in step"
    assert place(None, 40) == ""


def test_a_model_of_which_only_a_part_was_read_is_not_shown_as_whole() -> None:
    shown = {text: show_value(local("model.parameters()", text)) for text in ("float32[9]", "float32[9], ...")}
    assert shown == {
        "float32[9]": "float32[9]",
        "float32[9], ...": "float32[9] in the parameters that were read, and more",
    }
    assert show_value(local("names", "'a', ...")) == "'a', ..."


def test_an_old_stack_is_dim_and_says_its_age() -> None:
    where = Where(file="train.py", line=3, function="train", source="x = f(x)")
    moving = view(0, where=where, stack_seconds_ago=6.2)
    assert (placed(moving, 40).plain, placed(moving, 40).style) == ("train.py:3  x = f(x) (6.2 s ago)", "dim")
    assert placed(moving, 14).plain == "train.py:3 6s"
    assert placed(view(0, where=where, stack_seconds_ago=0.4), 40).plain == "train.py:3  x = f(x)"  # read in this poll
    # A row had the gather of an evaluation beside the batches of the next epoch, which were read 2 s later.
    passes = view(
        0, "blocked", "in-collective", operation=Operation(op="all_gather"), stack_seconds_ago=2.2, progress="calls"
    )
    assert doing([passes]).plain == "■ all_gather 2s ago"
    assert doing([moving]).plain == "▶ computing"
    # A rank at rest is not read again: it stands where its stack says.
    still = view(0, "blocked", "in-collective", where=where, stack_seconds_ago=90.0)
    assert doing([still]).plain == "■ in-collective"
    assert (placed(still, 40).plain, placed(still, 40).style) == ("train.py:3  x = f(x)", "")


def test_a_named_pid_that_is_no_rank_is_explained_as_diagnose_does() -> None:
    shell = subprocess.Popen(["sleep", "1000"])
    try:
        poll = Live(Looks(snapshot), "pid", 5.0, (shell.pid,)).poll(0)
    finally:
        shell.kill()
        shell.wait()
    assert poll.no_rank.startswith(f"pid {shell.pid} is neither a rank of torch.distributed nor the launcher of one.")
    assert Live(Looks(snapshot), "this host", 5.0).poll(0).no_rank == ""


def test_batches_that_ended_are_marked() -> None:
    ranks = (
        view(0, batches_done=3, batches_total=232),
        view(1, batches_done=3, batches_total=3, batches_ended=True),
        view(2),
        view(3, batches_done=1, batches_total=3, batches_ended=True),  # a `break`, an exception, a signal
    )
    texts = [(one.ranks, one.text) for one in amounts(job(*ranks))]
    assert texts == [((0,), "3 of 232"), ((1,), "ended at 3 of 3"), ((3,), "left at 1 of 3")]


def test_only_a_run_whose_ranks_were_read_is_told_how_to_count_batches() -> None:
    """A script that counts its batches need not be changed because its ranks move and were not read."""
    unread = describe_no_count(job(view(0), view(1, where_source="recorder"), view(2, label=None)))
    assert unread.startswith("Not read: ranks 0-1 move. `hangdoc diagnose --stacks` reads")
    read = describe_no_count(job(view(0, where_source="stack"), view(1, "blocked", "in-collective")))
    assert read.startswith("No rank is seen in a loop over batches now.")


def show_batches(
    views: list[RankView], first: RankView | None, rate: float | None = 0.0, *, of_pass: bool = False
) -> str:
    """The cell of a row whose ranks, like the first one, do `rate` batches per second."""
    known = Rate(rate, 10.0) if rate is not None else None
    return ranks._show_batches(views, first, lambda _: known, of_pass=of_pass).plain


def test_batches_of_different_passes_name_them_and_are_not_compared() -> None:
    ahead, last = view(0, batches_done=0, batches_pass_number=7), view(1, batches_done=9, batches_pass_number=6)
    assert [one.text for one in amounts(job(ahead, last))] == ["0 of pass 7", "9 of pass 6"]
    assert show_batches([ahead], last, of_pass=True) == "0 of pass 7"
    assert show_batches([view(0, batches_done=0, batches_pass_number=6)], last) == "0 9 behind"
    # Numbers without a total do not tell whether one of them is of the next pass.
    unknown = view(0, batches_done=48)
    assert show_batches([unknown], view(1, batches_done=143)) == "48"
    assert show_batches([unknown], view(1, batches_done=143, batches_pass_number=1)) == "48"


def test_batches_are_counted_across_passes_of_the_same_length() -> None:
    late = view(0, batches_done=90, batches_total=100, batches_pass_number=6)
    first = view(1, batches_done=10, batches_total=100, batches_pass_number=7)
    assert behind.find_first([late, first]) == first
    assert show_batches([late], first) == "90/100 20 behind"
    assert show_batches([first], late) == "10/100"
    other = view(1, batches_done=10, batches_total=90, batches_pass_number=7)
    assert show_batches([late], other) == "90/100"


def test_a_difference_that_the_time_between_two_readings_explains_is_not_behind() -> None:
    """Ranks that make one all_reduce in each of 108 batches a second were shown as `3 behind`."""

    def shown(done: int, rate: float | None, **more: Any) -> str:
        counted = {"batches_total": 200, "batches_source": "loader", **more}
        first = view(1, batches_done=100, batches_total=200, batches_source="loader")
        return show_batches([view(0, batches_done=done, **counted)], first, rate)

    assert shown(97, 108.0, batches_seconds_ago=0.03) == "97/200"
    assert shown(60, 108.0, batches_seconds_ago=0.03) == "60/200 40 behind"
    assert shown(97, 14.6, batches_seconds_ago=0.2) == "97/200"
    assert shown(97, 2.0, batches_seconds_ago=0.2) == "97/200 3 behind"
    assert shown(97, 2.0, batches_source="inferred") == "97/200"  # read some time in this poll
    assert shown(60, None) == "60/200"  # nothing tells how fast it is
    assert shown(60, 2.0, host="another") == "60/200"
    still = view(0, "blocked", "in-collective", batches_done=97)
    assert show_batches([still], view(1, "blocked", "in-collective", batches_done=99), None) == "97"
    passes = {"batches_pass_number": 1, "host": "another"}
    still, last = (replace(each, **passes) for each in (still, view(1, "blocked", "in-collective", batches_done=99)))
    assert show_batches([still], last, None) == "97 2 behind"


def test_bars_of_a_run_have_one_scale() -> None:
    assert bar(Amount((0,), 50, 100, False), 100, 10).plain == "█████─────"
    assert bar(Amount((1,), 25, 25, True), 100, 10).plain == "██▌"
    assert bar(Amount((1,), 1, 100_000, False), 100_000, 10).plain == "▏─────────"
    assert bar(Amount((1,), 7, None, False), 7, 4).plain == "███→"  # a full bar without it reads as finished
    assert bar(Amount((1,), 2, None, False), 8, 8).plain == "██→"
    assert bar(Amount((1,), 7, None, True), 7, 4).plain == "████"
    assert bar(Amount((1,), 0, None, False), 0, 4).plain == ""


def test_the_plot_has_the_scale_of_its_data_in_whole_batches() -> None:
    assert _bounds([3, 3, 3]) == (3, 4)
    assert _bounds([20, 5]) == (5, 20)
    assert _ticks(3, 4) == [3, 4]
    assert _ticks(0, 232) == [0, 58, 116, 174, 232]


def test_a_number_is_plotted_at_the_time_when_it_was_read() -> None:
    """One of 20 s ago was plotted at `now`."""
    history, began = History(), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    for second, age in ((0, 0.0), (30, 20.0)):
        seen = job(view(0, batches_done=50 + second, batches_seconds_ago=age))
        history.add(began + datetime.timedelta(seconds=second), seen)
    assert list_points(history, 0) == [(-30.0, 50), (-20.0, 80)]


def test_no_batch_is_plotted_between_two_readings() -> None:
    """All ranks stood in a barrier from the first to nearly the second, and the line rose meanwhile."""
    assert list_corners([(-8.0, 19), (-2.0, 23), (0.0, 24)]) == [
        (-8.0, 19),
        (-2.0, 19),
        (-2.0, 23),
        (0.0, 23),
        (0.0, 24),
    ]
    assert list_corners([(0.0, 19)]) == [(0.0, 19)]


def test_a_rank_that_hangs_had_its_number_when_it_stopped() -> None:
    """In two bundles of a run that had stopped 41 s before the second, the line rose until the second."""
    history, began = History(), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    history.add(began, job(view(0, batches_done=20), view(1, batches_done=20)))
    stands = view(0, "blocked", "in-collective", batches_done=30)
    works = view(1, batches_done=30)  # it reached this number at any time until now
    hung = replace(job(stands, works), verdict="hung", hung_for_seconds=41.0)
    history.add(began + datetime.timedelta(seconds=56), hung)
    history.add(began + datetime.timedelta(seconds=60), replace(hung, hung_for_seconds=45.0))
    assert list_points(history, 0) == [(-60.0, 20), (-45.0, 30), (0.0, 30)]
    assert list_points(history, 1) == [(-60.0, 20), (-4.0, 30), (0.0, 30)]


def test_a_rank_that_was_not_read_keeps_its_older_number() -> None:
    """It had none, and was said to have no loop over batches."""
    history, began = History(), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    history.add(began, job(view(0, batches_done=50, batches_total=99, batches_seconds_ago=0.0)))
    unread = job(view(0))
    history.add(began + datetime.timedelta(seconds=15), unread)
    (filled,) = history.fill_counts(unread).ranks
    assert (filled.batches_done, filled.batches_total, filled.batches_seconds_ago) == (50, 99, 15.0)
    for other in (view(0, pid=7), view(0, where_source="stack"), view(0, "blocked", "in-collective")):
        assert history.fill_counts(job(other)).ranks == (other,)


def test_a_number_of_the_poll_before_has_its_age() -> None:
    """After the end of a run one rank had `10/20 1s ago`, and two of the same poll `10/20`: the poll before was 0.95 s ago."""
    history, began = History(), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    history.add(began, job(view(0, batches_done=10, batches_total=20, batches_seconds_ago=0.002)))
    unread = job(view(0))
    history.add(began + datetime.timedelta(seconds=0.95), unread)
    (filled,) = history.fill_counts(unread).ranks
    shown = ranks._show_batches([filled], None, lambda _: None, of_pass=False)
    assert (shown.plain, str(shown.style)) == ("10/20 1s ago", "dim")


def test_a_rank_that_goes_from_call_to_call_has_no_events_until_it_stops() -> None:
    """Each poll in which it waited for most of the time, and each other one, gave one: they pushed out all others."""
    history, began = History(), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    polls = [job_of(passes(late=late)) for late in (0.0, 0.05, 0.05, 0.0, 0.05)]
    assert [poll.ranks[0].state for poll in polls] == [
        "computing", "in-collective", "in-collective", "computing", "in-collective",
    ]  # fmt: skip
    stopped = replace(polls[1], ranks=tuple(replace(view, progress=None) for view in polls[1].ranks[:2]))
    events = [
        [
            event.text.partition(" at ")[0]
            for event in history.add(began + datetime.timedelta(seconds=at), poll)
            if event.rank == 0
        ]
        for at, poll in enumerate((*polls, stopped, polls[1], polls[0]))
    ]
    assert events[1:] == [[], [], [], [], ["computing → in-collective"], [], ["in-collective → computing"]]


def test_an_event_has_the_time_of_the_call_that_a_rank_waits_in() -> None:
    """The freeze of 13:49:52 was an event of 13:49:53, when a poll had seen it. The call may be older than another rank's event,
    and than one of the same rank: then the rank was seen elsewhere after it had made it."""
    history, began = History(), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def waits(age: float, group: str | None = None) -> RankView:
        recorded = [Calls(group=group, made=9, pending=9, last=None, age_seconds=age, source="recorder"),
                    Calls(group="2", made=9, pending=9, last=None, age_seconds=0.1, source="recorder")]  # fmt: skip
        return view(0, "blocked", "in-collective", calls=tuple(recorded), operation=Operation(op="barrier"))

    works, other, asleep = view(0), view(1), view(1, "blocked", "sleeping")
    polls = [(works, other), (works, asleep), (waits(1.8), asleep), (works, asleep), (waits(9.0), asleep)]
    for second, poll in enumerate(polls):
        history.add(began + datetime.timedelta(seconds=second), job(*poll))
    events = [((event.at - began).total_seconds(), event.rank, event.at_most) for event in history.events][3:]
    assert events == [(0.2, 0, False), (1.0, 1, True), (3.0, 0, True), (4.0, 0, True)]
    history.add(began + datetime.timedelta(seconds=5), job(view(0, "blocked", "in-collective"), asleep))
    history.add(began + datetime.timedelta(seconds=6), job(works, asleep))
    history.add(began + datetime.timedelta(seconds=7), job(waits(0.5, group="3"), asleep))
    last = history.events[-1]
    assert ((last.at - began).total_seconds(), last.at_most) == (6.9, False)
    for second in range(8, 12):
        history.add(began + datetime.timedelta(seconds=second), job(works, asleep))
    history.add(
        began + datetime.timedelta(seconds=12), job(waits(3.0), asleep)
    )  # it computed while the call was under way
    last = history.events[-1]
    assert ((last.at - began).total_seconds(), last.at_most) == (12.0, True)


def test_a_finding_that_ends_is_an_event() -> None:
    """`healthy: HD601 straggler` never ended, while `findings` said that nothing was found."""
    history, began = History(), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    late = replace(
        job(view(0)),
        findings=(Finding(code="HD601", name="straggler", severity="warning", confidence=0.9, culprits=(0,), victims=(),
                          summary="", evidence=(), remedy=None),),
    )  # fmt: skip
    polls = [late, late, job(view(0)), job(view(0)), replace(late, verdict="waiting")]
    events = [
        [event.text for event in history.add(began + datetime.timedelta(seconds=at), poll) if event.rank is None]
        for at, poll in enumerate(polls)
    ]
    assert events == [
        ["healthy: HD601 straggler"], [], ["healthy: HD601 straggler is no longer found"], [],
        ["waiting: HD601 straggler"],
    ]  # fmt: skip


COLUMNS = (
    Column("rank", most=14),
    Column("timeline", least=24, flexible=True),
    Column("doing", most=30),
    Column("cpu", gives_way=2),
    Column("where", least=20, flexible=True, gives_way=1),
)


@pytest.mark.parametrize(
    ("room", "widths"),
    [
        (60, [6, 28, 20, 0, 0]),
        (78, [6, 24, 20, 0, 20]),
        (90, [6, 27, 20, 4, 23]),  # cpu comes back when there is room
        (150, [6, 76, 20, 4, 34]),  # `where` has all that it wishes
        (20, [6, 24, 20, 0, 0]),  # too narrow: it can be scrolled
    ],
)
def test_columns_give_way_and_take_what_is_left(room: int, widths: list[int]) -> None:
    assert _fitted(COLUMNS, [6, 8, 20, 4, 34], room) == widths


def test_a_legend_has_only_the_cells_in_use_and_is_never_cut() -> None:
    short = cells.legend({"computing", "waiting"}, 78, blocks=False, parts_of_time=True, recorded=True)
    assert [line.plain for line in short] == ["dim: recorded  █ computing  ─ waiting  ▁…▇ time not waiting for ranks"]
    for width in (60, 78, 200):
        lines = cells.legend(set(CELLS), width, blocks=True, recorded=True)
        assert max(line.cell_len for line in lines) <= width
        assert all(WORDS[cell] in " ".join(line.plain for line in lines) for cell in CELLS)


def test_ranks_that_make_equally_many_calls_have_one_rate() -> None:
    """One of them has made one more within the window."""
    host = snapshot(silence=None).hosts[0]
    times = tuple(at * 80_000 for at in range(1, 201))
    rates = {
        made: calls._rate_of(
            RankCalls(0, "h0", made=200, made_before=200 - made, made_us=times, last_age_seconds=0.0), host
        )
        for made in (12, 13)
    }
    assert rates == {made: (pytest.approx(12.5), pytest.approx(10.0, abs=0.1)) for made in (12, 13)}
    # Only their number is known.
    assert calls._rate_of(RankCalls(0, "h0", made=9, made_before=9, made_us=times[:9]), host) == (0.0, 1.0)
    assert calls._rate_of(RankCalls(0, "h0", made=9, made_before=4), host) == (5.0, 1.0)


@pytest.mark.parametrize(
    ("every_ms", "number", "made", "age", "rate", "seconds"),
    [
        (1300, 100, 0, 0.4, 0.77, 10.4),  # ten of them take longer than ten seconds
        (1300, 100, 1, 0.1, 0.77, 10.4),
        (1300, 100, 0, 30.0, 0.0, 30.0),
        (80, 200, 0, 2.5, 0.0, 2.5),  # it made 12 calls in a window, and has stopped
        (80, 200, 0, 0.4, 12.0, 10.0),  # it may make a longer step
        (200, 30, 5, 0.0, 5.0, 5.8),  # it began 5.8 s ago
        (1500, 100, 0, 3.2, 0.0, 3.2),  # longer than twice between any two calls
        (2, 100, 400, 0.0, 400.0, 1.0),  # the record is shorter than the window
    ],
)
def test_calls_per_second_are_those_of_the_last_ten_seconds(
    every_ms: int, number: int, made: int, age: float, rate: float, seconds: float
) -> None:
    host = replace(snapshot(silence=None).hosts[0], window_seconds=1.0)
    times = tuple(at * every_ms * 1000 for at in range(1, number + 1))
    of_rank = RankCalls(0, "h0", made=number, made_before=number - made, made_us=times, last_age_seconds=age)
    assert calls._rate_of(of_rank, host) == (pytest.approx(rate, abs=0.01), pytest.approx(seconds, abs=0.05))


def test_a_group_without_a_new_call_does_not_tell_the_time_of_a_rate() -> None:
    """Beside a group of checkpoints, `5.0 calls/s in 40 s`; and `0 calls/s in 40 s` after the last call of 12 s ago."""
    poll = app("healthy", Path()).source.poll(0)
    name = poll.runs[0].hosts[0].name
    every, seldom = (tuple(range(0, 20_000_000, step)) for step in (200_000, 1_000_000))

    def find(age: float) -> Rate | None:
        columns = (
            RankCalls(0, name, made=99, made_before=98, made_us=times, last_age_seconds=ago)
            for times, ago in ((every, age), (seldom, 40.0))
        )
        run = replace(poll.runs[0], ledger=Ledger(tuple(GroupCalls(None, (0,), {0: each}) for each in columns)))
        return calls._find_rate(ViewModel(poll, poll.diagnosis.jobs[0], run, None, History()), view(0, host=name))

    assert find(0.0) == (pytest.approx(5.0), pytest.approx(10.0))
    assert find(12.0) == (0.0, 12.0)


def test_calls_after_a_pause_are_counted_over_the_time_that_they_name() -> None:
    """`in 14 s` beside batches of the last ten: the first call of these was before the pause."""
    host = replace(snapshot(silence=None).hosts[0], window_seconds=1.0)
    for every_us in (200_000, 20_000):
        times = (*range(0, 20_000_000, every_us), *range(30_000_000, 34_000_000, every_us))
        of_rank = RankCalls(0, "h0", made=len(times), made_before=len(times) - 5, made_us=times, last_age_seconds=0.01)
        assert calls._rate_of(of_rank, host) == (pytest.approx(4e5 / every_us), 10.0)


@pytest.mark.parametrize("back_us", [300_000, 2_000_000, 20_000_000])
def test_a_clock_that_is_set_back_makes_no_rate_negative(back_us: int) -> None:
    """It ended `top` with a ZeroDivisionError, or made it show -36 calls/s."""
    host = replace(snapshot(silence=None).hosts[0], window_seconds=1.0)
    for every_us in (50_000, 300_000, 900_000):
        for before in range(1, 60):
            times = tuple(every_us * number - (back_us if number >= before else 0) for number in range(60))
            of_rank = RankCalls(0, "h0", made=60, made_before=59, made_us=times, last_age_seconds=0.4)
            rate = calls._rate_of(of_rank, host)
            assert rate is None or (rate.per_second >= 0 and rate.seconds >= 0)


def _list_rates(*stops: tuple[float, float], until: int) -> dict[int, Rate | None]:
    """By second: the rate of a rank that does 6.4 in a second, but nothing in these times."""
    points, rates = [], dict[int, Rate | None]()
    for second in range(until):
        stood = sum(max(0.0, min(second, end) - begin) for begin, end in stops)
        points.append((float(second), int(6.4 * (second - stood))))
        rates[second] = find_rate(points, float(second))
    return rates


def test_a_stopped_rank_does_nothing_per_second_whatever_it_did_before() -> None:
    """One that had been stopped for 12 s before did 3.9 batches per second 9 s after its last one, and 2.1 after 20 s."""
    rates = _list_rates((20, 26), (45, 57), (75, 96), until=110)
    assert rates[19] == rates[44] == (pytest.approx(6.4, abs=0.1), 10.0)
    for begin, end in ((20, 26), (45, 57), (75, 96)):
        stopped = [rates[second] for second in range(begin, end + 1)]
        falling = [rate.per_second for rate in stopped if rate is not None]
        assert falling == sorted(falling, reverse=True) and len(falling) == len(stopped)
        assert stopped[3:] == [(0.0, float(seconds)) for seconds in range(3, end - begin + 1)]
    assert rates[100] == (pytest.approx(6.4 * 0.4, abs=0.1), 10.0)  # it has gone on for 4 s
    soon = _list_rates((1, 20), until=20)  # seen with one rise only
    assert soon[9] is None and soon[19] == (0.0, 18.0)
    assert find_rate([(0.0, 3), (1.0, 4), (19.0, 4)], 19.0) is None  # perhaps each takes so long


def test_a_pause_between_two_bursts_is_no_stop() -> None:
    """A rank that made 20 calls in each step of 15 s was shown with 0 from 2 s after them; so was one that evaluated for 5 s."""
    host = replace(snapshot(silence=None).hosts[0], window_seconds=1.0)
    times = tuple(15_000_000 * step + 10_000 * call for step in range(5) for call in range(20))

    def find(age: float) -> Rate | None:
        of_rank = RankCalls(0, "h0", made=100, made_before=100, made_us=times, last_age_seconds=age)
        return calls._rate_of(of_rank, host)

    assert find(3.0) == find(9.0) == (pytest.approx(2.0), 10.0)
    assert find(11.0) == (0.0, 11.0)
    rates = _list_rates((8, 13), (21, 26), until=27)
    assert [rate.per_second for second in range(22, 27) if (rate := rates[second])] == [5.1, 5.1, 4.5, 3.8, 3.2]


def test_the_last_call_is_that_of_any_group() -> None:
    """The default group comes first, and was last called before the loop."""
    poll = app("healthy", Path()).source.poll(0)
    made = {None: 107.0, "actors": 89.7}
    of_groups = (
        Calls(group=group, made=4, pending=None, last=None, age_seconds=age, source="recorder")
        for group, age in made.items()
    )
    model = ViewModel(poll, poll.diagnosis.jobs[0], poll.runs[0], None, History())
    assert "last call 1 min 30 s ago" in list(calls.facts(model, view(0, calls=tuple(of_groups))))


def test_a_long_fact_goes_on_in_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = app("healthy", Path()).source.poll(0)
    model = ViewModel(poll, poll.diagnosis.jobs[0], poll.runs[0], None, History())
    long = "of the last 28 calls, the ranks came the furthest apart in 22 (all_gather, all_reduce, broadcast)"
    monkeypatch.setattr(calls, "pace_facts", lambda *_: [long, "came last in 97% of those"])
    shown = [line.plain for line in detail._describe_rank(model, model.job.ranks[0], 78)]
    assert all(len(line) <= 78 for line in shown)
    assert " broadcast) · came last in 97% of those" in " ".join(shown)


def test_rates_say_of_which_time_they_are() -> None:
    """A stopped rank had `0 batches/s` beside `1.9 calls/s · last call 7.1 s ago`."""
    poll, history = app("healthy", Path()).source.poll(0), History()
    track = history.tracks[0] = Track()
    for second in range(13):
        track.count(float(second), view(0, batches_done=7 * second))
    model = ViewModel(poll, poll.diagnosis.jobs[0], poll.runs[0], None, history)
    assert "7.0 batches/s in 10 s" in list(calls.facts(model, view(0, batches_done=84)))


def test_a_rank_that_is_late_in_few_calls_is_not_shown_as_late_in_all() -> None:
    """A rank that evaluated every 20 steps was shown as `in 600 calls: 2.0 s after the others, last in 100%`."""
    poll = app("healthy", Path()).source.poll(0)
    job_id = poll.diagnosis.jobs[0].id
    columns: dict[int, list[tuple[str, int]]] = {0: [], 1: []}
    for round_ in range(12):
        for step in range(21):
            site, late = (SYNC, 2_000_000) if step == 20 else (BUCKET, 0)
            for number, column in columns.items():
                column.append((site, (round_ * 23 + step) * 1_000_000 + (late if number == 0 else 20_000)))
    measured = pace(timed(columns))
    assert measured is not None
    poll = dataclasses.replace(poll, paces={job_id: measured})
    model = ViewModel(poll, poll.diagnosis.jobs[0], poll.runs[0], None, History())
    assert list(calls.pace_facts(model, view(0))) == [
        "of the last 252 calls (4 min 35 s), the ranks came the furthest apart in 12 (barrier)",
        "came last in 100% of those, 2.0 s after the others",
    ]
    assert calls.late_text(model, [view(0), view(1)]) == "2.0 s in 5%"
    # A rank that stood in its last call for minutes was shown as one that `waited 1% of the time`.
    made = (Calls(group=None, made=252, pending=252, last=None, age_seconds=255.0, source="recorder"),)
    told = " · ".join(calls.facts(model, view(0, calls=made)))
    assert told.endswith("last call 4 min 15 s ago · waited in collectives 2% of the time before it")
    assert stragglers(poll.runs[0], measured) is None


def test_an_old_number_of_batches_is_dim_with_its_age_and_is_not_compared() -> None:
    """Ranks that DDP keeps in lock step were shown as `21 behind`, because they were read 5 s apart."""
    first, old = view(0, batches_done=54, batches_total=100), view(1, batches_done=33, batches_seconds_ago=5.0)
    most = behind.find_first([first, old])
    assert show_batches([first], most) == "54/100"
    shown = ranks._show_batches([old], most, lambda _: None, of_pass=False)
    assert (shown.plain, shown.style) == ("33 5s ago", "dim")
    assert show_batches([first, old], most) == "54/100"
    assert show_batches([first, view(2, batches_done=None)], most) == "-…54/100"  # one of the row shows none
    # A newer one is not behind an old one that is larger.
    assert behind.find_first([view(0, batches_done=90, batches_seconds_ago=5.0), first]) == first
    assert [each.text for each in amounts(job(first, old))] == ["54 of 100", "33, 5.0 s ago"]
    late = view(1, batches_done=33, batches_total=100)
    assert show_batches([late], most) == "33/100 21 behind"


def test_a_rank_that_has_begun_the_next_epoch_does_not_show_as_behind() -> None:
    last, first = view(0, batches_done=39, batches_total=40), view(1, batches_done=1, batches_total=40)
    assert show_batches([first], behind.find_first([last, first])) == "1/40"


def _track(*done: int, total: int | None = 40, **more: Any) -> list[int]:
    track = Track()
    for seconds, number in enumerate(done):
        track.count(float(seconds), view(0, batches_done=number, batches_total=total, **more))
    return [number for _, number in track.batches]


def find_per_second(track: Track) -> float | None:
    rate = track.find_batch_rate()
    return rate.per_second if rate is not None else None


def test_batches_are_counted_through_all_epochs() -> None:
    """The plot fell at each epoch, and by one where a hang began."""
    assert _track(33, 2, 12) == [33, 42, 52]
    assert _track(33, 2, 12, total=None) == [33, 35, 45]
    assert _track(46, 45, 45) == [46, 46]
    track = Track()
    track.count(0.0, view(0, batches_done=30, batches_source="loader"))
    track.count(1.0, view(0, batches_done=25, batches_source="inferred", batches_seconds_ago=0.5))  # of another source
    track.count(2.0, view(0, batches_done=31, batches_source="loader"))
    track.count(3.0, view(0, batches_done=4, batches_source="loader", pid=7))  # restarted
    assert list(track.batches) == [(0.0, 30), (0.5, 30), (2.0, 31), (3.0, 35)]


def test_a_rank_that_has_stopped_has_no_batches_per_second() -> None:
    """One that had done 23 a second and stood for 5.7 s was shown with 11, beside `0 calls/s`."""
    track = Track()
    for second in (*range(12), 12.0, 13.0):
        track.count(float(second), view(0, batches_done=23 * min(int(second), 11), batches_total=1000))
    assert find_per_second(track) == pytest.approx(18.4)  # as long as this may be a slow batch
    track.count(16.7, view(0, batches_done=253, batches_total=1000))
    assert find_per_second(track) == 0


def test_the_rounds_of_another_loop_are_no_batches_of_the_data() -> None:
    """A rank at 67 of 100 was plotted at 100, because its accumulation loop was at 0 of 2 then; and the batches of a validation
    gave one of two ranks in lock step a rate of 9.1 beside 8.3."""
    track = Track()
    for second, (done, total) in enumerate([(57, 100), (67, 100), (0, 2), (2, 8), (68, 100), (78, 100), (3, 8)]):
        track.count(float(second), view(0, batches_done=done, batches_total=total))
    assert list(track.batches) == [(0.0, 57), (1.0, 67), (4.0, 68), (5.0, 78)]
    assert find_per_second(track) == 21 / 6  # in the last of these seconds, it did none
    endless = Track()
    for second, (done, total) in enumerate([(50, None), (60, None), (3, 10), (70, None), (4, 10), (80, None)]):
        endless.count(float(second), view(0, batches_done=done, batches_total=total))
    assert [done for _, done in endless.batches] == [50, 60, 70, 80]
    streams, evaluates = Track(), Where(file="eval.py", line=23, function="evaluate")
    for second, (done, loop) in enumerate([(575, None), (589, None), (0, evaluates), (607, None), (3, evaluates)]):
        streams.count(float(second), view(0, batches_done=done, batches_total=None, batches_loop=loop))
    assert [done for _, done in streams.batches] == [575, 589, 607]
    found = Track()
    for second, total in enumerate([None, 100, 100]):
        found.count(float(second), view(0, batches_done=50 + second, batches_total=total))
    assert [done for _, done in found.batches] == [50, 51, 52]


def test_epochs_shorter_than_a_poll_are_counted_by_the_calls_that_were_made() -> None:
    """An epoch has 6 batches of 3 calls each. A rank makes 5 batches a second, and each poll may find a new epoch."""

    def read(
        track: Track,
        second: float,
        passes: int | None = None,
        *,
        rounds: bool = False,
        in_round: int = 1,
        of: int = 6,
        accumulates: int = 1,
    ) -> None:
        batches = int(5 * second)
        made = 3 * accumulates * (batches // accumulates)
        calls = Calls(group=None, made=made, pending=None, last=None, age_seconds=None, source="recorder")
        track.count(
            second,
            view(
                0, batches_done=batches % of, batches_total=of, batches_source="loader", calls=(calls,),
                batches_pass=passes if passes is not None else batches // of,
                batches_round=batches // of // in_round + 1 if rounds else None,
            ),
        )  # fmt: skip

    track = Track()
    read(track, 0)
    read(track, 1)  # in the same epoch
    assert find_per_second(track) is None  # one batch more or less would be a fifth of it
    for second in (2, 3, 7, 8):
        read(track, second)
    assert [number for _, number in track.batches] == [0, 5, 10, 15, 35, 40]
    assert find_per_second(track) == 5
    unknown = Track()
    for second in (0, 3, 6):  # never twice in one epoch
        read(unknown, second, passes=second)
    assert find_per_second(unknown) is None
    by_rounds = Track()
    for second in (0, 3, 6, 30, 60):  # the loop over epochs has counted them
        read(by_rounds, second, rounds=True)
    # Until a pass was seen near its end, only those that surely passed are counted: a loop may leave each of them early.
    assert [number for _, number in by_rounds.batches] == [0, 9, 12, 18, 24]
    for second in (61, 91, 121):
        read(by_rounds, second, rounds=True)
    assert [number for _, number in by_rounds.batches][-3:] == [305, 455, 605]
    assert find_per_second(by_rounds) == 5
    twice = Track()
    for second in (1, 2, 31, 61):  # a round has two passes
        read(twice, second, rounds=True, in_round=2)
    assert find_per_second(twice) is None
    accumulating = Track()
    for fifth in (*range(60), 600):  # of three batches, two make no call
        read(accumulating, fifth / 5, of=60, accumulates=3)
    assert [number for _, number in accumulating.batches][-1] == 600


def test_a_rank_that_stands_is_still_one_whose_rounds_have_one_pass() -> None:
    """After a stop of 16 polls, the rate was that of 19 s: nothing showed any more that a round is a whole pass."""
    track = Track()

    def read(second: int, done: int) -> None:
        counted = {"batches_total": 10, "batches_source": "loader", "batches_pass": done // 10}
        track.count(second, view(0, batches_done=done % 10, batches_round=done // 10, **counted))

    for second in range(20):  # passes end at 9 of 10
        read(second, 5 * second + 4)
    for second in range(20, 50):
        read(second, 112)
    for second in range(50, 53):  # in another pass
        read(second, 123 + 5 * (second - 50))
    assert track.find_batch_rate() == (pytest.approx(2.1), 10.0)


def test_a_long_hang_of_a_rank_with_rounds_does_not_lose_its_rate() -> None:
    """After 240 polls without a batch, `0 batches/s` went away."""
    track = Track()
    for second in range(320):
        done = min(5 * second + 4, 149)
        counted = {"batches_total": 10, "batches_source": "loader", "batches_pass": done // 10}
        track.count(second, view(0, batches_done=done % 10, batches_round=done // 10, **counted))
    assert track.find_batch_rate() == (0.0, 290.0)


def test_a_hang_after_the_last_batch_of_an_epoch_counts_as_one_in_it() -> None:
    """Such a reading has no round. After it, one of two ranks in lock step was shown with `1.4 batches/s` beside 3.6."""
    rates, counted = {}, {"batches_total": 40, "batches_source": "loader"}
    for last in (79, 80):
        track = Track()
        for second in range(34):
            done = min(6 * second + 1, last) if second < 30 else last + 6 * (second - 29)
            ended = done == 80
            number, round_ = (40, None) if ended else (done % 40, done // 40)
            track.count(second, view(0, batches_done=number, batches_round=round_, batches_pass=round_, **counted))
        rates[last] = track.find_batch_rate()
    assert rates == {79: (2.4, 10.0), 80: (2.4, 10.0)}


def test_the_rate_of_a_validation_is_not_that_of_the_training_that_stands() -> None:
    """`0 batches/s in 20 s` stood beside `60 of 100 batches`, and readings 1 s apart were shown as `3 behind`."""
    track = Track()
    rates = []
    for second in range(60):
        done, total = (6 * second, 400) if second < 20 else (min(3 * (second - 20), 90), 100)
        track.count(float(second), view(0, batches_done=done, batches_total=total))
        rates.append(track.find_batch_rate())
    assert rates[19] == (6.0, 10.0) and rates[40] == (3.0, 10.0) and rates[59] == (0.0, 9.0)
    assert all(rate is None or rate.per_second >= 3 for rate in rates[:50])
    track.count(60.0, view(0, batches_done=0, batches_total=2))  # first seen in a loop
    assert track.find_batch_rate() == (0.0, 41.0)


def test_a_training_with_fewer_batches_than_its_validations_has_its_own_rate() -> None:
    """It was shown with `0 batches/s` from one validation to the next."""
    track = Track()
    for second in range(105):
        round_, at = divmod(second, 35)
        evaluates = at >= 15
        done, total = (5 * (at - 15), 120) if evaluates else (3 * (15 * round_ + at), 200)
        track.count(float(second), view(0, batches_done=done, batches_total=total, batches_pass=round_ * evaluates))
        if second == 84:
            assert track.find_batch_rate() == (3.0, 10.0)
    assert track.find_batch_rate() == (5.0, 10.0)


def test_a_group_that_is_called_at_times_only_counts_no_epoch_twice() -> None:
    def read(track: Track, second: int, *, of: int = 100) -> None:
        batches = 20 * second
        made = {"1": 3 * batches} | ({None: 400 + batches // 5} if second % 7 == 5 else {})  # a checkpoint now and then
        calls = [
            Calls(group=group, made=number, pending=None, last=None, age_seconds=None, source="recorder")
            for group, number in made.items()
        ]
        counts = {"batches_done": batches % of, "batches_total": of, "batches_pass": batches // of}
        track.count(second, view(0, batches_source="loader", calls=tuple(calls), **counts))

    track = Track()
    for second in (*range(60), 75):
        read(track, second)
    assert [number for _, number in track.batches] == [20 * second for second in (*range(60), 75)]


def test_a_reading_has_the_time_at_which_it_was_made_and_is_counted_once() -> None:
    track = Track()
    for poll in range(4):
        track.count(10.0 + poll, view(0, batches_done=8, batches_seconds_ago=float(poll)))
    track.count(14.0, view(0, batches_done=18))
    assert list(track.batches) == [(10.0, 8), (14.0, 18)]
    assert find_per_second(track) == 2.5


def test_the_rate_of_slow_batches_is_that_between_two_of_them() -> None:
    """Of one batch in 6.2 s, the last ten seconds had one or two: 0.098 or 0.19 batches per second instead of 0.16."""
    track, rates = Track(), []
    for second in range(60):
        track.count(float(second), view(0, batches_done=int((second + 3) / 6.2), batches_total=200))
        rates.append(find_per_second(track))
    assert rates[:10] == [None] * 10
    assert all(rate is None or rate == pytest.approx(1 / 6.2, rel=0.1) for rate in rates) and rates[-1] is not None


def test_variables_that_are_not_shown_are_counted_without_the_values_inside_them() -> None:
    """A function with 18 variables had `and 61 more`."""
    names = [*(f"v{number}" for number in range(18)), "v0.lr", "v1.parameters()", "v2[0]"]
    own = tuple(local(name, "1") for name in names)
    for number, last in (
        (21, "and 6 more variables and 3 more values inside of variables"),
        (13, "and 1 more variable"),
    ):
        *_, twelfth, shown = (line.plain.strip() for line in _show_locals(frame("main", locals=own[:number])))
        assert (twelfth, shown) == ("v11 = 1", last)
