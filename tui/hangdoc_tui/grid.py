"""A table of any length that costs as much as one screen: only visible rows are built, and each is drawn as one line.

Textual's DataTable measures every cell of every row and renders each cell separately. With 1,024 rows that takes several times
the 100 ms in which a key must be answered on the screen (docs/performance.md)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip


class Fitted(NamedTuple):
    """A text that is made once the width of its column is known."""

    make: Callable[[int], Text]
    wanted_width: int = 0
    """The width that shows the whole text."""


Cell = Text | Fitted
Row = Callable[[int], Sequence[Cell]]
"""From an index to the cells of that row: one for each column, or a single one over the whole width."""
MOVE = Binding.Group("Move")
_MARK = "▸"
_MARK_WIDTH = 1
_GAP = 2
"""One blank on each side of a cell."""
_WHOLE = 1000
"""A width in which no text is cut."""
T = TypeVar("T")


class Column(NamedTuple):
    """A column: as wide as its visible cells, within these limits."""

    title: str
    least: int = 0
    """It is cut to this width if there is no room for all of it; 0: it is never cut."""
    most: int | None = None
    flexible: bool = False
    """It needs only `least` and gets the room that is left: the first such column all, the others no more than they want."""
    gives_way: int = 0
    """If there is no room for all, the columns with the highest number are left out first. 0 is never left out."""


class Grid(ScrollView, can_focus=True):
    """Rows with a cursor. The header and the first column stay when the rest is scrolled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "up", show=False, group=MOVE, tooltip="The row above"),
        Binding("down", "move(1)", "down", show=False, group=MOVE, tooltip="The row below"),
        Binding("pageup", "page(-1)", "page up", show=False, group=MOVE, tooltip="A screen up"),
        Binding("pagedown", "page(1)", "page down", show=False, group=MOVE, tooltip="A screen down"),
        Binding("home", "end(-1)", "first row", show=False, group=MOVE, tooltip="The first row"),
        Binding("end", "end(1)", "last row", show=False, group=MOVE, tooltip="The last row"),
        Binding(
            "enter",
            "open",
            "open",
            show=False,
            key_display="enter",
            group=MOVE,
            tooltip="Open the row; a second click does the same",
        ),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"grid--header", "grid--cursor"}

    class Moved(Message):
        """A person put the cursor on another row."""

        def __init__(self, index: int) -> None:
            self.index = index
            super().__init__()

    class Opened(Message):
        """A person asked for more about a row."""

        def __init__(self, index: int) -> None:
            self.index = index
            super().__init__()

    class HeaderClicked(Message):
        """A person clicked the title of a column; `title` is empty if there is none."""

        def __init__(self, title: str) -> None:
            self.title = title
            super().__init__()

    def __init__(self, name: str, columns: Sequence[str | Column]) -> None:
        super().__init__(id=name)
        self.cursor = 0
        self.count = 0
        """With the remarks."""
        self.filter = ""
        """The words that a row must contain. `show` of each table applies it (`filtered`)."""
        self._columns = tuple(Column(column) if isinstance(column, str) else column for column in columns)
        self._titles: Mapping[int, Cell] = {}
        self._row: Row | None = None
        self._cells: dict[int, Sequence[Cell]] = {}
        self._lines: dict[int, Strip] = {}
        """Drawn rows, without cursor and scrolling."""
        self._natural = [len(column.title) for column in self._columns]
        self._widths = list(self._natural)
        """0 for a column that is left out."""

    def filtered(self, rows: Iterable[T], find_text: Callable[[T], str]) -> list[T]:
        """The rows whose text contains all words of the filter."""
        wanted = self.filter.lower().split()
        if not wanted:
            return list(rows)
        texts = ((row, find_text(row).lower()) for row in rows)
        return [row for row, text in texts if all(word in text for word in wanted)]

    def fill(
        self, count: int, row: Row, titles: Mapping[int, Cell] | None = None, remarks: Sequence[Text] = ()
    ) -> None:
        """Show these rows, and below them the remarks, whatever the filter is. Cursor and scrolling stay where they are, as far
        as there are rows. `titles` replaces the titles of columns, by their index."""
        below = [*self._describe_filter(count), *remarks]
        self.count, self._titles = count + len(below), titles or {}
        self._row = lambda index: row(index) if index < count else (below[index - count],)
        self._cells.clear()
        self._lines.clear()
        self.cursor = min(self.cursor, max(0, count - 1))
        self._measure()
        self.refresh()

    def _describe_filter(self, count: int) -> Iterator[Text]:
        """Why there are no rows, if that is because of the filter."""
        if not count and (words := " ".join(self.filter.split())):
            yield Text(f"no row contains '{words}'", "dim")

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Use other columns from the next `fill` on."""
        if tuple(columns) != self._columns:
            self._columns = tuple(columns)
            self._natural = [len(column.title) for column in self._columns]
            self._cells.clear()

    def cells(self, index: int) -> Sequence[Cell]:
        """The cells of a row."""
        cells = self._cells.get(index)
        if cells is None:
            cells = self._cells[index] = self._row(index) if self._row is not None else ()
        return cells

    def width_of(self, title: str) -> int:
        """The width of a column now; 0 if it is left out, or if there is none."""
        return next((w for w, column in zip(self._widths, self._columns, strict=True) if column.title == title), 0)

    def point(self, index: int) -> None:
        """Put the cursor on a row, and scroll to it."""
        if 0 <= index < self.count and index != self.cursor:
            self.cursor = index
            self.refresh()
            self.scroll_to_region(Region(self.scroll_offset.x, index, 1, 2), animate=False, force=True)

    def _title_at(self, x: int) -> str:
        end = _MARK_WIDTH - self.scroll_offset.x
        for wide, column in zip(self._widths, self._columns, strict=True):
            end += wide + _GAP if wide else 0
            if x < end:
                return column.title
        return ""

    # --- drawing -------------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Set the widths. Columns only grow, so that nothing moves sideways between polls."""
        first = self.scroll_offset.y
        for index in range(first, min(self.count, first + max(1, self.size.height))):
            cells = self.cells(index)
            for at, cell in enumerate(cells if len(cells) == len(self._columns) else ()):
                most, wanted = self._columns[at].most, cell.cell_len if isinstance(cell, Text) else cell.wanted_width
                self._natural[at] = max(self._natural[at], wanted if most is None else min(wanted, most))
        bar = self.styles.scrollbar_size_vertical if self.count + 1 > self.size.height else 0
        widths = _fitted(self._columns, self._natural, self.outer_size.width - bar - _MARK_WIDTH)
        if widths != self._widths:
            self._widths = widths
            self._lines.clear()
        width = _MARK_WIDTH + sum(column_width + _GAP for column_width in widths if column_width)
        if (size := Size(width, self.count + 1)) != self.virtual_size:
            self.virtual_size = size

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Other rows are visible."""
        super().watch_scroll_y(old_value, new_value)
        self._measure()

    def on_resize(self) -> None:
        """More rows may be visible."""
        self._measure()

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        index = self.scroll_offset.y + y - 1
        if y == 0:
            style = self.get_component_rich_style("grid--header")
            titles = [self._titles.get(at, Text(column.title)) for at, column in enumerate(self._columns)]
            line = self._line(titles)
        elif index < self.count:
            style = self.rich_style
            line = self._lines.get(index) or self._line(self.cells(index))
            self._lines[index] = line
        else:
            return Strip.blank(self.size.width, self.rich_style)
        pointed = y > 0 and index == self.cursor
        kept = self._widths[0] + _GAP
        cut = kept + self.scroll_offset.x
        first = Strip([Segment(_MARK if pointed else " "), *line.crop(0, kept)])
        if pointed and self.app.native_ansi_color:  # one of 16 background colours would hide some of the cells
            first = first.apply_style(Style(reverse=True))
        room = self.size.width - kept - _MARK_WIDTH
        rest = line.crop(cut, cut + room)
        if line.crop(cut + room).text.strip():  # it can be scrolled
            rest = Strip([*rest.crop(0, room - 1), Segment("…")])
        strip = Strip([*first, *rest])
        strip = strip.adjust_cell_length(self.size.width).apply_style(style)
        if pointed:  # the cells keep their own colours, which show what a rank does
            cursor = Style(bold=True, bgcolor=self.get_component_rich_style("grid--cursor").bgcolor)
            strip = Strip(Segment(text, (own + cursor) if own else cursor) for text, own, _ in strip)
        return strip

    def _line(self, cells: Sequence[Cell]) -> Strip:
        segments: list[Segment] = []
        whole = max(self.size.width - _MARK_WIDTH, self.virtual_size.width - _MARK_WIDTH) - _GAP
        widths = self._widths if len(cells) == len(self._widths) else [whole]
        for cell, width in zip(cells, widths, strict=True):
            if not width:
                continue
            text = cell if isinstance(cell, Text) else cell.make(width)
            if text.cell_len > width:
                text = text.copy()
                text.truncate(width, overflow="ellipsis")
            room = Segment(" " * (width - text.cell_len))
            own = self.app.console.get_style(text.style)  # Text.render leaves it out if nothing else is styled
            drawn = list(Segment.apply_style(text.render(self.app.console), own))
            right = text.justify == "right"
            segments += [Segment(" "), *([room] if right else []), *drawn, *([] if right else [room]), Segment(" ")]
        return Strip(segments)

    # --- the cursor ----------------------------------------------------------------------------------------------------

    def _go(self, index: int) -> None:
        index = min(max(0, index), self.count - 1)
        if index >= 0 and index != self.cursor:
            self.point(index)
            self.post_message(self.Moved(index))

    def action_move(self, by: int) -> None:
        """Up or down."""
        self._go(self.cursor + by)

    def action_page(self, by: int) -> None:
        """One screen up or down."""
        self._go(self.cursor + by * max(1, self.size.height - 2))

    def action_end(self, which: int) -> None:
        """To the first row, or to the last."""
        self._go(0 if which < 0 else self.count - 1)

    def action_open(self) -> None:
        """Open the row under the cursor."""
        if self.count:
            self.post_message(self.Opened(self.cursor))

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor; a click on the row under the cursor opens it."""
        index = self.scroll_offset.y + event.y - 1
        if event.y == 0:
            self.post_message(self.HeaderClicked(self._title_at(event.x)))
        elif index < self.count:
            if index == self.cursor:
                self.action_open()
            else:
                self._go(index)


def join_cells(cells: Sequence[Cell]) -> str:
    """The text of a row, which the filter searches."""
    return " ".join((cell if isinstance(cell, Text) else cell.make(_WHOLE)).plain for cell in cells)


def _fitted(columns: Sequence[Column], natural: Sequence[int], room: int) -> list[int]:
    """The width of each column in `room` cells; 0 for a column that is left out."""
    widths = [
        column.least if column.flexible else max(column.least, wide)
        for column, wide in zip(columns, natural, strict=True)
    ]

    def left() -> int:
        return room - sum(wide + _GAP for wide in widths if wide)

    while left() < 0:
        last = max((at for at in range(len(columns)) if widths[at]), key=lambda at: columns[at].gives_way, default=0)
        if not columns[last].gives_way:
            break
        widths[last] = 0
    for at in reversed(range(len(columns))):  # what is still too wide is cut rather than scrolled
        if widths[at] > columns[at].least > 0 > left():
            widths[at] = max(columns[at].least, widths[at] + left())
    takers = [at for at, column in enumerate(columns) if column.flexible and widths[at]]
    for at in reversed(takers):
        wanted = left() if at == takers[0] else min(natural[at] - widths[at], left() // 2)
        widths[at] += max(0, wanted)
    return widths
