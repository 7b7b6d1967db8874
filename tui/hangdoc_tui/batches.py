"""Batches done by rank over time: a rank whose data has ended is the line that ends."""

from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static
from textual_plotext import PlotextPlot

from hangdoc_tui.scene import Scene

_LINES = 6


class Batches(Vertical):
    """A plot of some ranks: culprits, who is furthest ahead and behind, the one that is selected."""

    def __init__(self) -> None:
        super().__init__(id="batches")
        self._plot = PlotextPlot()
        self._said = Static()

    def compose(self) -> ComposeResult:
        """The plot, and a line above it."""
        yield self._said
        yield self._plot

    def show(self, scene: Scene) -> None:
        """Paint it."""
        tracks = {rank: track.batches for rank, track in scene.history.tracks.items() if track.batches}
        plot: Any = self._plot.plt
        plot.clear_figure()
        if not tracks:
            self._said.update(Text("No rank's batches could be counted: no loop counter, no beacon.", style="dim"))
            self._plot.refresh()
            return
        last = {rank: track[-1][1] for rank, track in tracks.items()}
        shown = self._chosen(last, scene)
        labels = {rank: f"rank {rank}: {last[rank]}{self._total(rank, scene)}" for rank in shown}
        over_time = any(len(track) > 1 for track in tracks.values())
        unit = "batches done over seconds" if over_time else "batches done at this poll"
        self._said.update(Text(f"{unit}; {len(shown)} of {len(tracks)} ranks that count", style="dim"))
        if over_time:
            for rank in shown:
                times, done = zip(*tracks[rank], strict=True)
                plot.plot(list(times), list(done), label=labels[rank], color="red" if rank in scene.culprits else None)
        else:  # a line needs two points
            order = list(reversed(shown))
            plot.bar(
                [labels[rank] for rank in order], [last[rank] for rank in order], orientation="horizontal", width=0.2
            )
        self._plot.refresh()

    def _total(self, rank: int, scene: Scene) -> str:
        view = scene.view(rank)
        return f"/{view.batches_total}" if view is not None and view.batches_total is not None else ""

    def _chosen(self, last: dict[int, int], scene: Scene) -> list[int]:
        order = sorted(last, key=lambda rank: (last[rank], rank))
        wanted = [
            *scene.culprits,
            order[0],
            order[-1],
            *([scene.selected] if scene.selected is not None else []),
            *order,
        ]
        return [rank for rank in dict.fromkeys(wanted) if rank in last][:_LINES]
