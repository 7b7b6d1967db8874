"""A terminal of 80 columns: all views are in sight, and no word of the header is cut."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import TabbedContent

from hangdoc import codec
from hangdoc.render.words import job_names
from hangdoc_tui import keys
from hangdoc_tui.app import Polled, Top
from hangdoc_tui.head import Strip, job_line
from hangdoc_tui.keys import VIEWS
from hangdoc_tui.places import shorten_path
from hangdoc_tui.source import Recorded
from hangdoc_tui.stacks import StackView
from tests.tui.sample_runs import CORPUS, app, freezing
from tests.tui.test_screens import seen, watched
from tests.unit.builders import backward, c10d, rank, snapshot, train


def lines(top: Top) -> list[str]:
    """What is on the screen."""
    return ["".join(segment.text for segment in strip) for strip in top.screen._compositor.render_strips()]


async def open_view(pilot: Pilot[None], key: str) -> None:
    await pilot.press(key)
    await pilot.pause(0.1)


@pytest.mark.parametrize("width", [80, 60])
async def test_every_view_has_a_tab_in_sight(width: int, tmp_path: Path) -> None:
    top = app("cards", tmp_path)
    async with top.run_test(size=(width, 24)) as pilot:
        await seen(pilot)
        for key, name in enumerate(VIEWS, 1):
            await open_view(pilot, str(key))
            (tabs,) = [line for line in lines(top) if f"{key} {name.capitalize()}" in line]
            assert all(str(number) in tabs for number in range(1, 10))
            if width == 80:
                assert all(each.capitalize() in tabs for each in VIEWS)
        assert top.query_one(TabbedContent).active == "pane-cards"


async def test_a_finding_that_does_not_fit_ends_with_a_whole_word(tmp_path: Path) -> None:
    top = app("cards", tmp_path)
    sentence = "rank 1 is stopped and stays silent because somebody has suspended it in a terminal " * 4
    async with top.run_test(size=(80, 24)) as pilot:
        await seen(pilot)
        strip = top.query_one(Strip)
        for begin in range(20):
            strip.show(Text(sentence[begin:]))
            shown = str(strip.render())
            assert shown.endswith(" … (i)")
            assert sentence[begin:].startswith(shown.removesuffix("… (i)").replace("\n", " "))


def test_the_name_of_a_job_loses_whole_parts(tmp_path: Path) -> None:
    job = msgspec.structs.replace(app("cards", tmp_path).source.poll(0).diagnosis.jobs[0], backend="nccl")
    name = "silent_rank.py · torchrun · 1,024 ranks"
    shown = [str(job_line(job, name, [job], 0, width)).split("  ")[1].strip() for width in range(40, 110)]
    assert list(dict.fromkeys(shown)) == [
        "silent_rank.py", "silent_rank.py · torchrun", name, f"{name} · nccl"
    ]  # fmt: skip


def test_the_name_of_a_job_comes_first_and_tells_it_from_the_others(tmp_path: Path) -> None:
    """Of many runs in 80 columns, two looked equal: `2 blocked  job 4 of 11 (j)  3 others hang  lightni…`."""
    job = msgspec.structs.replace(app("cards", tmp_path).source.poll(0).diagnosis.jobs[0], verdict="hung")
    names = [
        f"{script} · torchrun · 2 ranks" for script in ("lightning_ok.py", "lightning_hang.py", "lightning_hang.py")
    ]
    jobs = [
        msgspec.structs.replace(job, id=f"job {n}", name=name, master=f"h:295{n:02}", hung_for_seconds=242.0)
        for n, name in enumerate(names * 3)
    ]
    shown = {str(job_line(each, name, jobs, 3, 80, observed=3.9))[:79]
             for each in jobs if (name := job_names(jobs)[each.id])}  # fmt: skip
    assert len(shown) == len(jobs)
    assert all(line.split("ago  ")[1].startswith("lightning_") for line in shown)
    assert any("lightning_hang.py · h:29501  " in line for line in shown)


async def test_the_number_of_library_frames_is_not_cut(tmp_path: Path) -> None:
    """It was `2 …`; a line of code is cut before that."""
    source = "loss.backward(); opt.step(); step += 1; scheduler.step()"
    seen_run = snapshot(*(rank(n, *c10d("all_reduce"), *backward(), train(15, source=source)) for n in range(2)))
    codec.write(seen_run, tmp_path / "a.hangdoc")
    top = Top(Recorded([tmp_path / "a.hangdoc"], patience=2.0))
    async with top.run_test(size=(80, 24)) as pilot:
        await seen(pilot)
        await open_view(pilot, "3")
        assert any("… " in line and line.rstrip().endswith("library frames") for line in lines(top))


async def test_a_notice_covers_only_the_last_line_of_the_view(tmp_path: Path) -> None:
    """Three notices lay over the finding and the keys; later, one over the time of the poll."""
    top = app("hung", tmp_path)
    async with top.run_test(size=(80, 24), notifications=True) as pilot:
        await seen(pilot)
        before = lines(top)
        for text in ("first", "second", "polling every 2 s " * 9):
            top.notify(text, markup=False)
            await pilot.pause(0.1)
        shown = lines(top)
        assert "polling every 2 s" in shown[22]
        assert "…" in shown[22]
        assert [at for at in range(24) if shown[at] != before[at]] == [22]
        top.clear_notifications()
        for pressed, covered in (
            ("slash", 21),
            ("escape", 22),
            ("i", 22),
        ):  # above the filter, or above the keys and below a page
            await open_view(pilot, pressed)
            before = lines(top)
            top.notify("copied: ls", markup=False)
            await pilot.pause(0.1)
            assert [at for at, line in enumerate(lines(top)) if line != before[at]] == [covered]
            top.clear_notifications()
            await pilot.pause(0.1)


@pytest.mark.parametrize(("situation", "ranks"), [("hung", "2 of 2"), ("1024-ranks", "6 of 1,024")])
async def test_the_title_of_the_plot_is_one_line(situation: str, ranks: str) -> None:
    """In 60 columns, it was `batches done, from the start of the epoch in which top` and ` began: 2 of 2 ranks`."""
    top = freezing(situation, freezes_at=100)
    async with top.run_test(size=(60, 24)) as pilot:
        await watched(20)(pilot)
        await open_view(pilot, "5")
        title = f"  batches since the first epoch seen: {ranks} ranks"
        assert [line.rstrip() for line in lines(top) if "epoch" in line] == [title]


@pytest.mark.parametrize(("runs", "shown"), [(2, "not 5 s; --pid PID polls only one run"), (1, "not 5 s")])
async def test_polls_that_are_slow_because_of_other_runs_name_the_remedy(runs: int, shown: str) -> None:
    top = freezing("hung", freezes_at=3)
    top.source.title = "this host"  # type: ignore[misc]
    top.rate, top.paused = 5.0, False
    async with top.run_test(size=(80, 24)) as pilot:
        await seen(pilot)
        assert "this host at 2026-01-01 00:00:00 UTC · every 5.0 s" in lines(top)[1]
        top._saving = 12.0
        poll = top.source.poll(1)
        jobs = tuple(msgspec.structs.replace(poll.diagnosis.jobs[0], id=f"job {number}") for number in range(runs))
        diagnosis = msgspec.structs.replace(poll.diagnosis, jobs=jobs)
        top.post_message(Polled(replace(poll, diagnosis=diagnosis, runs=poll.runs * runs)))
        await pilot.pause(0.1)
        assert f"this host at 00:00:01 UTC · every 12.0 s, {shown}" in lines(top)[1]


async def test_a_notice_replaces_one_behind_a_page(tmp_path: Path) -> None:
    top = app("hung", tmp_path)
    async with top.run_test(size=(80, 24), notifications=True) as pilot:
        await seen(pilot)
        top.notify("polling every 2 s")
        await open_view(pilot, "i")
        top.notify("copied: ls")
        await pilot.pause(0.1)
        assert [line.split("▌")[1].strip() for line in lines(top) if "▌" in line] == ["copied: ls"]


@pytest.mark.parametrize("before", ["", "slash"])
async def test_a_notice_is_not_drawn_twice_when_a_page_is_opened(before: str, tmp_path: Path) -> None:
    """`report written` was in the last line of the view and in that of the keys. It is back when the page is closed."""
    top = app("hung", tmp_path)
    async with top.run_test(size=(80, 24), notifications=True) as pilot:
        await seen(pilot)
        if before:
            await pilot.press(before, "enter")
        top.notify("report written: a.txt")
        await pilot.pause(0.1)
        for pressed in ("i", "question_mark", "escape", "escape"):
            await open_view(pilot, pressed)
            await pilot.pause(0.1)
            assert [line.split("▌")[1].strip() for line in lines(top) if "▌" in line] == ["report written: a.txt"]


def test_the_keys_for_help_and_for_leaving_are_always_in_sight() -> None:
    for width in range(30, 90):
        shown = keys.footer(width)
        assert [binding.action for binding in shown[-2:]] == ["keys", "quit"]
        assert sum(len(f"  {keys.shown(each)} {each.description}") for each in shown) <= width


def test_a_path_loses_its_first_directories() -> None:
    path = "/e/lib/python3.11/site-packages/torch/_tensor.py:623"
    shown = dict.fromkeys(shorten_path(path, width) for width in range(len(path), 11, -1))
    assert list(shown) == [
        path, "…/lib/python3.11/site-packages/torch/_tensor.py:623", "…/python3.11/site-packages/torch/_tensor.py:623",
        "…/site-packages/torch/_tensor.py:623", "…/torch/_tensor.py:623", "…/_tensor.py:623",
        "…_tensor.py:623", "…tensor.py:623", "…ensor.py:623", "…nsor.py:623",
    ]  # fmt: skip


async def test_the_stack_is_not_wrapped(tmp_path: Path) -> None:
    top = app("hung", tmp_path)
    async with top.run_test(size=(80, 24)) as pilot:
        await seen(pilot)
        await open_view(pilot, "2")
        stack = top.query_one(StackView)
        assert top.query_one("#stack-text").size.height == len(list(stack.lines(top.model)))  # type: ignore[arg-type]
        assert any("…/" in str(line) for line in stack.lines(top.model))  # type: ignore[arg-type]


async def test_facts_that_do_not_fit_begin_a_line(tmp_path: Path) -> None:
    top = Top(Recorded([CORPUS / "nan_skip.hangdoc"], patience=2.0))
    async with top.run_test(size=(80, 24)) as pilot:
        await seen(pilot)
        assert any(line.strip() == "59 of 60 batches" for line in lines(top))


async def test_the_sentence_about_a_rank_that_moves_is_not_cut(tmp_path: Path) -> None:
    """It ended with `It called all_reduce 0.4 s ago h…`."""
    top = app("recorded-moving", tmp_path)
    async with top.run_test(size=(80, 24)) as pilot:
        await seen(pilot)
        await open_view(pilot, "2")
        assert next(line.rstrip() for line in lines(top) if "It called" in line).endswith(" ago here:")


async def test_a_notice_about_a_run_names_the_one_on_the_screen(tmp_path: Path) -> None:
    """`The run hangs` stood over the next run, which was healthy."""
    top = app("hung", tmp_path)
    async with top.run_test(size=(80, 24), notifications=True) as pilot:
        await seen(pilot)
        poll = top.poll
        assert poll is not None
        shown = poll.diagnosis.jobs[0]
        healthy = msgspec.structs.replace(shown, id="healthy", verdict="healthy", findings=())
        other = msgspec.structs.replace(shown, id="other")
        top.source.length = None
        for hung, notice in ((healthy, "The run hangs. Press i to see why."), (other, "hangs. Press j to show it.")):
            diagnosis = msgspec.structs.replace(poll.diagnosis, jobs=(shown, hung))
            top._announced = {shown.id} - ({shown.id} if hung is healthy else set())
            top.post_message(Polled(replace(poll, diagnosis=diagnosis, runs=poll.runs * 2)))
            await pilot.pause(0.1)
            assert [notice in line for line in lines(top) if "▌" in line] == [True]
        await pilot.press("j")
        await pilot.pause(0.1)
        assert not [line for line in lines(top) if "▌" in line]
