"""The table of ranks, and how it is sorted, filtered and grouped."""

from collections.abc import Callable, Sequence

from rich.text import Text
from textual.message import Message

from hangdoc.diagnosis import RankView
from hangdoc.phrases import duration, numbers
from hangdoc.render import words
from hangdoc_tui import spark
from hangdoc_tui.grid import Grid
from hangdoc_tui.scene import Scene

_COLUMNS = ("rank", "state", "operation", "batches", "silent", "cpu", "where", "host", "pid", "sockets")
_SPARK = 12
_LAST = float("inf")
SORTS: dict[str, Callable[[RankView], object]] = {
    "rank": lambda view: view.rank,
    "state": lambda view: (("dead", "blocked", None, "computing").index(view.label), view.state, view.rank),
    "batches": lambda view: (view.batches_done if view.batches_done is not None else _LAST, view.rank),
    "silent": lambda view: (-(view.silent_seconds or 0.0), view.rank),
    "cpu": lambda view: (-(view.cpu_percent or 0.0), view.rank),
    "host": lambda view: (view.host, view.rank),
}
GROUPS = ("ranks", "classes", "hosts")


class RankTable(Grid):
    """One row per rank, or per class or host of them."""

    class Chosen(Message):
        """The cursor stands on another rank; `entered` is True when the person asks for more about it."""

        def __init__(self, rank: int, entered: bool) -> None:
            self.rank, self.entered = rank, entered
            super().__init__()

    def __init__(self) -> None:
        super().__init__("ranks", _COLUMNS)
        self.sorted_by, self.grouped_by, self.filter = "rank", "ranks", ""
        self._scene: Scene | None = None
        self._rows: list[list[RankView]] = []
        """What each row shows, in order."""

    def show(self, scene: Scene) -> None:
        """Paint the ranks of a poll; the cursor goes with the selected one."""
        self._scene = scene
        wanted = self.filter.lower().split()
        self._rows = [
            views for views in self._groups(scene) if not wanted or all(word in _searched(views) for word in wanted)
        ]
        most = scene.history.front_runner()
        self.fill(len(self._rows), lambda index: self._cells_of(scene, self._rows[index], most))
        self.point_at(scene.selected)

    def point_at(self, rank: int | None) -> None:
        """Put the cursor on a rank's row, where it has one."""
        for index, views in enumerate(self._rows):
            if any(view.rank == rank for view in views):
                self.point(index)
                return

    def _groups(self, scene: Scene) -> list[list[RankView]]:
        views = sorted(scene.job.ranks, key=SORTS[self.sorted_by])  # type: ignore[arg-type]
        if self.grouped_by == "classes":
            order = {view.rank: at for at, view in enumerate(views)}
            return sorted(words.classes(scene.job), key=lambda group: min(order[view.rank] for view in group))
        if self.grouped_by == "hosts":
            hosts: dict[str, list[RankView]] = {}
            for view in views:
                hosts.setdefault(view.host, []).append(view)
            return list(hosts.values())
        return [[view] for view in views]

    def _cells_of(self, scene: Scene, views: Sequence[RankView], most: int | None) -> tuple[Text, ...]:
        first = views[0]
        track = scene.history.tracks.get(first.rank)
        guilty = any(view.rank in scene.culprits for view in views)
        name = numbers(view.rank for view in views)
        return (
            Text(("●" if guilty else " ") + (name if len(name) <= 14 else name[:13] + "…"),
                 style="bold red" if guilty else "bold"),
            _state(views),
            Text(words.operation(first.operation)),
            _batches(first, most),
            Text(duration(first.silent_seconds) if first.silent_seconds is not None else "-", justify="right"),
            Text(f"{spark.line(track.cpu if track else (), _SPARK, 100.0)} {_percent(first.cpu_percent)}"),
            Text(words.place(first.where), overflow="ellipsis"),
            Text(words.clean(first.host if len({view.host for view in views}) == 1 else "several")),
            Text(f"{first.pid or '-'}{'…' if len(views) > 1 else ''}", justify="right"),
            _sockets(scene, first),
        )  # fmt: skip

    def on_grid_moved(self, event: Grid.Moved) -> None:
        """The cursor moved."""
        self._choose(event.index, False)

    def on_grid_opened(self, event: Grid.Opened) -> None:
        """Enter, or a click on the row."""
        self._choose(event.index, True)

    def _choose(self, index: int, entered: bool) -> None:
        if 0 <= index < len(self._rows):
            ranks = [view.rank for view in self._rows[index]]
            known = self._scene.selected if self._scene is not None else None
            self.post_message(self.Chosen(known if known in ranks and known is not None else ranks[0], entered))


def _searched(views: Sequence[RankView]) -> str:
    """What the filter looks in."""
    first = views[0]
    name = numbers(view.rank for view in views)
    hosts = " ".join(dict.fromkeys(view.host for view in views))
    place = words.place(first.where)
    return f"{name} {first.label} {first.state} {words.operation(first.operation)} {place} {hosts} {first.pid}".lower()


def _state(views: Sequence[RankView]) -> Text:
    first = views[0]
    if len({(view.label, view.state) for view in views}) > 1:
        tally = {label: sum(view.label == label for view in views) for label in ("dead", "blocked", "computing")}
        return Text("  ".join(f"{words.LABEL_GLYPH[label]} {count}" for label, count in tally.items() if count))
    return Text(
        f"{words.LABEL_GLYPH[first.label]} {first.label or '?'}: {first.state}", style=words.LABEL_STYLE[first.label]
    )


def _batches(view: RankView, most: int | None) -> Text:
    if view.batches_done is None:
        return Text("-", justify="right")
    text = f"{view.batches_done}/{view.batches_total}" if view.batches_total is not None else str(view.batches_done)
    behind = (most or 0) - view.batches_done
    return Text.assemble(text, (f" -{behind}", "bold yellow") if behind > 0 else "", justify="right")


def _percent(value: float | None) -> str:
    return "   -" if value is None else f"{value:3.0f}%"


def _sockets(scene: Scene, view: RankView) -> Text:
    rank = scene.run.ranks.get(view.rank)
    if rank is None or not rank.connections:
        return Text("-")
    queued = sum(c.send_queue_bytes + c.receive_queue_bytes for c in rank.connections)
    return Text(f"{len(rank.connections)}" + (f" ({queued} B queued)" if queued else ""))
