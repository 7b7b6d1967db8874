"""Every key does what the page of keys says."""

import datetime
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import Input, TabbedContent

from hangdoc import codec
from hangdoc.diagnosis import Job
from hangdoc.snapshot import merge
from hangdoc_tui import keys, pages, signals
from hangdoc_tui.app import SLOWEST, Polled, Top
from hangdoc_tui.head import Strip
from hangdoc_tui.history import History
from hangdoc_tui.keys import VIEWS
from hangdoc_tui.ranks import RankTable
from hangdoc_tui.source import Poll, Recorded
from hangdoc_tui.stacks import StackView
from hangdoc_tui.tables import Settings
from tests.tui.sample_runs import CORPUS, RECORDED, Freezing, app, bundles, freezing
from tests.tui.test_screens import seen, watched


@asynccontextmanager
async def started(situation: str, folder: Path, **options: Any) -> AsyncIterator[tuple[Top, Pilot[None]]]:
    """The app with its first poll on the screen."""
    top = Top(Recorded(bundles(situation, folder), patience=2.0), folder=folder, **options)
    async with top.run_test(size=(120, 40)) as pilot:
        await seen(pilot)
        yield top, pilot


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


def notices(top: Top) -> list[str]:
    return [str(notice.message) for notice in top._notifications]


def text(top: Top) -> str:
    """Everything that stands on the screen."""
    strips = top.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def shows(pilot: Pilot[None], *words: str) -> None:
    """Until all of these stand on the screen."""
    top: Any = pilot.app
    for _ in range(1000):
        await pilot.pause(0.02)
        if all(word in text(top) for word in words):
            return
    raise AssertionError(text(top))


async def test_numbers_show_the_views(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        for number, name in enumerate(VIEWS, 1):
            await press(pilot, str(number))
            assert top.query_one(TabbedContent).active == f"pane-{name}"


async def test_the_culprit_is_selected_at_first_and_enter_shows_its_stack(tmp_path: Path) -> None:
    async with started("1024-ranks", tmp_path) as (top, pilot):
        assert top.selected == 517
        assert "me/data.py:9" in text(top)  # scrolled into sight
        await press(pilot, "enter")
        assert top.query_one(TabbedContent).active == "pane-stack"
        assert "table = read(path)" in text(top)


async def test_the_filter_narrows_and_escape_ends_it(tmp_path: Path) -> None:
    async with started("1024-ranks", tmp_path) as (top, pilot):
        table = top.query_one(RankTable)
        await press(pilot, "g", "g", "g")
        await press(pilot, "slash", *"node003 blocked")
        assert (table.grouped_by, table.count) == ("ranks", 8)
        await press(pilot, "enter", "s")
        assert table.sorted_by == "doing"  # keys are keys again
        await press(pilot, "escape")
        assert table.count == 1024
        assert not top.query_one("#filter", Input).display


async def test_sorting_and_grouping(tmp_path: Path) -> None:
    async with started("1024-ranks", tmp_path) as (top, pilot):
        table = top.query_one(RankTable)
        assert (table.grouped_by, table.count) == ("classes", 2)  # a large run that hangs
        await press(pilot, "g")
        assert (table.grouped_by, table.count) == ("hosts", 128)
        await press(pilot, "g")
        assert (table.grouped_by, table.count) == ("blocks", 16)
        await press(pilot, "g", "s", "s")
        assert (table.grouped_by, table.sorted_by, table.count) == ("ranks", "batches", 1024)
        assert "517" in str(table.cells(0)[0])  # the one that is behind


async def test_the_order_has_a_direction_and_ranks_without_a_number_come_last(tmp_path: Path) -> None:
    async with started("dead-rank", tmp_path) as (top, pilot):
        table = top.query_one(RankTable)

        def order() -> list[int]:
            return [view.rank for index in range(table.count) for view in table.row_of(index)]

        assert "rank▴" in text(top)
        await press(pilot, "S")
        assert "rank▾" in text(top)
        assert order() == [1, 0]
        await press(pilot, "s", "s", "s", "s")
        assert (table.sorted_by, table.largest_first) == (
            "cpu",
            True,
        )  # and `batch/s`, which nothing shows, is left out
        assert "cpu▾" in text(top)
        assert order() == [0, 1]  # the dead one has none
        await press(pilot, "S")
        assert "cpu▴" in text(top)
        assert order() == [0, 1]
        await press(pilot, "s")
        assert (table.sorted_by, table.largest_first) == ("mem", True)
        title = next(line for line in text(top).splitlines() if "mem▾" in line)
        await pilot.click(RankTable, offset=(title.index("mem"), 0))
        await pilot.pause()
        assert "mem▴" in text(top)


async def test_rate_and_memory_of_each_rank() -> None:
    top = freezing("hung", freezes_at=100)
    async with top.run_test(size=(120, 36)) as pilot:
        await watched(30)(pilot)
        assert top.model is not None
        memory = [
            process.resident_bytes for process in top.model.poll.snapshot.hosts[0].processes if process.role == "rank"
        ]
        (titles,) = [line for line in text(top).splitlines() if "rank▴" in line]
        assert titles.split()[-5:] == ["batches", "batch/s", "silent", "cpu", "mem"]
        rows = [line.split() for line in text(top).splitlines() if "98%" in line and "·" not in line]
        assert [row[-5] for row in rows] == ["0.33", "0.33"]
        assert {row[-1] for row in rows} == {f"{(size or 0) / (1 << 30):.1f}G" for size in memory}


async def test_zooming_into_a_row_and_back(tmp_path: Path) -> None:
    async with started("1024-ranks", tmp_path) as (top, pilot):
        table = top.query_one(RankTable)
        await press(pilot, "g", "g", "z")  # into the block that has the culprit
        assert (table.grouped_by, table.count) == ("ranks", 64)
        assert "64 of 1,024 ranks: 512-575" in text(top)
        assert top.selected == 517
        await press(pilot, "z")
        assert any("single rank" in notice for notice in notices(top))
        await press(pilot, "slash", *"nowhere", "enter", "z")
        assert any("no row" in notice for notice in notices(top))
        await press(pilot, "escape")
        await press(pilot, "escape")
        assert "of 1,024 ranks" not in text(top)
        assert table.count == 2


async def test_the_culprit_of_a_new_hang_is_selected_unless_somebody_chose_another() -> None:
    for chosen in (False, True):
        top = freezing("hung", freezes_at=3)
        async with top.run_test(size=(120, 36)) as pilot:
            await watched(2, *["right_square_bracket"] * 2 * chosen)(pilot)
            assert top.selected == 0
            await watched(6)(pilot)
            assert top.selected == (0 if chosen else 1)


async def test_the_mouse_selects_and_opens(tmp_path: Path) -> None:
    async with started("1024-ranks", tmp_path) as (top, pilot):
        assert top.selected == 517
        await pilot.click(RankTable, offset=(3, 1))
        await pilot.pause()
        assert top.selected == 0
        lines = text(top).splitlines()
        row = next(at for at, line in enumerate(lines) if line.lstrip().startswith("512 "))
        await pilot.click(offset=(1 + len("1023 ") + 5, row))  # rank 517 in the map
        await pilot.pause()
        assert top.selected == 517
        await pilot.click(RankTable, offset=(3, 2))
        await pilot.pause()
        assert top.query_one(TabbedContent).active == "pane-stack"
        await press(pilot, "1")
        await pilot.click("#keys", offset=(1, 0))
        await pilot.pause()
        assert top.query_one("#filter", Input).display


async def test_a_click_on_a_title_sorts(tmp_path: Path) -> None:
    async with started("1024-ranks", tmp_path) as (top, pilot):
        table = top.query_one(RankTable)
        title = next(line for line in text(top).splitlines() if " class▴" in line)
        await pilot.click(RankTable, offset=(title.index("batches"), 0))
        await pilot.pause()
        assert table.sorted_by == "batches"
        assert "batches▴" in text(top)
        assert "517" in str(table.cells(0)[0])  # the one that is behind


async def test_enter_in_the_waits_shows_the_stack_of_that_rank(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        await press(pilot, "4", "down", "down", "down", "enter")
        assert (top.selected, top.query_one(TabbedContent).active) == (0, "pane-stack")


async def test_brackets_step_through_the_ranks_and_f_follows_the_culprit(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        assert top.selected == 1
        await press(pilot, "right_square_bracket")
        assert top.selected == 0
        await press(pilot, "left_square_bracket", "left_square_bracket")
        assert top.selected == 0
        await press(pilot, "f")
        assert (top.following, top.selected) == (True, 1)


async def test_a_screen_that_is_not_the_present_says_how_old_it_is_and_why() -> None:
    """A probe hangs: the verdict was that of the past, shown as the present."""
    release = threading.Event()

    class Hangs(Freezing):
        def poll(self, number: int) -> Poll:
            if number:
                release.wait(60)
            return super().poll(number)

    hung = codec.read(CORPUS / f"{RECORDED['hung']}.hangdoc")
    top = Top(Hangs(hung, freezes_at=0), rate=0.5)
    async with top.run_test(size=(120, 24)) as pilot:
        try:
            await shows(pilot, "HUNG", "observed", "ago", "the next poll has taken")
            assert top.screen.has_class("old")
        finally:
            release.set()
        for _ in range(1000):
            await pilot.pause(0.02)
            if not top.screen.has_class("old"):
                break
        assert "observed" not in text(top).splitlines()[0]


async def test_the_age_of_a_screen_counts_from_the_time_that_it_shows() -> None:
    """The poll took 20 s, and was taken 12 s before it was shown."""
    hung = codec.read(CORPUS / f"{RECORDED['hung']}.hangdoc")
    top = Top(Freezing(hung, freezes_at=0), rate=5.0)
    async with top.run_test(size=(120, 24)) as pilot:
        await shows(pilot, "HUNG")
        assert top.poll is not None
        at = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=12)
        top.post_message(Polled(replace(top.poll, at=at), 20.0))
        await shows(pilot, "observed 12 s ago", "this poll took 20 s")


async def test_between_two_polls_of_many_ranks_it_is_asked_whether_they_continue() -> None:
    """Polls cost so much that they come less often than requested. The first rank that does not continue is a reason for one."""
    asked: list[int] = []

    class ContinuesThreeTimes(Freezing):
        polls: int = 0

        def poll(self, number: int) -> Poll:
            self.polls += 1
            return replace(super().poll(number), cpu_seconds=0.01 if number < 1 else 60.0)

        def confirms(self) -> bool | None:
            asked.append(self.polls)
            return (None, True, True, False)[len(asked) - 1] if len(asked) < 5 else None

    hung = codec.read(CORPUS / f"{RECORDED['hung']}.hangdoc")
    source = ContinuesThreeTimes(hung, freezes_at=1000)
    top = Top(source, rate=0.5)
    async with top.run_test(size=(120, 24)) as pilot:
        await shows(pilot, "not 0.5 s, with short checks between")
        assert source.polls == 3
        assert asked[:4] == [2, 2, 2, 2]


async def test_pages_open_and_close(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        for key, words in (
            ("i", "shard-mismatch"),
            ("question_mark", "What changed, the newest first"),
            ("u", "Everything was observed"),
        ):
            await press(pilot, key)
            assert isinstance(top.screen, pages.Page)
            assert words in text(top)
            await press(pilot, "escape")
            assert not isinstance(top.screen, pages.Page)


async def test_the_keys_are_shown_over_an_open_page(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        await press(pilot, "i")
        for _ in range(2):  # a second time, nothing more opens
            await press(pilot, "question_mark")
            assert "What changed, the newest first" in text(top)
        await press(pilot, "escape")
        assert "shard-mismatch" in text(top)
        await press(pilot, "escape")
        assert not isinstance(top.screen, pages.Page)


async def test_the_table_does_not_move_when_a_finding_appears_or_gets_longer() -> None:
    top = freezing("hung", freezes_at=3)
    async with top.run_test(size=(80, 24)) as pilot:
        await seen(pilot)
        rows = {top.query_one(RankTable).region.y}
        for number in range(1, 6):
            top.post_message(Polled(top.source.poll(number)))
            await shows(pilot, "HUNG" if number > 2 else "HEALTHY")
            rows.add(top.query_one(RankTable).region.y)
        assert len(rows) == 1
        top.query_one(Strip).show(Text("word " * 100 + "zzz"))
        await shows(pilot, "… (i)")
        assert "zzz" not in text(top)
        rows.add(top.query_one(RankTable).region.y)
        assert len(rows) == 1


async def test_a_costly_poll_is_followed_by_others_and_many_of_them_save() -> None:
    top = freezing("hung", freezes_at=3)
    assert top._save(0.6) == 0
    assert 0 < top._save(0.6) < 5
    assert sum(top._save(0.6) for _ in range(30)) > 30
    assert top._save(0.6) == SLOWEST


@pytest.mark.parametrize("launcher", [False, True])
async def test_what_was_seen_last_stays_when_all_ranks_have_ended(launcher: bool) -> None:
    """Their launcher may take some seconds more."""
    top = freezing("hung", freezes_at=3)
    async with top.run_test(size=(80, 24)) as pilot:
        await seen(pilot)
        assert top.poll is not None
        jobs = top.poll.diagnosis.jobs
        alone = tuple(msgspec.structs.replace(job, ranks=(), verdict="waiting", findings=()) for job in jobs)
        diagnosis = msgspec.structs.replace(top.poll.diagnosis, jobs=alone if launcher else ())
        top.post_message(Polled(replace(top.poll, diagnosis=diagnosis, runs=())))
        await shows(pilot, "No rank is left. The screen shows what was seen last: all ages count from")
        assert text(top).count("00:00:00") == 4  # of the verdict, of the poll, of all ages, and on the axis
        assert "seen last at 00:00:00" in text(top)
        assert "now  doing" not in text(top)
        assert "torch.distributed rank" not in text(top)
        assert top.model is not None and len(top.model.job.ranks) > 1
        await pilot.press("j")  # which draws it again
        await shows(pilot, "all ages count from")
        top.post_message(Polled(top.source.poll(1)))
        await shows(pilot, "now  doing")
        assert "seen last" not in text(top)


async def test_the_legend_has_heights_while_there_are_any() -> None:
    """After half a minute of a healthy run, cells of torch's record had left the screen, and `▇` was not explained."""
    top = freezing("hung", freezes_at=100)
    async with top.run_test(size=(80, 24)) as pilot:
        await seen(pilot)
        assert "time not waiting for ranks" not in text(top)
        poll = top.source.poll(1)
        (job,) = poll.diagnosis.jobs
        ranks = tuple(msgspec.structs.replace(view, waited_share=0.1) for view in job.ranks)
        diagnosis = msgspec.structs.replace(poll.diagnosis, jobs=(msgspec.structs.replace(job, ranks=ranks),))
        top.post_message(Polled(replace(poll, diagnosis=diagnosis)))
        await shows(pilot, "▁…▇ time not waiting for ranks")
        assert "recorded" not in text(top)


async def test_enter_on_the_finding_opens_its_page_and_so_does_a_click(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        top.query_one("#strip").focus()
        await press(pilot, "enter")
        assert isinstance(top.screen, pages.Page)
        await press(pilot, "escape")
        await pilot.click("#strip")
        await pilot.pause()
        assert isinstance(top.screen, pages.Page)
        await press(pilot, "c")
        assert top.clipboard.startswith("ls ")


async def test_the_stack_with_and_without(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        stack = top.query_one(StackView)
        await press(pilot, "2")
        assert "micro_batches" in text(top) or "self = " in text(top)
        await press(pilot, "l")
        assert "self = " not in text(top)
        await press(pilot, "d")
        assert "no stack of the last poll to compare with" in text(top)
        model = stack._model
        assert model is not None
        same = [line.plain for line in stack.lines(replace(model, before=model.run))]
        assert "no difference at the last poll" in same and not any(line.startswith("+") for line in same)
        assert "stack of this poll" in text(top) and "no progress since" not in text(top)
        await press(pilot, "d")
        assert stack.compared_to == "another rank"
        assert "+ only here" in text(top)
        await press(pilot, "left_square_bracket", "n")
        assert stack.native
        assert "libtorch" in text(top) or "no native frames" in text(top)


async def test_settings_that_agree_are_folded(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        settings = top.query_one(Settings)
        await press(pilot, "7")
        few = settings.count
        await press(pilot, "a")
        assert settings.count > few + 10


async def test_pause_and_rate(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        await press(pilot, "p")
        assert top.paused
        assert "paused" in text(top)
        await press(pilot, "plus")
        assert top.rate == 0.5
        await press(pilot, "minus", "minus")
        assert top.rate == 2.0


async def test_a_bundle_and_a_report_are_written(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        await press(pilot, "w", "r", "c")
        assert top.poll is not None
        (bundle,) = tmp_path.glob("hangdoc-bundle-*.hangdoc")
        assert codec.read(bundle) == top.poll.snapshot
        (report,) = tmp_path.glob("hangdoc-report-*.txt")
        assert "HD101 shard-mismatch" in report.read_text()
        (page,) = tmp_path.glob("hangdoc-page-*.html")
        assert "<h2>Who waits for whom</h2>" in page.read_text()
        assert top.clipboard.startswith("ls ")


async def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    top = Top(Recorded(bundles("hung", tmp_path), patience=2.0), folder=tmp_path / "nowhere")
    async with top.run_test(size=(120, 40)) as pilot:
        await seen(pilot)
        await press(pilot, "w")
        assert any("cannot write" in notice for notice in notices(top))


async def test_jobs_take_turns(tmp_path: Path) -> None:
    snapshots = (codec.read(CORPUS / "trainer_healthy.hangdoc"), codec.read(CORPUS / "fsdp_uneven.hangdoc"))
    hosts = tuple(host for snapshot in snapshots for host in snapshot.hosts)
    import msgspec

    renamed = tuple(msgspec.structs.replace(host, name=f"h{at}") for at, host in enumerate(hosts))
    codec.write(merge((msgspec.structs.replace(snapshots[0], hosts=renamed),)), tmp_path / "two.hangdoc")
    top = Top(Recorded([tmp_path / "two.hangdoc"], patience=2.0))
    async with top.run_test(size=(120, 40)) as pilot:
        await seen(pilot)
        assert "HUNG" in text(top)  # the worst comes first
        await press(pilot, "j")
        assert "HEALTHY" in text(top)


async def test_a_recording_is_a_slider(tmp_path: Path) -> None:
    import msgspec

    snapshot = codec.read(CORPUS / "trainer_shard_mismatch.hangdoc")
    files = []
    for number in range(5):
        at = f"2026-11-21T17:23:{40 + number}.000+00:00"
        hosts = tuple(msgspec.structs.replace(host, taken_at=at) for host in snapshot.hosts)
        files.append(tmp_path / f"{9 - number}.hangdoc")
        codec.write(msgspec.structs.replace(snapshot, hosts=hosts), files[-1])
    top = Top(Recorded(sorted(files), patience=2.0), rate=60)  # only the keys turn the pages
    async with top.run_test(size=(120, 40)) as pilot:
        await seen(pilot)
        await press(pilot, "full_stop", "full_stop")
        await shows(pilot, "poll 3 of 5", "17:23:42")
        assert top.paused
        await pilot.click("#slider", offset=(115, 0))
        await shows(pilot, "poll 5 of 5", "17:23:44")


async def test_signals_are_off_unless_allowed(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        for key in ("C", "K"):
            await press(pilot, key)
            assert notices(top) == ["signals are off: start hangdoc top with --allow-signals"]


@pytest.mark.parametrize(("answer", "state"), [("y", "running"), ("n", "stopped")])
async def test_a_stopped_process_continues_after_a_question(answer: str, state: str, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        action = signals._signal_action(child.pid, signal.SIGCONT, "Continue rank 1")
        assert isinstance(action, signals.SignalAction)
        assert f"pid {child.pid}, started 20" in action.question
        async with started("hung", tmp_path) as (top, pilot):
            done: list[str] = []
            top.push_screen(pages.Question(action.question), lambda yes: done.append(action.do()) if yes else None)
            await pilot.pause()
            assert f"pid {child.pid}" in text(top)
            await press(pilot, answer)
        stopped = psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
        assert stopped == (state == "stopped")
        assert len(done) == (answer == "y")
    finally:
        child.kill()
        child.wait()


def test_a_pid_that_came_back_gets_nothing() -> None:
    action = signals.SignalAction(os.getpid(), 1.0, signal.SIGTERM, "?")
    assert "now a different process" in action.do()
    assert "has ended" in signals.SignalAction(2**22 - 3, 1.0, signal.SIGTERM, "?").do()


async def test_every_key_is_in_help_palette_and_docs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "top.md").read_text()
    async with started("hung", tmp_path) as (top, _):
        offered = list(top.get_system_commands(top.screen))
        commands = {command.help for command in offered}
        titles = [command.title.partition(" (")[0] for command in offered]
        assert len(titles) == len(set(titles)), "two entries of the palette have one name"
        listed = {one.tooltip for _, group in keys.groups() for one in group}
        for binding in keys.BINDINGS:
            assert binding.group is not None
            assert binding.tooltip in listed
            assert f"| `{keys.shown(binding)}` | {binding.description} | {binding.tooltip} |" in page
            assert binding.tooltip in commands or binding.action == "command_palette"
            assert hasattr(top, f"action_{binding.action.partition('(')[0]}")
        assert all(keys.shown(binding) in text(top) for binding in keys.footer(120))


def test_events_tell_what_changed() -> None:
    top = app("hung", Path("/nonexistent"))
    poll = top.source.poll(0)
    (job,) = poll.diagnosis.jobs
    import msgspec

    def changed(**more: Any) -> Job:
        return msgspec.structs.replace(
            job, ranks=(msgspec.structs.replace(job.ranks[0], **more), *job.ranks[1:]), verdict="waiting"
        )

    history = History()
    later = [poll.at + datetime.timedelta(seconds=n) for n in range(4)]
    history.add(later[0], job)
    assert {event.text for event in history.add(later[1], changed(state="sleeping"))} == {
        "waiting: HD101 shard-mismatch",
        "in-collective → sleeping at hangdoc_trainer/base_train.py:163 in Trainer._step",
    }
    assert [event.text for event in history.add(later[2], changed(state="sleeping", pid=7))] == [
        f"restarted: pid 7 after {job.ranks[0].pid}"
    ]
    # What it does is of another moment than the line of its last call.
    loads = changed(state="loading-data", pid=7, where_source="recorder", operation=None)
    assert [event.text for event in history.add(later[2] + datetime.timedelta(milliseconds=9), loads)] == [
        "sleeping → loading-data, last call at hangdoc_trainer/base_train.py:163 in Trainer._step"
    ]
    gone = msgspec.structs.replace(changed(), ranks=job.ranks[1:])
    assert [event.text for event in history.add(later[3], gone)] == ["gone"]


async def test_each_run_of_a_recording_has_its_recorded_past() -> None:
    """The second of two bundles of different runs had one cell, though its bundle alone has a record."""
    source = Recorded([CORPUS / "recorded" / f"{name}.hangdoc" for name in ("accelerate_uneven", "async_work")], 2.0)
    polls = [source.poll(number) for number in (1, 0, 1)]
    assert [list(poll.pasts) == [job.id for job in poll.diagnosis.jobs] for poll in polls] == [True] * 3
    again = Recorded([CORPUS / "recorded" / "async_work.hangdoc"] * 2, 2.0)
    assert [bool(again.poll(number).pasts) for number in range(2)] == [True, False]


async def test_the_batches_view_names_the_loop_that_it_counts() -> None:
    top = Top(Recorded([CORPUS / "recorded" / "early_stop.hangdoc"], 2.0))
    async with top.run_test(size=(120, 36)) as pilot:
        await shows(pilot, "HUNG")
        await pilot.press("5")
        await shows(pilot, "rounds of `for n in range(1000)` at cases/early_stop.py:19")
