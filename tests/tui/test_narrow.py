"""A terminal of 80 columns: all views are in sight, and no word of the header is cut."""

from pathlib import Path

import msgspec
import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import TabbedContent

from hangdoc_tui.app import Top
from hangdoc_tui.head import Strip, job_line
from hangdoc_tui.keys import VIEWS
from tests.tui.sample_runs import app
from tests.tui.test_screens import seen


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
    shown = [str(job_line(job, name, [job], 0, width)).rpartition("  ")[2] for width in range(30, 100)]
    assert list(dict.fromkeys(shown)) == [
        "silent_rank.py", "silent_rank.py · torchrun", name, f"{name} · nccl"
    ]  # fmt: skip
