"""Batches by rank: a bar for those done of those expected, and a plot over time if the run makes progress."""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from hangdoc.diagnosis import Job, RankView
from hangdoc.phrases import do, duration, numbers
from hangdoc.render import words
from hangdoc_tui.grid import Cell, Column, Fitted, Grid, join_cells
from hangdoc_tui.history import History
from hangdoc_tui.view_model import ViewModel

if TYPE_CHECKING:
    from textual_plotext import PlotextPlot

_LINES = 6
_PARTS = " ▏▎▍▌▋▊▉"
_NO_COUNT = (
    "No rank is seen in a loop over batches now. A loop over a DataLoader or with enumerate() is counted while a rank is in it, "
    "or with the watchdog in the trainer (docs/watchdog.md)."
)
_GOES_ON = "→"
"""At the end of the bar of ranks that continue, if their number of batches is not known. A full bar would read as finished."""
_LEAST_PLOT = 8
"""Lines that a plot needs at least."""


class Amount(NamedTuple):
    """Ranks that have done the same number of batches of the same expected number."""

    ranks: tuple[int, ...]
    done: int
    total: int | None
    ended: bool
    """They run no further batch: all of theirs are done, or they left the loop."""
    seconds_ago: float | None = None
    """Age of the oldest of these numbers, if it was not read in this poll."""
    pass_number: int | None = None
    """The pass over the data that they are in. None if unknown, and if all ranks are in one."""

    @property
    def has_no_known_end(self) -> bool:
        """Whether they continue, and it is not known until which number."""
        return self.total is None and not self.ended

    @property
    def text(self) -> str:
        """`3 of 232`, `0 of 20 of pass 7`, `ended at 3 of 3`, `left at 1 of 3`, `3 of 232, 5.0 s ago`."""
        amount = words.amount_of_batches(self.done, self.total, ended=self.ended, of_pass=self.pass_number)
        return amount + (f", {duration(self.seconds_ago)} ago" if self.seconds_ago is not None else "")


def amounts(job: Job, culprits: Collection[int] = ()) -> list[Amount]:
    """The batches of all ranks that count them, ordered by rank. Culprits are not grouped with other ranks, nor what was read in
    this poll with what is older."""
    together: dict[tuple[bool, bool, int, int | None, bool, int | None], list[RankView]] = {}
    passes = words.in_other_passes(job.ranks)
    for view in job.ranks:
        if view.batches_done is not None:
            old = words.batches_age(view) is not None
            number = view.batches_pass_number if passes else None
            key = (view.rank in culprits, old, view.batches_done, view.batches_total, view.batches_ended, number)
            together.setdefault(key, []).append(view)
    return sorted(
        Amount(tuple(view.rank for view in views), *key[2:5], max((age for view in views if (age := words.batches_age(view))),
               default=None), key[5])
        for key, views in together.items()
    )  # fmt: skip


def describe_no_count(job: Job) -> str:
    """Why no rank shows a count, and how to get one. A script whose ranks were not read may count its batches already."""
    if unread := words.find_unread(job.ranks):
        return f"Not read: {do(unread, 'moves', 'move')}. `hangdoc diagnose --stacks` reads the batches of loops that count them."
    return _NO_COUNT


class Batches(Vertical):
    """A bar for each group of ranks with equal amounts, and a plot if some of them make progress."""

    def __init__(self) -> None:
        super().__init__(id="batches")
        columns = (
            Column("rank", most=24),
            Column("batches done of those expected", least=10, flexible=True),
            Column(""),
        )
        self._bars, self._title = Grid("bars", columns), Static(id="plot-title", markup=False)
        self._plot: PlotextPlot | None = None
        """Made for the first plot: its library takes time to import, before the first data."""
        self._model: ViewModel | None = None

    def compose(self) -> ComposeResult:
        """The bars above the title of the plot."""
        yield self._bars
        yield self._title

    def on_resize(self, event: events.Resize) -> None:
        """There is room for a plot, or there is none any more."""
        if self._model is not None:
            self.show(self._model)

    def show(self, model: ViewModel) -> None:
        """Paint them."""
        self._model = model
        counts = amounts(model.job, model.culprits)
        longest = max((max(count.done, count.total or 0) for count in counts), default=0)
        rows = [_make_bar_row(count, longest, model) for count in counts]
        rows = self._bars.filtered(rows, join_cells)
        self._bars.fill(len(rows), rows.__getitem__)
        lines = _choose_plotted_ranks(model)
        plotted = bool(lines) and self.size.height >= _LEAST_PLOT + 4
        told = self._describe(counts, lines if plotted else [], model)
        self._title.update(Text("\n").join(Text(line, "dim") for line in told))
        self._title.display = bool(told)
        if self._plot is not None:
            self._plot.display = plotted
        room = self.size.height - len(told) - (_LEAST_PLOT if plotted else 0)
        self._bars.styles.height = max(2, min(self._bars.count + 1, room))
        if plotted:
            self._draw(lines, model)

    def _describe(self, counts: list[Amount], lines: list[int], model: ViewModel) -> list[str]:
        """What is counted, if that is not clear, and what the plot shows; how to get a count if there is none."""
        if not counts:
            return [describe_no_count(model.job)]
        loops, uncounted = words.loops_of_batches(model.job), words.name_uncounted(model.job)
        plotted = f"batches since the first epoch seen: {len(lines)} of {len(model.history.tracks):,} ranks"
        open_ended = any(count.has_no_known_end for count in counts)
        arrow = f"{_GOES_ON} the number of batches expected is not known" if open_ended else ""
        return [f" {part}" for part in (loops, uncounted, arrow, plotted if lines else "") if part]

    def _draw(self, lines: list[int], model: ViewModel) -> None:
        if self._plot is None:
            from textual_plotext import PlotextPlot

            self._plot = PlotextPlot()
            self.mount(self._plot)
        plot: Any = self._plot.plt
        plot.clear_figure()
        tracks = {rank: list_points(model.history, rank) for rank in lines}
        for rank, track in tracks.items():
            times, done = zip(*list_corners(track), strict=True)
            plot.plot(times, done, label=f"rank {rank}", color="orange+" if rank in model.culprits else None)
        low, high = _bounds(batches for track in tracks.values() for _, batches in track)
        plot.ylim(low, high)
        plot.yticks(_ticks(low, high))
        oldest = min(track[0][0] for track in tracks.values())
        plot.xlim(oldest, 0)  # the newest number may be older than the poll
        ticks = [oldest * part / 4 for part in range(5)]
        plot.xticks(ticks, [f"{-at:.0f} s ago" if at else model.moment for at in ticks])
        self._plot.refresh()


def list_points(history: History, rank: int) -> list[tuple[float, int]]:
    """(seconds since the newest poll, at most 0; batches done) of each reading of a rank. The last may be older than the poll."""
    return [(seconds - history.seconds, done) for seconds, done in history.tracks[rank].batches]


def list_corners(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """The points of a line that keeps each number until the next reading: when a number changed in between is not known, and a
    slope would be progress at a time at which the run may have made none."""
    corners = [corner for (at, done), (later, _) in pairwise(points) for corner in ((at, done), (later, done))]
    return [*corners, points[-1]]


def _make_bar_row(amount: Amount, longest: int, model: ViewModel) -> tuple[Cell, ...]:
    is_culprit = bool(set(amount.ranks) & set(model.culprits))
    style = words.CULPRIT_STYLE if is_culprit else ""
    return (
        Text(("●" if is_culprit else " ") + numbers(amount.ranks), style or "bold"),
        Fitted(lambda width: bar(amount, longest, width)),
        Text(amount.text, "bold yellow" if amount.ended else "dim" if amount.seconds_ago is not None else ""),
    )


def bar(amount: Amount, longest: int, width: int) -> Text:
    """Done batches as a solid bar, expected ones as a line, or an arrow if they are not known. All bars of a run have the same
    scale."""
    if not longest or width < 1:
        return Text("")
    done = _count_eighths(amount.done, longest, width)
    whole, part = divmod(done, 8)
    expected = -(-_count_eighths(amount.total or 0, longest, width) // 8)
    style = "yellow" if amount.ended else "green" if amount.seconds_ago is None else "dim green"
    text = Text("█" * whole + (_PARTS[part] if part else ""), style)
    if amount.has_no_known_end:
        text.truncate(width - 1)
        return text.append(_GOES_ON, "dim")
    return text.append("─" * (expected - text.cell_len), "dim")


def _count_eighths(number: int, longest: int, width: int) -> int:
    """A length in eighths of a character: at least one if `number` is not 0."""
    return max(1, round(number * width * 8 / longest)) if number else 0


def _choose_plotted_ranks(model: ViewModel) -> list[int]:
    """The ranks to plot: the culprits, the slowest, the fastest and the selected one. Empty if no rank made progress."""
    tracks = {rank: track.batches for rank, track in model.history.tracks.items() if len(track.batches) > 1}
    if all(track[0][1] == track[-1][1] for track in tracks.values()):
        return []
    order = sorted(tracks, key=lambda rank: (tracks[rank][-1][1], rank))
    chosen = [model.selected] if model.selected is not None else []
    wanted = [*model.culprits, order[0], order[-1], *chosen, *order]
    return [rank for rank in dict.fromkeys(wanted) if rank in tracks][:_LINES]


def _bounds(values: Iterable[int]) -> tuple[int, int]:
    all_values = list(values)
    return min(all_values), max(max(all_values), min(all_values) + 1)


def _ticks(low: int, high: int) -> list[int]:
    """Whole numbers only: there is no half batch."""
    step = max(1, -(-(high - low) // 4))
    return [*range(low, high, step), high]
