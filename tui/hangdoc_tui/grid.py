"""A table of any length that costs a screenful: rows are asked for when they come into sight, and drawn as whole lines.

Textual's DataTable measures every cell of every row and renders each cell on its own; with 1,024 rows that is several times the
100 ms in which a key must have its picture (docs/performance.md)."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

Row = Callable[[int], tuple[Text, ...]]
"""The cells of the row of an index, one for each column."""


class Grid(ScrollView, can_focus=True):
    """Rows under a header that stays, with a cursor; the first column stays too when the others are scrolled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "end(-1)", show=False),
        Binding("end", "end(1)", show=False),
        Binding("enter", "open", show=False),
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

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        super().__init__(id=name)
        self.cursor = 0
        self.count = 0
        self._columns = tuple(columns)
        self._row: Row | None = None
        self._cells: dict[int, tuple[Text, ...]] = {}
        self._widths = [len(name) for name in columns]

    def fill(self, count: int, row: Row) -> None:
        """Show these rows. The cursor and the place stay, as far as there are rows."""
        self.count, self._row = count, row
        self._cells.clear()
        self.cursor = min(self.cursor, max(0, count - 1))
        self._measure()
        self.refresh()

    def cells(self, index: int) -> tuple[Text, ...]:
        """What stands in a row."""
        found = self._cells.get(index)
        if found is None:
            found = self._cells[index] = self._row(index) if self._row is not None else ()
        return found

    def point(self, index: int) -> None:
        """Put the cursor on a row, and the row in sight."""
        if 0 <= index < self.count and index != self.cursor:
            self.cursor = index
            self.refresh()
            self.scroll_to_region(Region(self.scroll_offset.x, index, 1, 2), animate=False, force=True)

    # --- drawing -------------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Columns only grow, so that nothing jumps from poll to poll."""
        first = self.scroll_offset.y
        for index in range(first, min(self.count, first + max(1, self.size.height))):
            for at, cell in enumerate(self.cells(index)):
                self._widths[at] = max(self._widths[at], cell.cell_len)
        self.virtual_size = Size(sum(self._widths) + 2 * len(self._widths), self.count + 1)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Other rows are in sight."""
        super().watch_scroll_y(old_value, new_value)
        self._measure()

    def on_resize(self) -> None:
        """More rows may be in sight."""
        self._measure()

    def render_line(self, y: int) -> Strip:
        """One line as it is seen."""
        index = self.scroll_offset.y + y - 1
        if y == 0:
            style = self.get_component_rich_style("grid--header")
            line = self._line([Text(name) for name in self._columns])
        elif index < self.count:
            style = self.rich_style
            line = self._line(self.cells(index))
        else:
            return Strip.blank(self.size.width, self.rich_style)
        cut = self._widths[0] + 2 + self.scroll_offset.x
        strip = Strip([*line.crop(0, self._widths[0] + 2), *line.crop(cut, cut + self.size.width)])
        strip = strip.adjust_cell_length(self.size.width).apply_style(style)
        if y and index == self.cursor:  # over the cells' own colours, so that they can be read on the cursor's
            cursor = self.get_component_rich_style("grid--cursor")
            strip = Strip(Segment(text, (own + cursor) if own else cursor) for text, own, _ in strip)
        return strip

    def _line(self, cells: Sequence[Text]) -> Strip:
        segments: list[Segment] = []
        for cell, width in zip(cells, self._widths, strict=True):
            room = Segment(" " * max(0, width - cell.cell_len))
            own = self.app.console.get_style(cell.style)  # which Text.render leaves out where nothing else is styled
            drawn = list(Segment.apply_style(cell.render(self.app.console), own))
            right = cell.justify == "right"
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
        """Up or down by what is in sight."""
        self._go(self.cursor + by * max(1, self.size.height - 2))

    def action_end(self, which: int) -> None:
        """To the first row, or to the last."""
        self._go(0 if which < 0 else self.count - 1)

    def action_open(self) -> None:
        """More about this row."""
        if self.count:
            self.post_message(self.Opened(self.cursor))

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor; on the row where it stands already it opens."""
        index = self.scroll_offset.y + event.y - 1
        if event.y and index < self.count:
            if index == self.cursor:
                self.action_open()
            else:
                self._go(index)
