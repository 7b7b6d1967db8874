"""The table of ranks, and how it is sorted, filtered and grouped."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import DataTable

from hangdoc.diagnosis import RankView
from hangdoc.phrases import duration, numbers
from hangdoc.render import words
from hangdoc_tui import spark
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


class RankTable(DataTable[Text]):
    """One row per rank, or per class or host of them."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "stack")]

    class Chosen(Message):
        """The cursor stands on another rank; `entered` is True when the person asks for more about it."""

        def __init__(self, rank: int, entered: bool) -> None:
            self.rank, self.entered = rank, entered
            super().__init__()

    def __init__(self) -> None:
        super().__init__(cursor_type="row", zebra_stripes=False, id="ranks")
        self.sorted_by, self.grouped_by, self.filter = "rank", "ranks", ""
        self._rows: dict[str, tuple[Text, ...]] = {}
        self._members: dict[str, tuple[int, ...]] = {}

    def on_mount(self) -> None:
        """The columns; the first stays when the others are scrolled."""
        for name in _COLUMNS:
            self.add_column(name, key=name)
        self.fixed_columns = 1

    def show(self, scene: Scene) -> None:
        """Paint the ranks of a poll; only cells that changed are touched."""
        rows, members = {}, {}
        for views in self._groups(scene):
            row = self._row(scene, views)
            if all(word in " ".join(cell.plain for cell in row).lower() for word in self.filter.lower().split()):
                key = f"{self.grouped_by}:{views[0].rank}"
                rows[key], members[key] = row, tuple(view.rank for view in views)
        self._members = members
        if list(rows) != list(self._rows):
            self._replace(rows, scene.selected)
        else:
            for key, row in rows.items():
                for column, new, old in zip(_COLUMNS, row, self._rows[key], strict=True):
                    if new != old:
                        self.update_cell(key, column, new, update_width=len(new.plain) > len(old.plain))
        self._rows = rows

    def _replace(self, rows: dict[str, tuple[Text, ...]], selected: int | None) -> None:
        with self.prevent(DataTable.RowHighlighted):
            self.clear()
            for key, row in rows.items():
                self.add_row(*row, key=key)
        self.call_after_refresh(self.point_at, selected)  # when the table knows its height

    def point_at(self, rank: int | None) -> None:
        """Put the cursor on a rank's row, where it has one."""
        for index, members in enumerate(self._members.values()):
            if rank in members:
                self.move_cursor(row=index, animate=False)

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

    def _row(self, scene: Scene, views: Sequence[RankView]) -> tuple[Text, ...]:
        first = views[0]
        track = scene.history.tracks.get(first.rank)
        guilty = any(view.rank in scene.culprits for view in views)
        name = numbers(view.rank for view in views)
        return (
            Text(("●" if guilty else " ") + (name if len(name) <= 14 else name[:13] + "…"),
                 style="bold red" if guilty else "bold"),
            _state(views),
            Text(words.operation(first.operation)),
            _batches(first, scene.history.front_runner()),
            Text(duration(first.silent_seconds) if first.silent_seconds is not None else "-", justify="right"),
            Text(f"{spark.line(track.cpu if track else (), _SPARK, 100.0)} {_percent(first.cpu_percent)}"),
            Text(words.place(first.where), overflow="ellipsis"),
            Text(words.clean(first.host if len({view.host for view in views}) == 1 else "several")),
            Text(f"{first.pid or '-'}{'…' if len(views) > 1 else ''}", justify="right"),
            _sockets(scene, first),
        )  # fmt: skip

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """The cursor moved."""
        self._choose(event.row_key.value, False)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the row."""
        self._choose(event.row_key.value, True)

    def _choose(self, key: str | None, entered: bool) -> None:
        members = self._members.get(key or "")
        if members:
            self.post_message(self.Chosen(members[0], entered))


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
