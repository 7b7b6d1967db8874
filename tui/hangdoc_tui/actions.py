"""What a person can do in the app: the actions of the keys and of the command palette."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.content import Content
from textual.markup import escape
from textual.screen import Screen
from textual.widgets import Input, TabbedContent

from hangdoc import codec
from hangdoc.reasoning.views.detail import details
from hangdoc.render.console import record_console
from hangdoc.render.text import report
from hangdoc.timeline import Timeline
from hangdoc.typed_programs import typed_programs
from hangdoc_tui import keys, pages, signals
from hangdoc_tui.filter_line import FilterLine
from hangdoc_tui.grid import Grid
from hangdoc_tui.ranks import GROUPS, RankTable
from hangdoc_tui.source import Poll, Source
from hangdoc_tui.stacks import COMPARISONS, StackView
from hangdoc_tui.tables import Settings
from hangdoc_tui.trees import StackTree
from hangdoc_tui.view_model import ViewModel

RATES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


def following(values: Iterable[str], value: str | None) -> str:
    """The value after `value`; after the last one the first."""
    choices = list(values)
    return choices[(choices.index(value) + 1) % len(choices)] if value in choices else choices[0]


class Actions(App[None]):
    """The app's state and the action of every key. `Top` has what happens without a key."""

    BINDINGS: ClassVar[list[BindingType]] = list(keys.BINDINGS)

    def __init__(self, source: Source, *, rate: float, allow_signals: bool, folder: Path | None) -> None:
        # Without colours, use the terminal's own two: Textual turns red into a grey that is too dark to read.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.source, self.rate, self.allow_signals = source, rate, allow_signals
        self.folder = folder or Path.cwd()
        """Where bundles and reports are written."""
        self.paused = self.following = False
        self.number = 0
        """In a recording, the poll to show."""
        self.poll: Poll | None = None
        self.model: ViewModel | None = None
        self.job_id: str | None = None
        self.selected: int | None = None
        self.selected_by_hand = False
        """Whether a person chose the selected rank. If not, the culprit is selected once there is one."""
        self.wake = threading.Event()
        """Set to make the polling thread poll at once."""

    def keys_line(self) -> Content:
        """The keys that a new user needs, each one clickable, as many as fit: the last two always. Textual's Footer is not
        used because it computes its layout at every change of focus, which delays the answer to a key (docs/performance.md)."""
        words = (
            f"[@click=app.{binding.action}][b $footer-key-foreground]{escape(keys.shown(binding))}[/] "
            f"{binding.description}[/]"
            for binding in keys.footer(self.size.width)
        )
        return Content.from_markup(" " + "  ".join(words))

    def notify(self, message: str, **options: Any) -> None:
        """Show a notification in place of the earlier one. It has one line, over the last one of the view (top.tcss)."""
        self.clear_notifications()
        self.screen.query("ToastHolder").remove()  # Textual leaves the earlier ones behind, each with a line
        options.pop("markup", None)
        super().notify(message, markup=False, **options)

    def _refresh_notifications(self) -> None:
        """Draw the notification on the newest screen only: Textual leaves it in sight behind a page that is opened over it."""
        for screen in self.screen_stack[:-1]:
            screen.query("ToastHolder").remove()
        super()._refresh_notifications()

    def refresh_model(self) -> None:
        """Build the view model from the last poll, and draw header and view."""
        raise NotImplementedError

    def paint(self) -> None:
        """Paint the visible view."""
        raise NotImplementedError

    def timelines(self) -> dict[str, Timeline]:
        """What each rank did at each poll, by job id."""
        raise NotImplementedError

    def visible_table(self) -> Grid | None:
        """The table of the visible view; None if it shows no rows."""
        pane = self.query_one(TabbedContent).active_pane
        return next(iter(pane.query(Grid)), None) if pane is not None else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that come before all widgets (keys.py) do not come before a text that a person types, nor before a page."""
        if action in keys.AT_ONCE:
            return not (isinstance(self.focused, Input) or self.screen.is_modal)
        return super().check_action(action, parameters)

    # --- what is shown -------------------------------------------------------------------------------------------------

    def action_go(self, view: str) -> None:
        """Show a view, also one whose tab is hidden."""
        views = self.query_one(TabbedContent)
        views.show_tab(f"pane-{view}")
        views.active = f"pane-{view}"

    def action_step(self, by: int) -> None:
        """Select another rank, `by` places further."""
        if self.model is not None and self.selected is not None:
            ranks = [view.rank for view in self.model.job.ranks]
            self.selected = ranks[(ranks.index(self.selected) + by) % len(ranks)]
            self.selected_by_hand = True
            self.query_one(RankTable).point_at(self.selected)
            self.refresh_model()

    def action_follow(self) -> None:
        """Keep the culprit selected."""
        self.following = not self.following
        self.refresh_model()

    def action_next_job(self) -> None:
        """Show the next job."""
        if self.poll is not None and self.poll.diagnosis.jobs:
            self.job_id = following([job.id for job in self.poll.diagnosis.jobs], self.job_id)
            self.clear_notifications()  # they are about the job that was shown
            self.refresh_model()

    def action_keys(self) -> None:
        """Show all keys."""
        self.push_screen(pages.Page(pages.describe_keys))

    def action_findings(self) -> None:
        """Show all findings of the job."""
        if self.model is not None:
            self.push_screen(pages.Page(self._describe_findings))

    def _describe_findings(self) -> pages.Content:
        return pages.describe_findings(self.model.job.findings if self.model is not None else (), self.programs())

    def action_unseen(self) -> None:
        """Show what could not be observed."""
        if self.poll is not None:
            self.push_screen(pages.Page(self._describe_unseen))

    def _describe_unseen(self) -> pages.Content:
        if self.poll is None:
            return pages.describe_unseen((), ())
        ranks = (f"rank {rank.rank}: {rank.why}" for job in self.poll.diagnosis.jobs for rank in job.unseen)
        return pages.describe_unseen(self.poll.diagnosis.problems, ranks)

    # --- how it is shown -----------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Open the filter of the visible table."""
        table = self.visible_table()
        if table is None:
            view = self.query_one(TabbedContent).active.removeprefix("pane-")
            self.notify(f"the {view} view has no filter: press 1, then / to filter the ranks", markup=False)
        else:
            self.query_one(FilterLine).edit(table)

    def action_leave(self) -> None:
        """End the filter. If there is none, zoom out."""
        if not self.query_one(FilterLine).end() and self.query_one(RankTable).zoom_out():
            self.paint()

    def action_zoom(self) -> None:
        """Show only the ranks of the row under the cursor."""
        self.action_go("ranks")
        table = self.query_one(RankTable)
        if table.zoom():
            self.paint()
        elif table.row_of(table.cursor):
            self.notify("this row is a single rank: press g for rows of several ranks", markup=False)
        else:
            self.notify("no row to zoom into", markup=False)

    def action_sort(self) -> None:
        """Sort by the next column."""
        table = self.query_one(RankTable)
        table.sort_by_next()
        self.paint()
        table.point_at(self.selected)

    def action_reverse(self) -> None:
        """Reverse the order."""
        table = self.query_one(RankTable)
        table.reversed = not table.reversed
        self.paint()
        table.point_at(self.selected)

    def action_group(self) -> None:
        """Change what a row is: a rank, a class, a host, or a block."""
        table = self.query_one(RankTable)
        table.chosen_group = following(GROUPS, table.grouped_by)
        self.paint()
        table.point_at(self.selected)

    def action_native(self) -> None:
        """Show C++ frames, or hide them."""
        stack, tree = self.query_one(StackView), self.query_one(StackTree)
        stack.native = tree.native = not stack.native
        self.paint()

    def action_locals(self) -> None:
        """Show local variables, or hide them."""
        stack = self.query_one(StackView)
        stack.locals = not stack.locals
        self.paint()

    def action_compare(self) -> None:
        """Compare the stack with the next of COMPARISONS."""
        stack = self.query_one(StackView)
        stack.compared_to = following(COMPARISONS, stack.compared_to)
        self.notify(f"the stack is compared with {stack.compared_to}", markup=False)
        self.paint()

    def action_all_settings(self) -> None:
        """Show all settings, or only those that differ."""
        settings = self.query_one(Settings)
        settings.whole = not settings.whole
        self.paint()

    # --- polling -------------------------------------------------------------------------------------------------------

    def action_pause(self) -> None:
        """Stop polling, or continue."""
        self.paused = not self.paused
        self.refresh_model()
        self.wake.set()

    def action_rate(self, by: int) -> None:
        """Poll more or less often."""
        nearest = min(range(len(RATES)), key=lambda at: abs(RATES[at] - self.rate))
        self.rate = RATES[min(len(RATES) - 1, max(0, nearest + by))]
        self.notify(f"polling every {self.rate:g} s", markup=False)
        self.wake.set()

    def action_slide(self, by: int) -> None:
        """In a recording, show the poll `by` places further."""
        self.slide_to(self.number + by)

    def slide_to(self, number: int) -> None:
        """In a recording, show this poll and pause."""
        if self.source.length is not None:
            self.paused = True
            self.number = min(self.source.length - 1, max(0, number))
            self.wake.set()

    # --- files ---------------------------------------------------------------------------------------------------------

    def action_write(self) -> None:
        """Save the poll as a bundle."""
        if self.poll is not None:
            self._written("bundle", "hangdoc", codec.encode(self.poll.snapshot))

    def action_report(self) -> None:
        """Save the report as text and as a page."""
        if self.poll is not None:
            from hangdoc.render.html import page  # slow to import: it needs the template engine

            console = record_console(100)
            report(self.poll.diagnosis, console, verbose=True)
            self._written("report", "txt", console.export_text().encode())
            shown = page(self.poll.diagnosis, details(self.poll.diagnosis, self.poll.runs), self.timelines())
            self._written("page", "html", shown.encode())

    def programs(self) -> dict[str, str]:
        """What a person types for the programs of commands, by name: on this host, not where a recording is shown."""
        return typed_programs() if self.source.length is None else {}

    def action_copy(self) -> None:
        """Copy the command of the first finding that has one."""
        findings = self.model.job.findings if self.model is not None else ()
        command = pages.find_command(findings, self.programs())
        if command is None:
            self.notify("no finding has a command to copy", markup=False)
        else:
            self.copy_to_clipboard(command)
            self.notify(f"copied: {command}", markup=False)

    def _written(self, what: str, suffix: str, content: bytes) -> None:
        path = self.folder / time.strftime(f"hangdoc-{what}-%Y%m%d-%H%M%S.{suffix}", time.gmtime())
        try:
            codec.write_aside(path, content)
            self.notify(f"{what} written: {path}", markup=False)
        except (OSError, codec.BundleError) as error:
            self.notify(str(error), severity="error", markup=False)

    def action_help_quit(self) -> None:
        """What Ctrl-C does where no text is selected. Textual only says which key quits."""
        self.exit(return_code=128 + signal.SIGINT)

    # --- signals -------------------------------------------------------------------------------------------------------

    def action_continue_rank(self) -> None:
        """Ask, then send SIGCONT to the selected rank."""
        self._ask(signals.continue_action)

    def action_end_rank(self) -> None:
        """Ask, then send SIGTERM to the selected rank if it is an orphan."""
        self._ask(signals.end_action)

    def _ask(self, what: Callable[[ViewModel], signals.SignalAction | str]) -> None:
        if not self.allow_signals or self.source.length is not None:
            self.notify("signals are off: start hangdoc top with --allow-signals", severity="warning", markup=False)
            return
        action = what(self.model) if self.model is not None else "no rank is selected"
        if isinstance(action, str):
            self.notify(action, markup=False)
            return
        self.push_screen(
            pages.Question(action.question), lambda yes: self.notify(action.do(), markup=False) if yes else None
        )

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The commands of the palette: the action of every key, and what Textual has beside them."""
        titles = {binding.description.capitalize(): binding for binding in keys.BINDINGS}
        yield from (command for command in super().get_system_commands(screen) if command.title not in titles)
        for title, binding in titles.items():
            if binding.action != "command_palette":
                title = f"{title} ({keys.shown(binding)})"
                yield SystemCommand(title, binding.tooltip, partial(self.run_action, binding.action))
