"""Batches by rank: a bar of what is done within what is expected, and for a run that moves a plot over time."""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static
from textual_plotext import PlotextPlot

from hangdoc.diagnosis import Job, RankView
from hangdoc.phrases import numbers
from hangdoc_tui.grid import Cell, Column, Fitted, Grid
from hangdoc_tui.scene import Scene

_LINES = 6
_PARTS = " ▏▎▍▌▋▊▉"
_LEFT_LOOP = "left-loop"
_LEAST_PLOT = 8
"""Lines without which a plot shows nothing."""


class Amount(NamedTuple):
    """Ranks that have done the same number of batches of the same expected number."""

    ranks: tuple[int, ...]
    done: int
    total: int | None
    ended: bool
    """They take part in no further batch: all of theirs are done, or they left the loop."""

    @property
    def said(self) -> str:
        """`3 of 232`, `ended at 3 of 3`."""
        amount = f"{self.done:,} of {self.total:,}" if self.total is not None else f"{self.done:,}"
        return f"ended at {amount}" if self.ended else amount


def amounts(job: Job, culprits: Collection[int] = ()) -> list[Amount]:
    """The batches of all ranks that count them, by their lowest ranks; culprits have amounts of their own."""
    left = {rank for one in job.blockages if one.kind == _LEFT_LOOP for rank in one.culprits}
    together: dict[tuple[bool, int, int | None, bool], list[int]] = {}
    for view in job.ranks:
        if view.batches_done is not None:
            key = (view.rank in culprits, view.batches_done, view.batches_total, _ended(view, left))
            together.setdefault(key, []).append(view.rank)
    return sorted(Amount(tuple(ranks), *key[1:]) for key, ranks in together.items())


def _ended(view: RankView, left: set[int]) -> bool:
    all_done = view.batches_total is not None and (view.batches_done or 0) >= view.batches_total
    return all_done or view.rank in left or view.label == "dead"


class Batches(Vertical):
    """A bar for each rank, or for ranks with equal amounts, and a plot where some of them move."""

    def __init__(self) -> None:
        super().__init__(id="batches")
        columns = (
            Column("rank", most=24),
            Column("batches done, of those expected", least=10, flexible=True),
            Column(""),
        )
        self._bars, self._said, self._plot = Grid("bars", columns), Static(id="plot-title"), PlotextPlot()
        self._scene: Scene | None = None

    def compose(self) -> ComposeResult:
        """The bars above the plot."""
        yield self._bars
        yield self._said
        yield self._plot

    def on_resize(self, event: events.Resize) -> None:
        """There is room for a plot, or there is none any more."""
        if self._scene is not None:
            self.show(self._scene)

    def show(self, scene: Scene) -> None:
        """Paint them."""
        self._scene = scene
        known = amounts(scene.job, scene.culprits)
        longest = max((max(one.done, one.total or 0) for one in known), default=0)
        self._bars.fill(len(known), lambda index: _bar_row(known[index], longest, scene))
        lines = _moving(scene)
        plotted = bool(lines) and self.size.height >= _LEAST_PLOT + 4
        if not known:
            self._said.update(
                Text("No batches were counted on any rank: no loop with a counter, and no beacon.", "dim")
            )
        elif plotted:
            self._said.update(
                Text(f" batches done over time: {len(lines)} of {len(scene.history.tracks)} ranks", "dim")
            )
        self._said.display = plotted or not known
        self._plot.display = plotted
        room = self.size.height - (_LEAST_PLOT + 1 if plotted else 0)
        self._bars.styles.height = max(2, min(len(known) + 1, room))
        if plotted:
            self._draw(lines, scene)

    def _draw(self, lines: list[int], scene: Scene) -> None:
        plot: Any = self._plot.plt
        plot.clear_figure()
        tracks = {rank: list(scene.history.tracks[rank].batches) for rank in lines}
        newest = max(track[-1][0] for track in tracks.values())
        for rank, track in tracks.items():
            times, done = [seconds - newest for seconds, _ in track], [batches for _, batches in track]
            plot.plot(times, done, label=f"rank {rank}", color="red" if rank in scene.culprits else None)
        low, high = _bounds(batches for track in tracks.values() for _, batches in track)
        plot.ylim(low, high)
        plot.yticks(_ticks(low, high))
        oldest = min(track[0][0] for track in tracks.values()) - newest
        ticks = [oldest * part / 4 for part in range(5)]
        plot.xticks(ticks, [f"{-at:.0f} s ago" if at else "now" for at in ticks])
        self._plot.refresh()


def _bar_row(amount: Amount, longest: int, scene: Scene) -> tuple[Cell, ...]:
    guilty = bool(set(amount.ranks) & set(scene.culprits))
    style = "bold red" if guilty else ""
    return (
        Text(("●" if guilty else " ") + numbers(amount.ranks), style or "bold"),
        Fitted(lambda width: bar(amount, longest, width)),
        Text(amount.said, "bold yellow" if amount.ended else ""),
    )


def bar(amount: Amount, longest: int, width: int) -> Text:
    """What is done as a solid bar, what is still expected as a line; all bars of a run have one scale."""
    if not longest or width < 1:
        return Text("")
    done = _eighths(amount.done, longest, width)
    whole, part = divmod(done, 8)
    expected = -(-_eighths(amount.total or 0, longest, width) // 8)
    text = Text("█" * whole + (_PARTS[part] if part else ""), "yellow" if amount.ended else "green")
    return text.append("─" * (expected - text.cell_len), "dim")


def _eighths(number: int, longest: int, width: int) -> int:
    """A length in eighths of a character; whatever is not nothing is seen."""
    return max(1, round(number * width * 8 / longest)) if number else 0


def _moving(scene: Scene) -> list[int]:
    """The ranks to plot: culprits, who is furthest ahead and behind, and the selected one. None where nobody moved."""
    tracks = {rank: track.batches for rank, track in scene.history.tracks.items() if len(track.batches) > 1}
    if all(track[0][1] == track[-1][1] for track in tracks.values()):
        return []
    order = sorted(tracks, key=lambda rank: (tracks[rank][-1][1], rank))
    chosen = [scene.selected] if scene.selected is not None else []
    wanted = [*scene.culprits, order[0], order[-1], *chosen, *order]
    return [rank for rank in dict.fromkeys(wanted) if rank in tracks][:_LINES]


def _bounds(values: Iterable[int]) -> tuple[int, int]:
    known = list(values)
    return min(known), max(max(known), min(known) + 1)


def _ticks(low: int, high: int) -> list[int]:
    """Whole numbers: nobody does half a batch."""
    step = max(1, -(-(high - low) // 4))
    return [*range(low, high, step), high]
