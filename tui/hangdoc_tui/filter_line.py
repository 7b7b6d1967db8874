"""The line in which a person types the filter of the visible table."""

from textual import events
from textual.message import Message
from textual.widgets import Input

from hangdoc_tui.grid import Grid

_SHOWN = "-filter"
"""The class of a screen that shows the line: with its label, and no notice over it (top.tcss)."""


class FilterLine(Input):
    """The filter of one table at a time. Enter, Tab or a click on the table keeps it, Escape ends it. An empty line is only shown
    while a person types."""

    class Edited(Message):
        """The filter of the table is another one."""

    def __init__(self) -> None:
        super().__init__(placeholder="words that a row must contain", id="filter")
        self._table: Grid | None = None
        self._typing = False
        """Whether keys are text. Textual's messages about the focus come later than keys that are pressed quickly."""

    def show(self, table: Grid | None) -> None:
        """Show the filter of the table that is visible now; None if the view has none."""
        self._typing, self._table = False, table
        self.value = table.filter if table is not None else ""
        self._set_shown(bool(self.value.strip()))

    def edit(self, table: Grid) -> None:
        """Take the keys from now on."""
        self.show(table)
        self._begin()
        self.screen.set_focus(self)  # `focus` does it later: the next key may be there already

    def is_editing(self, table: Grid | None) -> bool:
        """Whether a person types the filter of this table."""
        return self._typing and self._table is table

    def end(self) -> bool:
        """End the filter of the visible table. False if it has none."""
        if self._table is None or not self.display:
            return False
        self._table.filter = ""
        self._keep()
        self.post_message(self.Edited())
        return True

    def _begin(self) -> None:
        self._typing = True
        self._set_shown(True)

    def _keep(self) -> None:
        table = self._table
        self.show(table)
        self.screen.set_focus(table)

    def _set_shown(self, shown: bool) -> None:
        self.display = shown
        self.screen.set_class(shown, _SHOWN)

    def watch_value(self, value: str) -> None:
        """Apply the filter at every letter."""
        if self._typing and self._table is not None:
            self._table.filter = value
            self.post_message(self.Edited())

    def on_focus(self) -> None:
        """Also by Tab, or by a click on the line."""
        self._begin()

    def on_blur(self) -> None:
        """Also by Tab, or by a click on the table."""
        if self._typing and self.screen.focused is not self:
            self.show(self._table)

    async def _on_key(self, event: events.Key) -> None:
        typed = self._typing and event.key not in ("enter", "escape")
        if typed:
            return
        event.prevent_default()
        event.stop()
        if not self._typing:  # it was pressed right after Enter or Escape, and is a command
            self.app.simulate_key(event.key)
        elif event.key == "enter":
            self._keep()
        else:
            self.end()
