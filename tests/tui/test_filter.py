"""`/` in every view: the typed text goes to the filter of that view, and never to the commands."""

from collections.abc import Callable
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import TabbedContent

from hangdoc_tui.app import Top
from hangdoc_tui.filter_line import FilterLine
from hangdoc_tui.grid import Grid
from hangdoc_tui.keys import VIEWS
from hangdoc_tui.ranks import RankTable
from hangdoc_tui.waits import WaitTable
from tests.tui.test_keys import notices, press, started, text

TABLES = [view for view in VIEWS if view not in ("stack", "tree")]
FOUND = {
    "ranks": "backward",
    "waits": "backward",
    "batches": "1",
    "sockets": "127.0.0.1",
    "settings": "rank",
    "events": "observed",
    "cards": "mhz",
}
"""A word of the table of the hang."""


def _key_of(view: str) -> str:
    return str(list(VIEWS).index(view) + 1)


def _shown_table(top: Top) -> Grid:
    table = top.visible_table()
    assert table is not None
    return table


async def _wait(pilot: Pilot[None], is_true: Callable[[], bool]) -> None:
    """Until a condition is true."""
    for _ in range(1000):
        await pilot.pause(0.02)
        if pilot.app.is_running and is_true():
            return
    raise AssertionError(text(pilot.app))  # type: ignore[arg-type]


def _is_open(top: Top) -> bool:
    line = top.query_one(FilterLine)
    assert (top.focused is line) == line.is_editing(top.visible_table())
    return top.focused is line


@pytest.mark.parametrize("view", TABLES)
async def test_the_typed_text_filters_the_rows_of_the_view(view: str, tmp_path: Path) -> None:
    async with started("cards" if view == "cards" else "hung", tmp_path) as (top, pilot):
        await press(pilot, _key_of(view))
        table, word = _shown_table(top), FOUND[view]
        all_rows = table.count
        await press(pilot, "slash", *word)
        assert _is_open(top)
        assert (top.query_one(TabbedContent).active, table.filter) == (f"pane-{view}", word)
        assert "no row contains" not in text(top)
        await press(pilot, "enter")
        assert not _is_open(top)
        assert top.query_one(FilterLine).display
        assert top.focused is table
        await press(
            pilot, "slash", *"q/rank 77"
        )  # in place of the word; outside of the line, these are commands and views
        assert top.is_running
        assert "no row contains 'q/rank 77'" in text(top)
        await press(pilot, "enter", "enter", "escape")
        assert not top.query_one(FilterLine).display
        assert (table.filter, table.count) == ("", all_rows)
        assert top.query_one(TabbedContent).active == f"pane-{view}"
        assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".hangdoc")] == []


@pytest.mark.parametrize("view", ["stack", "tree"])
async def test_a_view_without_rows_says_so(view: str, tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        await press(pilot, _key_of(view), "slash")
        assert notices(top) == [f"the {view} view has no filter: press 1, then / to filter the ranks"]
        assert not top.query_one(FilterLine).display
        await press(pilot, "8")  # still a key
        assert top.query_one(TabbedContent).active == "pane-events"


@pytest.mark.parametrize("keys", ["/quit", "4/quit", "5/rank", "1/\t"])
async def test_keys_that_come_at_once_are_text_after_the_slash(keys: str, tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        for key in keys:
            top.post_message(events.Key({"/": "slash", "\t": "tab"}.get(key, key), key))
        typed = keys.partition("/")[2].strip()
        await _wait(pilot, lambda: _shown_table(top).filter == typed)
        await _wait(pilot, lambda: top.query_one(FilterLine).display == bool(typed))
        assert not list(tmp_path.glob("hangdoc-*"))


async def test_keys_that_come_at_once_are_commands_after_enter_and_escape(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        for end in ("enter", "escape"):
            for key in ("slash", "1", end, "8"):
                top.post_message(events.Key(key, key if len(key) == 1 else None))
            await _wait(pilot, lambda: top.query_one(TabbedContent).active == "pane-events")
            assert top.query_one(RankTable).filter == ("1" if end == "enter" else "")
            await press(pilot, "1")


async def test_each_view_keeps_its_filter(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        line = top.query_one(FilterLine)
        await press(pilot, "slash", "1", "enter", "4", "slash", "0", "enter")
        assert (top.query_one(RankTable).filter, top.query_one(WaitTable).filter) == ("1", "0")
        await press(pilot, "5")
        assert not line.display
        await press(pilot, "1")
        assert (line.value, line.display) == ("1", True)
        await press(pilot, "escape", "4")
        assert (top.query_one(RankTable).filter, line.value) == ("", "0")


async def test_the_mouse_keeps_and_opens_the_filter(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        await press(pilot, "slash", "1")
        await pilot.click(RankTable, offset=(3, 1))
        await pilot.pause()
        assert not _is_open(top)
        assert top.query_one(RankTable).filter == "1"
        await pilot.click(FilterLine)
        await press(pilot, "q")
        assert _is_open(top)
        assert "q" in top.query_one(RankTable).filter
        await press(pilot, "end", "backspace", "backspace")
        await pilot.click(RankTable, offset=(3, 1))
        await pilot.pause()
        assert not top.query_one(FilterLine).display


async def test_the_palette_opens_the_filter_and_takes_a_slash_as_text(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        await press(pilot, "8", "ctrl+p", *"filter (/")
        assert top.screen.is_modal
        await _wait(pilot, lambda: "Filter (/)" in text(top))
        await press(pilot, "enter")
        await _wait(pilot, lambda: top.focused is top.query_one(FilterLine))
        await press(pilot, *"hung")
        assert (top.query_one(TabbedContent).active, _shown_table(top).filter) == ("pane-events", "hung")


async def test_a_filter_finds_connections_that_are_not_among_the_first(tmp_path: Path) -> None:
    async with started("1024-ranks", tmp_path) as (top, pilot):
        await press(pilot, "6")
        await press(pilot, "end")
        assert "and 964 more with shorter queues" in text(top)
        assert "1023 — " not in text(top)
        await press(pilot, "slash", *"1023")
        assert "1023 — " in text(top)
        assert "more with shorter queues" not in text(top)


async def test_what_a_table_says_about_its_rows_stays(tmp_path: Path) -> None:
    async with started("hung", tmp_path) as (top, pilot):
        await press(pilot, "7", "slash", *"master_port")
        assert "no row contains 'master_port'" in text(top)
        assert "equal on all ranks (a shows them)" in text(top)
        await press(pilot, "enter", "a")
        assert "MASTER_PORT" in text(top)
