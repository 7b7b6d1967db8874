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
        self._said.update(
            Text(f"batches done over seconds; {len(shown)} of {len(tracks)} ranks that count", style="dim")
        )
        for rank in shown:
            guilty = rank in scene.culprits
            times, done = zip(*tracks[rank], strict=True)
            view = scene.view(rank)
            total = f"/{view.batches_total}" if view is not None and view.batches_total is not None else ""
            plot.plot(
                list(times), list(done), label=f"rank {rank}: {last[rank]}{total}", color="red" if guilty else None
            )
        self._plot.refresh()

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
