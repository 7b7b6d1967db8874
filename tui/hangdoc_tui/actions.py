"""What a person can do in the app: the keys, the command palette, and what they change."""

import io
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.content import Content
from textual.markup import escape
from textual.screen import Screen
from textual.widgets import Input, TabbedContent

from hangdoc import codec
from hangdoc.diagnose.detail import details
from hangdoc.render.text import report
from hangdoc.timeline import Timeline
from hangdoc_tui import act, keys, pages
from hangdoc_tui.ranks import GROUPS, SORTS, RankTable
from hangdoc_tui.scene import Scene
from hangdoc_tui.source import Poll, Source
from hangdoc_tui.stacks import COMPARISONS, StackView
from hangdoc_tui.tables import Settings
from hangdoc_tui.trees import StackTree

RATES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


def following(values: Iterable[str], value: str | None) -> str:
    """The next of some values, round and round."""
    known = list(values)
    return known[(known.index(value) + 1) % len(known)] if value in known else known[0]


class Actions(App[None]):
    """The app's state and every key's action. What happens by itself is `Top`'s."""

    BINDINGS: ClassVar[list[BindingType]] = list(keys.BINDINGS)

    def __init__(self, source: Source, *, rate: float, allow_signals: bool, folder: Path | None) -> None:
        # Without colours the terminal's own pair is left: Textual's grey for red is too dark to be read.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.source, self.rate, self.allow_signals = source, rate, allow_signals
        self.folder = folder or Path.cwd()
        """Where bundles and reports are written."""
        self.paused = self.following = False
        self.number = 0
        """In a recording, the poll that is wanted."""
        self.poll: Poll | None = None
        self.scene: Scene | None = None
        self.job_id: str | None = None
        self.selected: int | None = None
        self.selected_by_hand = False
        """Whether a person chose the selected rank; else it is the culprit, once there is one."""
        self.wake = threading.Event()
        """Set to have the collector look at once."""

    def keys_line(self) -> Content:
        """The keys that a newcomer needs; each can be clicked. (Textual's Footer is laid out anew at every change of focus, which
        costs a key its picture: docs/performance.md.)"""
        words = (f"[@click=app.{one.action}][b $footer-key-foreground]{escape(keys.shown(one))}[/] {one.description}[/]"
                 for one in keys.footer())  # fmt: skip
        return Content.from_markup(" " + "  ".join(words))

    def refresh_scene(self) -> None:
        """Paint header and view for what has changed about the looking."""
        raise NotImplementedError

    def paint(self) -> None:
        """Paint the visible view."""
        raise NotImplementedError

    def timelines(self) -> dict[str, Timeline]:
        """What each rank did at each poll, by job id."""
        raise NotImplementedError

    # --- where to look -------------------------------------------------------------------------------------------------

    def action_go(self, view: str) -> None:
        """Show a view."""
        self.query_one(TabbedContent).active = f"pane-{view}"

    def action_step(self, by: int) -> None:
        """The next rank."""
        if self.scene is not None and self.selected is not None:
            ranks = [view.rank for view in self.scene.job.ranks]
            self.selected = ranks[(ranks.index(self.selected) + by) % len(ranks)]
            self.selected_by_hand = True
            self.query_one(RankTable).point_at(self.selected)
            self.refresh_scene()

    def action_follow(self) -> None:
        """Keep the culprit selected."""
        self.following = not self.following
        self.refresh_scene()

    def action_next_job(self) -> None:
        """Look at the next job."""
        if self.poll is not None and self.poll.diagnosis.jobs:
            self.job_id = following([job.id for job in self.poll.diagnosis.jobs], self.job_id)
            self.refresh_scene()

    def action_keys(self) -> None:
        """All keys."""
        self.push_screen(pages.help_page())

    def action_findings(self) -> None:
        """All findings of the job."""
        if self.scene is not None:
            self.push_screen(pages.finding_page(self.scene.job.findings))

    def action_unseen(self) -> None:
        """What could not be seen."""
        if self.poll is not None:
            ranks = (f"rank {one.rank}: {one.why}" for job in self.poll.diagnosis.jobs for one in job.unseen)
            self.push_screen(pages.unseen_page(self.poll.diagnosis.problems, ranks))

    # --- how it is shown -----------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Let the person type a filter."""
        self.action_go("ranks")
        entry = self.query_one("#filter", Input)
        entry.display = True
        entry.focus()

    def action_leave(self) -> None:
        """End the filter, else take back a zoom."""
        entry, table = self.query_one("#filter", Input), self.query_one(RankTable)
        if entry.display:
            entry.value, entry.display = "", False
            table.focus()
        elif table.zoom_out():
            self.paint()

    def action_zoom(self) -> None:
        """Show the ranks of one row."""
        self.action_go("ranks")
        table = self.query_one(RankTable)
        if table.zoom():
            self.paint()
        else:
            self.notify("this row is a single rank: press g for rows of several ranks")

    def action_sort(self) -> None:
        """By the next column."""
        table = self.query_one(RankTable)
        table.sorted_by = following(SORTS, table.sorted_by)
        self.paint()
        table.point_at(self.selected)

    def action_group(self) -> None:
        """By class, by host, or not."""
        table = self.query_one(RankTable)
        table.chosen_group = following(GROUPS, table.grouped_by)
        self.paint()
        table.point_at(self.selected)

    def action_native(self) -> None:
        """With C++ frames, where there are some."""
        stack, tree = self.query_one(StackView), self.query_one(StackTree)
        stack.native = tree.native = not stack.native
        self.paint()

    def action_locals(self) -> None:
        """With variables, or without."""
        stack = self.query_one(StackView)
        stack.locals = not stack.locals
        self.paint()

    def action_compare(self) -> None:
        """The stack, with another."""
        stack = self.query_one(StackView)
        stack.compared_to = following(COMPARISONS, stack.compared_to)
        self.notify(f"the stack is compared with {stack.compared_to}")
        self.paint()

    def action_all_settings(self) -> None:
        """Also those that all ranks have alike."""
        settings = self.query_one(Settings)
        settings.whole = not settings.whole
        self.paint()

    # --- when to look --------------------------------------------------------------------------------------------------

    def action_pause(self) -> None:
        """Stop polling, or go on."""
        self.paused = not self.paused
        self.refresh_scene()
        self.wake.set()

    def action_rate(self, by: int) -> None:
        """Poll more or less often."""
        nearest = min(range(len(RATES)), key=lambda at: abs(RATES[at] - self.rate))
        self.rate = RATES[min(len(RATES) - 1, max(0, nearest + by))]
        self.notify(f"polling every {self.rate:g} s")
        self.wake.set()

    def action_slide(self, by: int) -> None:
        """In a recording: another moment."""
        self.slide_to(self.number + by)

    def slide_to(self, number: int) -> None:
        """In a recording: this poll, and stay there."""
        if self.source.length is not None:
            self.paused = True
            self.number = min(self.source.length - 1, max(0, number))
            self.wake.set()

    # --- what to keep --------------------------------------------------------------------------------------------------

    def action_write(self) -> None:
        """Keep the poll as a bundle."""
        if self.poll is not None:
            self._written("bundle", "hangdoc", codec.encode(self.poll.snapshot))

    def action_report(self) -> None:
        """Keep the report as a text and as a page."""
        if self.poll is not None:
            from hangdoc.render.html import page  # the template engine is needed for nothing else

            console = Console(width=100, record=True, file=io.StringIO())
            report(self.poll.diagnosis, console, verbose=True)
            self._written("report", "txt", console.export_text().encode())
            shown = page(self.poll.diagnosis, details(self.poll.diagnosis, self.poll.runs), self.timelines())
            self._written("page", "html", shown.encode())

    def action_copy(self) -> None:
        """What to type next."""
        findings = self.scene.job.findings if self.scene is not None else ()
        command = next((command for finding in findings for command in finding.commands), None)
        if command is None:
            self.notify("no finding has a command to copy")
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

    # --- what to do to a process ---------------------------------------------------------------------------------------

    def action_continue_rank(self) -> None:
        """Send SIGCONT to the selected rank, after a question."""
        self._ask(act.continuing)

    def action_end_rank(self) -> None:
        """Send SIGTERM to the selected rank, an orphan, after a question."""
        self._ask(act.ending)

    def _ask(self, what: Callable[[Scene], act.SignalAction | str]) -> None:
        if not self.allow_signals or self.source.length is not None:
            self.notify("signals are off: start hangdoc top with --allow-signals", severity="warning")
            return
        deed = what(self.scene) if self.scene is not None else "there is no rank"
        if isinstance(deed, str):
            self.notify(deed, markup=False)
            return
        self.push_screen(
            pages.Question(deed.question), lambda yes: self.notify(deed.do(), markup=False) if yes else None
        )

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The command palette: every key's action by what it does."""
        yield from super().get_system_commands(screen)
        for binding in keys.BINDINGS:
            if binding.action not in ("quit", "command_palette"):  # Textual has these itself
                title = f"{binding.description.capitalize()} ({keys.shown(binding)})"
                yield SystemCommand(title, binding.tooltip, partial(self.run_action, binding.action))
