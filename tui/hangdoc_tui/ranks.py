"""The first view: a timeline for each rank, class, host or block of ranks, and the details of the selected rank."""

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size

from hangdoc.diagnosis import RankView
from hangdoc.phrases import duration, frequency, numbers
from hangdoc.render import words
from hangdoc.timeline import blocks
from hangdoc_tui import behind, calls, cells
from hangdoc_tui.detail import LARGE, Detail
from hangdoc_tui.grid import Cell, Column, Fitted, Grid
from hangdoc_tui.places import placed, stack_age
from hangdoc_tui.view_model import RankChosen, ViewModel, gibibytes

SORTS: dict[str, tuple[Callable[[ViewModel, RankView], object], bool]] = {
    "rank": (lambda _, view: view.rank, False),
    "doing": (lambda _, view: (("dead", "blocked", None, "computing").index(view.label), view.state), False),
    "batches": (lambda _, view: view.batches_done, False),
    "batch/s": (ViewModel.batch_rate, False),
    "silent": (lambda _, view: view.silent_seconds, True),
    "cpu": (lambda _, view: view.cpu_percent, True),
    "mem": (ViewModel.memory, True),
    "gpu": (lambda _, view: view.gpu.utilisation if view.gpu is not None else None, False),
    "host": (lambda _, view: view.host, False),
}
"""By the titles of the columns: what the ranks are sorted by, and whether the largest comes first, unless a person reverses it.
Ranks for which it is not known come last."""
GROUPS = {"ranks": "rank", "classes": "class", "hosts": "on host", "blocks": "block"}
"""What a row may be, and the title of its column."""
_SORTED = {False: "▴", True: "▾"}
"""Whether the largest comes first."""
_DETAIL_LINES = 6


class RankTable(Grid):
    """One row per rank, class, host or block of ranks."""

    def __init__(self) -> None:
        super().__init__(
            "ranks",
            _make_columns(
                grouped=False, roles=False, several_hosts=False, recorded=False, gpus=False, rates=False, timeline=24
            ),
        )
        self.sorted_by, self.reversed = "rank", False
        self.chosen_group: str | None = None
        """What a person chose from GROUPS. None: the size and the verdict of the run decide."""
        self.zooms: list[tuple[int, ...]] = []
        """The ranks of each zoom, the innermost last."""
        self.room = 24
        """How many rows fit."""
        self._model: ViewModel | None = None
        self._rows: list[list[RankView]] = []
        """The ranks of each row."""

    @property
    def grouped_by(self) -> str:
        """What a row is now: one of GROUPS."""
        if self.chosen_group is not None or self._model is None:
            return self.chosen_group or "ranks"
        if len(self.zooms[-1] if self.zooms else self._model.job.ranks) <= LARGE:
            return "ranks"
        # In a large run that makes progress, almost every rank is a class of its own; in one that hangs, almost all are equal.
        return "blocks" if self.zooms or self._model.job.verdict == "healthy" else "classes"

    @property
    def largest_first(self) -> bool:
        """The direction of the order."""
        return SORTS[self.sorted_by][1] != self.reversed

    def sort_by_next(self) -> None:
        """Sort by the next column that there is."""
        titles = [title for title in SORTS if any(column.title == title for column in self._columns)]
        self.sorted_by, self.reversed = titles[(titles.index(self.sorted_by) + 1) % len(titles)], False

    def show(self, model: ViewModel) -> None:
        """Draw the ranks of a poll, with the cursor at the selected one."""
        self._model = model
        self._rows = self.filtered(self._groups(model), _join_search_text)
        foremost = behind.find_first(model.job.ranks)
        grouped = self.grouped_by != "ranks"
        rates = any(model.batch_rate(view) is not None for view in model.job.ranks)
        several_hosts = len({view.host for view in model.job.ranks}) > 1
        columns = _make_columns(
            grouped=grouped,
            roles=words.has_roles(model.job),
            several_hosts=several_hosts,
            recorded=calls.has_record(model),
            gpus=words.has_gpus(model.job),
            rates=rates,
            timeline=max(24 if self.size.width >= 80 else 16, self.size.width // 4),
        )
        columns = tuple(c._replace(gives_way=0) if c.title == self.sorted_by else c for c in columns)
        self.set_columns(columns)
        timeline = _TimelineColumn(model)
        titles = {column.title: at for at, column in enumerate(columns)}
        heads: dict[int, Cell] = {titles["timeline"]: Fitted(timeline.axis), 0: Text(GROUPS[self.grouped_by])}
        if (at := titles.get(self.sorted_by)) is not None:
            heads[at] = Text(f"{heads[0] if at == 0 else self.sorted_by}{_SORTED[self.largest_first]}")

        def cells_of(index: int) -> tuple[Cell, ...]:
            return _make_cells(model, self._rows[index], foremost, timeline, grouped=grouped, rates=rates)

        self.fill(len(self._rows), cells_of, heads)
        self.point_at(model.selected)

    def legend(self, width: int) -> list[Text]:
        """What the cells of its timeline mean, in lines of this width."""
        if self._model is None:
            return []
        several = len(self._model.job.ranks) > LARGE or any(len(views) > 1 for views in self._rows)
        return _TimelineColumn(self._model).legend(self.width_of("timeline"), width, several=several)

    def point_at(self, rank: int | None) -> None:
        """Put the cursor on a rank's row, if it has one."""
        for index, views in enumerate(self._rows):
            if any(view.rank == rank for view in views):
                self.point(index)
                return

    def row_of(self, index: int) -> list[RankView]:
        """The ranks of a row; empty if there is no such row."""
        return self._rows[index] if 0 <= index < len(self._rows) else []

    def zoom(self) -> bool:
        """Show only the ranks of the row under the cursor. False if it is a single rank."""
        ranks = tuple(view.rank for view in self.row_of(self.cursor))
        if len(ranks) < 2 or (self.zooms and ranks == self.zooms[-1]):
            return False
        self.zooms.append(ranks)
        self.chosen_group = None
        return True

    def zoom_out(self) -> bool:
        """Undo one zoom. False if there is none."""
        self.chosen_group = None if self.zooms else self.chosen_group
        return bool(self.zooms) and bool(self.zooms.pop())

    def _groups(self, model: ViewModel) -> list[list[RankView]]:
        within = set(self.zooms[-1]) if self.zooms else None
        shown = [view for view in model.job.ranks if within is None or view.rank in within]
        find = SORTS[self.sorted_by][0]
        found = [(find(model, view), view) for view in shown]
        known = [pair for pair in found if pair[0] is not None]
        known.sort(key=lambda pair: pair[0], reverse=self.largest_first)  # type: ignore[arg-type, return-value]
        views = [view for _, view in known] + [view for value, view in found if value is None]
        order = {view.rank: at for at, view in enumerate(views)}
        match self.grouped_by:
            case "classes":
                alike = words.classes(model.job)
                groups = [[view for view in group if view.rank in order] for group in alike]
                return sorted(filter(None, groups), key=lambda group: min(order[view.rank] for view in group))
            case "hosts":
                hosts: dict[str, list[RankView]] = {}
                for view in views:
                    hosts.setdefault(view.host, []).append(view)
                return list(hosts.values())
            case "blocks":
                by_rank = {view.rank: view for view in views}
                return [[by_rank[rank] for rank in block] for block in blocks(by_rank, max(8, self.room))]
        return [[view] for view in views]

    def on_grid_moved(self, event: Grid.Moved) -> None:
        """The cursor moved."""
        self._choose(event.index, False)

    def on_grid_opened(self, event: Grid.Opened) -> None:
        """Enter, or a click on the row."""
        self._choose(event.index, True)

    def on_grid_header_clicked(self, event: Grid.HeaderClicked) -> None:
        """Sort by that column, where there is an order; a second click reverses it."""
        if event.title in SORTS and self._model is not None:
            self.reversed = event.title == self.sorted_by and not self.reversed
            self.sorted_by = event.title
            self.show(self._model)

    def _choose(self, index: int, entered: bool) -> None:
        if 0 <= index < len(self._rows):
            ranks = [view.rank for view in self._rows[index]]
            selected = self._model.selected if self._model is not None else None
            rank = selected if selected is not None and selected in ranks else ranks[0]
            self.post_message(RankChosen(rank, entered))


class RanksView(Vertical):
    """The table, and below it the legend and the details of the selected rank."""

    def __init__(self) -> None:
        super().__init__(id="ranks-view")
        self._table, self._detail = RankTable(), Detail()
        self._model: ViewModel | None = None
        self._painted = Size(0, 0)
        """Its size when it was drawn last."""

    def compose(self) -> ComposeResult:
        """The details below the table."""
        yield self._table
        yield self._detail

    def show(self, model: ViewModel) -> None:
        """Draw both."""
        self._model, self._painted = model, self.size
        self._table.room = max(4, self.size.height - _DETAIL_LINES - 1)
        self._table.show(model)
        height = max(2, min(self._table.count + 1, self.size.height - _DETAIL_LINES))
        if self._table.styles.height is None or self._table.styles.height.value != height:
            self._table.styles.height = height
        self.show_selected(model)

    def show_selected(self, model: ViewModel) -> None:
        """Draw only what depends on the selected rank."""
        self._model = model
        zoomed = self._table.zooms[-1] if self._table.zooms else None
        self._detail.show(model, zoomed=zoomed, legend=self._table.legend)

    def on_resize(self, event: events.Resize) -> None:
        """Draw again for another size. Textual sends this also after the view was hidden; then nothing has changed."""
        if self._model is not None and self.size != self._painted:
            self.show(self._model)


class _TimelineColumn:
    """The timeline of a poll, for any width of its column."""

    def __init__(self, model: ViewModel) -> None:
        self._recorder, self._moment = model.history.recorder, model.moment

    def axis(self, width: int) -> Text:
        """The time axis above it."""
        recorder, since = self._recorder, self._recorder.polls_since_progress
        polls, still = cells.polls_per_cell(since, width), recorder.seconds_since_progress
        return cells.axis(
            recorder.seconds, since, width, polls, recorder.recorded, still_seconds=still, moment=self._moment
        )

    def row(self, ranks: Sequence[int], width: int) -> Text:
        """The cells of some ranks."""
        polls = cells.polls_per_cell(self._recorder.polls_since_progress, width)
        line = self._recorder.timeline([ranks], polls=width * polls)
        return cells.draw_row(line.rows[0], width, polls, line.recorded)

    def legend(self, shown: int, width: int, *, several: bool) -> list[Text]:
        """What its cells mean, if it is `shown` cells wide, in lines of `width`. `several`: a row may have several ranks."""
        recorder = self._recorder
        polls = cells.polls_per_cell(recorder.polls_since_progress, shown)
        return cells.legend(
            recorder.find_used(shown * polls),
            width,
            blocks=several,
            parts_of_time=polls > 1 or recorder.has_parts(shown * polls),
            recorded=recorder.count_recorded(shown * polls) > 0,
        )


def _make_columns(
    *, grouped: bool, roles: bool, several_hosts: bool, recorded: bool, gpus: bool, rates: bool, timeline: int
) -> tuple[Column, ...]:
    return (
        Column("rank", least=8, most=14),
        *([Column("role", least=4, most=16)] if roles else []),
        *([Column("count")] if grouped else []),
        Column("timeline", least=timeline, flexible=True),
        Column("doing", least=12, most=30),
        Column("batches", least=8, gives_way=1),
        *([Column("batch/s", gives_way=2)] if rates else []),
        Column("silent", least=7, gives_way=3),
        Column("cpu", least=4, gives_way=4),
        Column("mem", least=4, gives_way=5),
        *([Column("gpu", least=4, most=16, gives_way=3)] if gpus else []),
        *([Column("calls/s", gives_way=8 if rates else 2), Column("late", least=6, gives_way=7)] if recorded else []),
        Column("where", least=20, most=70, flexible=True, gives_way=6),
        *([Column("host", most=20, gives_way=9)] if several_hosts else []),
        Column("pid", gives_way=10),
    )


def _make_cells(
    model: ViewModel,
    views: Sequence[RankView],
    foremost: RankView | None,
    timeline: _TimelineColumn,
    *,
    grouped: bool,
    rates: bool,
) -> tuple[Cell, ...]:
    first = views[0]
    is_culprit = any(view.rank in model.culprits for view in views)
    ranks = [view.rank for view in views]
    name = numbers(ranks)
    hosts = dict.fromkeys(view.host for view in views)
    several_hosts = len({view.host for view in model.job.ranks}) > 1
    row: tuple[Cell, ...] = (
        Text(("●" if is_culprit else " ") + (name if len(name) <= 13 else name[:12] + "…"),
             style=words.CULPRIT_STYLE if is_culprit else "bold"),
        *([Text(words.roles(views))] if words.has_roles(model.job) else []),
        *([Text(f"{len(views):,}", justify="right")] if grouped else []),
        Fitted(lambda width: timeline.row(ranks, width)),
        doing(views),
        _show_batches(views, foremost, model.batch_rate, of_pass=words.in_other_passes(model.job.ranks)),
        *([Text(_show_batch_rate(model, views), justify="right")] if rates else []),
        Text(_show_silence(views), justify="right"),
        Text(words.cpu(views), justify="right"),
        Text(_show_memory(model, views), justify="right"),
        *([_show_gpu(views)] if words.has_gpus(model.job) else []),
        *([Text(calls.rate_text(model, views), justify="right"), Text(calls.late_text(model, views), justify="right")]
          if calls.has_record(model) else []),
        Fitted(lambda width: _show_place(views, width), _show_place(views, 999).cell_len),
        *([Text(words.clean(next(iter(hosts))) if len(hosts) == 1 else f"{len(hosts)} hosts")] if several_hosts else []),
        Text(f"{first.pid or '-'}{'…' if len(views) > 1 else ''}", justify="right"),
    )  # fmt: skip
    return row


def _show_place(views: Sequence[RankView], width: int) -> Text:
    places = {view.where for view in views}
    if len(places) > 1:
        return Text(f"{len(places)} places")
    return placed(max(views, key=lambda view: view.stack_seconds_ago or 0.0), width)


def _join_search_text(views: Sequence[RankView]) -> str:
    """The text that the filter searches."""
    first = views[0]
    name = numbers(view.rank for view in views)
    hosts = " ".join(dict.fromkeys(view.host for view in views))
    place = words.place(first.where)
    parts = (
        name,
        words.roles(views),
        first.label,
        first.state,
        words.operation(first.operation),
        place,
        hosts,
        first.pid,
    )
    return " ".join(map(str, parts))


def doing(views: Sequence[RankView]) -> Text:
    """`■ all_reduce (ddp-backward)`, `▶ loading-data`, or how many ranks have each label."""
    first = views[0]
    if len({(view.label, view.state, view.operation) for view in views}) == 1:
        text = f"{words.LABEL_GLYPH[first.label]} {words.operation(first.operation) or first.state}"
        style = words.LABEL_STYLE[first.label]
        oldest = max(views, key=lambda view: view.stack_seconds_ago or 0.0)
        if stack_age(oldest) is None:
            return Text(text, style)
        # That it moves is of this poll, as its batches may be. The call in which it was seen is not.
        age = f" {oldest.stack_seconds_ago:.0f}s ago" if first.label == "blocked" else ""
        return Text(f"{text}{age}", f"dim {style}")
    tally = {label: sum(view.label == label for view in views) for label in ("dead", "blocked", "computing", None)}
    parts = [(f"{words.LABEL_GLYPH[label]} {count:,}  ", words.LABEL_STYLE[label])
             for label, count in tally.items() if count]  # fmt: skip
    return Text.assemble(*parts)


def _show_batches(
    views: Sequence[RankView], first: RankView | None, find_rate: behind.FindRate, *, of_pass: bool
) -> Text:
    """Those of this poll, with how many the last one is behind the first of the run; else older ones, with their age. `of_pass`:
    with the pass, where all of them are in one."""
    counted = [view for view in views if view.batches_done is not None]
    now = [view for view in counted if words.batches_age(view) is None]
    if not counted:
        return Text("-", justify="right")
    shown = now or counted
    done = [view.batches_done or 0 for view in shown]
    least, total = min(done), shown[0].batches_total
    text = f"{least}" if least == max(done) else f"{least}…{max(done)}"
    text = f"{text}/{total}" if total is not None else text
    text = f"-…{text}" if len(counted) < len(views) else text
    text += words.name_pass(shown[0].batches_pass_number) if of_pass and not words.in_other_passes(shown) else ""
    if not now:
        return Text(
            f"{text} {max(words.batches_age(view) or 0.0 for view in counted):.0f}s ago", "dim", justify="right"
        )
    late = [behind.count_behind(view, first, find_rate) or 0 for view in now] if first is not None else []
    most = max(late, default=0)
    return Text.assemble(text, (f" {most} behind" if most else "", "bold yellow"), justify="right")


def _show_batch_rate(model: ViewModel, views: Sequence[RankView]) -> str:
    """On average."""
    rates = [rate.per_second for view in views if (rate := model.batch_rate(view)) is not None]
    return frequency(sum(rates) / len(rates)) if rates else "-"


def _show_memory(model: ViewModel, views: Sequence[RankView]) -> str:
    """That of the largest one."""
    most = max((size for view in views if (size := model.memory(view)) is not None), default=None)
    return gibibytes(most) if most is not None else "-"


def _show_silence(views: Sequence[RankView]) -> str:
    seconds = [view.silent_seconds for view in views if view.silent_seconds is not None]
    return duration(min(seconds)) if seconds else "-"


def _show_gpu(views: Sequence[RankView]) -> Text:
    """What is wrong with the cards, or else how much of the time kernels ran: the other meters are in the view of cards."""
    cards = [view.gpu for view in views if view.gpu is not None]
    errors = list(dict.fromkeys(words.clean(error) for card in cards for error in card.errors))
    if errors:
        return Text(errors[0] + (f" +{len(errors) - 1}" if errors[1:] else ""), "bold red", justify="right")
    return Text(words.gpu_use(cards) or "-", justify="right")
