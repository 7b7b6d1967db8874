"""What the views of `top` and the report show of recorded runs, checked against the bundle, and that nothing is cut unseen."""

import datetime
import re
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from rich.text import Text
from textual.widgets import Tree

from hangdoc import codec
from hangdoc.reasoning.engine import examine
from hangdoc.reasoning.views.detail import compare_settings
from hangdoc.render.console import record_console
from hangdoc.render.text import report
from hangdoc.render.words import clean, score
from hangdoc.snapshot import Process, Snapshot
from hangdoc_tui.app import Top
from hangdoc_tui.batches import amounts
from hangdoc_tui.detail import Detail
from hangdoc_tui.grid import Cell, Grid
from hangdoc_tui.head import Strip
from hangdoc_tui.history import History
from hangdoc_tui.keys import VIEWS
from hangdoc_tui.ranks import RankTable
from hangdoc_tui.source import Recorded
from hangdoc_tui.stacks import StackView
from hangdoc_tui.trees import StackTree
from tests.tui.sample_runs import CORPUS
from tests.tui.test_narrow import lines
from tests.tui.test_screens import seen

WALKED = (
    "nan_skip", "trainer_shard_mismatch", "trainer_rank_dies", "trainer_healthy", "checkpoint", "fsdp_uneven",
    "p2p_cycle", "node_missing", "other_root", "pool_worker_stopped", "worker_stopped", "hung_beside_healthy",
    "epochs_differ", "tensor_sizes", "different_files", "rpc_server_waits", "starting_up", "slow_steps",
)  # fmt: skip
"""Hung, waiting and healthy runs; dead, stopped and missing ranks; several jobs; long names, paths and values."""
EVERY = sorted(path.stem for path in CORPUS.glob("*.hangdoc"))
SIZES = [(80, 24), (60, 16)]


@asynccontextmanager
async def shown(name: str, size: tuple[int, int]) -> Any:
    top = Top(Recorded([CORPUS / f"{name}.hangdoc"], patience=2.0))
    async with top.run_test(size=size) as pilot:
        await seen(pilot)
        yield top, pilot


# --- nothing is cut without an ellipsis -------------------------------------------------------------------------------


def _cut_cells(grid: Grid) -> Iterator[tuple[str, str]]:
    """The texts of the visible cells that are neither whole nor end in an ellipsis, with the line that shows them."""
    first = grid.scroll_offset.y
    for y in range(min(grid.size.height, grid.count + 1)):
        line = "".join(segment.text for segment in grid.render_line(y))
        if y == 0:
            cells: list[Cell] = [grid._titles.get(at, Text(column.title)) for at, column in enumerate(grid._columns)]
        else:
            cells = list(grid.cells(first + y - 1))
        widths = grid._widths if len(cells) == len(grid._widths) else [grid.size.width]
        for cell, width in zip(cells, widths, strict=True):
            text = cell.plain if isinstance(cell, Text) else cell.make(width).plain
            whole = text.strip()
            cut = any(f"{whole[:length].rstrip()}…" in line for length in range(len(whole)))
            if width and whole not in line and not cut:
                yield whole, line


def _check_nothing_is_cut(top: Top) -> None:
    active: Any = top.query_one("TabbedContent")
    pane = active.active_pane
    for grid in pane.query(Grid):
        assert list(_cut_cells(grid)) == []
    for tree in pane.query(Tree):
        assert tree.virtual_size.width <= tree.size.width
    for stack in pane.query(StackView):
        assert top.query_one("#stack-text").size.height == len(list(stack.lines(top.model)))  # type: ignore[arg-type]
    for detail in pane.query(Detail):
        text = detail.render()
        assert len(text.plain.splitlines()) <= max(1, detail.size.height)
    strip = top.query_one(Strip)
    full, drawn = " ".join(strip._text.plain.split()), " ".join(strip.render().plain.split())
    assert drawn == full or (drawn.endswith("… (i)") and full.startswith(drawn.removesuffix("… (i)").rstrip()))
    screen = lines(top)
    assert screen[-1].rstrip().endswith("q quit")
    for line in (screen[0], screen[1]):
        assert not line.rstrip().endswith(" ·")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", WALKED)
async def test_nothing_is_cut_without_an_ellipsis(name: str, size: tuple[int, int]) -> None:
    async with shown(name, size) as (top, pilot):
        for key, _ in enumerate(VIEWS, 1):
            await pilot.press(str(key))
            await pilot.pause(0.05)
            if top.model is not None:
                _check_nothing_is_cut(top)


# --- what is shown is what the bundle has -----------------------------------------------------------------------------


def _processes(snapshot: Snapshot) -> dict[tuple[str, int], Process]:
    return {(host.name, process.pid): process for host in snapshot.hosts for process in host.processes}


def _cell(table: RankTable, row: int, title: str) -> str:
    at = next(at for at, column in enumerate(table._columns) if column.title == title)
    cell = table.cells(row)[at]
    return (cell if isinstance(cell, Text) else cell.make(200)).plain.strip()


@pytest.mark.parametrize("name", WALKED)
async def test_the_ranks_have_the_values_of_the_bundle(name: str) -> None:
    snapshot = codec.read(CORPUS / f"{name}.hangdoc")
    processes = _processes(snapshot)
    async with shown(name, (160, 48)) as (top, _):
        if top.model is None:
            assert not examine(snapshot, patience=2.0)[0].jobs
            return
        table = top.query_one(RankTable)
        counted = {
            label: len([v for v in top.model.job.ranks if v.label == label])
            for label in ("computing", "blocked", "dead")
        }
        for label, number in counted.items():
            assert (f" {number} {label}" in lines(top)[0]) == bool(number)
        assert sum(len(table.row_of(row)) for row in range(table.count)) == len(top.model.job.ranks)
        for row in range(table.count):
            (view,) = table.row_of(row)
            assert _cell(table, row, "pid") == str(view.pid or "-")
            process = processes.get((view.host, view.pid or 0))
            memory = process.resident_bytes if process is not None else None
            assert _cell(table, row, "mem") == (f"{memory / 2**30:.1f}G" if memory is not None else "-")
            batches = _cell(table, row, "batches")
            assert batches.split()[0].split("/")[0] == ("-" if view.batches_done is None else str(view.batches_done))
            assert _cell(table, row, "silent") == "-" or view.silent_seconds is not None


@pytest.mark.parametrize("name", WALKED)
async def test_the_variables_of_a_stack_are_those_of_the_bundle(name: str) -> None:
    async with shown(name, (160, 48)) as (top, pilot):
        await pilot.press("2")
        await pilot.pause(0.05)
        rank = top.model.run.ranks.get(top.selected) if top.model is not None else None
        if rank is None:
            return
        own = {(clean(local.name), clean(local.text)[:200]) for frame in (rank.thread.frames if rank.thread else ())
               for local in frame.locals}  # fmt: skip
        for line in top.query_one(StackView).lines(top.model):
            if found := re.fullmatch(r" {8}([\w.\[\]']+) = (.*)", line.plain):
                assert found.groups() in own


@pytest.mark.parametrize("name", WALKED)
async def test_the_settings_are_those_of_the_bundle(name: str) -> None:
    """Each rank is said to have one value of a setting."""
    _, runs = examine(codec.read(CORPUS / f"{name}.hangdoc"), patience=2.0)
    for run in runs:
        for setting in compare_settings(run):
            which = [rank for _, ranks in setting.values.values for rank in ranks]
            assert len(which) == len(set(which))
            assert set(which) <= set(run.ranks)


@pytest.mark.parametrize("name", ["nan_skip", "fsdp_uneven"])
async def test_a_chain_of_calls_is_no_fork_in_the_tree(name: str) -> None:
    async with shown(name, (120, 40)) as (top, pilot):
        await pilot.press("3")
        await seen(pilot)
        tree = top.query_one(StackTree)
        nodes = [*tree.root.children]
        for node in nodes:
            nodes += node.children
        assert any(len(node.children) == 1 and not str(node.children[0].label).startswith("[") for node in nodes)
        forks = [node for node in nodes if len(node.children) > 1]
        assert all(str(child.label).startswith("[") for node in forks for child in node.children)


@pytest.mark.parametrize("name", EVERY)
def test_numbers_of_ranks_are_possible(name: str) -> None:
    """Batches done are not more than those expected, ages are not negative, and groups have each rank once."""
    diagnosis, _ = examine(codec.read(CORPUS / f"{name}.hangdoc"), patience=2.0)
    for job in diagnosis.jobs:
        for view in job.ranks:
            assert (view.batches_done is None) == (view.batches_seconds_ago is None)
            if view.batches_done is not None:
                assert 0 <= view.batches_done <= (view.batches_total if view.batches_total is not None else 1 << 48)
            ages = (view.silent_seconds, view.stack_seconds_ago, view.batches_seconds_ago, view.cpu_percent)
            assert all(age is None or age >= 0 for age in ages)
            assert view.waited_share is None or 0 <= view.waited_share <= 1
        together = [rank for amount in amounts(job, ()) for rank in amount.ranks]
        assert sorted(together) == sorted(view.rank for view in job.ranks if view.batches_done is not None)
        history = History()
        for _ in range(2):
            history.add(datetime.datetime.fromisoformat(diagnosis.taken_at), job)
        for track in history.tracks.values():
            numbers = [done for _, done in track.batches]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("name", EVERY)
def test_the_report_has_the_values_of_the_diagnosis(name: str) -> None:
    """In 80 columns: no line is longer, and of what a table has no room for, an ellipsis is left."""
    diagnosis, _ = examine(codec.read(CORPUS / f"{name}.hangdoc"), patience=2.0)
    console = record_console(80)
    report(diagnosis, console, verbose=True)
    text = console.export_text()
    assert max(map(len, text.splitlines()), default=0) <= 80
    for job in diagnosis.jobs:
        assert job.verdict.upper() in text
        for found in job.findings:
            assert f"{found.code} {found.name}" in text
            assert score(found) in text
