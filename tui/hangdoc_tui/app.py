"""The app: polls in a thread of its own, one immutable message per poll, and views that paint it."""

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console
from rich.text import Text
from textual import events, work
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Input, Static, TabbedContent, TabPane
from textual.worker import get_current_worker

from hangdoc import codec
from hangdoc.render.text import report
from hangdoc_tui import act, pages
from hangdoc_tui.batches import Batches
from hangdoc_tui.head import Strip, job_line
from hangdoc_tui.history import History
from hangdoc_tui.ranks import GROUPS, SORTS, RankTable
from hangdoc_tui.scene import Scene
from hangdoc_tui.source import Poll, Source
from hangdoc_tui.stacks import COMPARISONS, StackView
from hangdoc_tui.tables import Events, Settings, Sockets
from hangdoc_tui.trees import StackTree, WaitTree

BUDGET = 0.03
"""Share of one core that polling may take: dearer polls come less often."""
_RATES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_SMALLEST = (60, 16)
_VIEWS = ("ranks", "stack", "merged", "waits", "batches", "sockets", "settings", "events")
_TITLES = {"stack": "Stack", "merged": "All stacks", "batches": "Batches"}
_HELP = (
    ("1 to 8", "the views"), ("enter", "on a rank: its stack; on the finding: its page"), ("i", "all findings"),
    ("f", "follow the culprit"), ("/", "filter by state, host or any text; escape ends it"), ("s", "sort"),
    ("g", "one row per rank, class or host"), ("[ ]", "the rank before, the next one"), ("j", "the next job"),
    ("n", "native frames"), ("l", "local variables"), ("d", "compare the stack with the last poll, another rank, nothing"),
    ("a", "all settings, or only those that differ"), ("u", "what could not be seen"), ("p", "pause"),
    ("+ -", "poll more often, less often"), (", .", "in a recording: the poll before, the next one"),
    ("w", "write a bundle"), ("r", "write the report"), ("c", "copy what to type next"),
    ("C", "continue a stopped rank (--allow-signals)"), ("K", "end an orphan (--allow-signals)"),
    ("ctrl+p", "all commands"), ("?", "this page"), ("q", "quit"),
)  # fmt: skip


class Polled(Message):
    """A new poll. One that nobody has looked at yet is replaced by it."""

    def __init__(self, poll: Poll) -> None:
        self.poll = poll
        super().__init__()

    def can_replace(self, message: Message) -> bool:
        """Stale polls are dropped."""
        return isinstance(message, Polled)


class Top(App[None]):
    """Watch every rank."""

    CSS_PATH = "top.tcss"
    TITLE = "hangdoc top"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(at), f"go('{name}')", show=False) for at, name in enumerate(_VIEWS, 1)),
        Binding("question_mark", "keys", "keys"), Binding("slash", "filter", "filter"),
        Binding("i", "findings", "findings"), Binding("f", "follow", "follow"), Binding("s", "sort", "sort"),
        Binding("g", "group", "group"), Binding("p", "pause", "pause"), Binding("q", "quit", "quit"),
        Binding("left_square_bracket", "step(-1)", show=False), Binding("right_square_bracket", "step(1)", show=False),
        Binding("plus,equals_sign", "rate(-1)", show=False), Binding("minus", "rate(1)", show=False),
        Binding("comma", "slide(-1)", show=False), Binding("full_stop", "slide(1)", show=False),
        Binding("n", "native", show=False), Binding("l", "locals", show=False), Binding("d", "compare", show=False),
        Binding("a", "all_settings", show=False), Binding("j", "next_job", show=False),
        Binding("u", "unseen", show=False), Binding("w", "write", show=False), Binding("r", "report", show=False),
        Binding("c", "copy", show=False), Binding("C", "continue_rank", show=False),
        Binding("K", "end_rank", show=False), Binding("escape", "leave", show=False),
    ]  # fmt: skip

    def __init__(
        self, source: Source, *, rate: float = 2.0, allow_signals: bool = False, folder: Path | None = None
    ) -> None:
        super().__init__()
        self.source, self.rate, self.allow_signals = source, rate, allow_signals
        self.folder = folder or Path.cwd()
        """Where bundles and reports are written."""
        self.paused = self.following = False
        self.number = 0
        self.poll: Poll | None = None
        self._scene: Scene | None = None
        self._histories: dict[str, History] = {}
        self._job: str | None = None
        self._selected: int | None = None
        self._before: Poll | None = None
        self._wake = threading.Event()
        self._announced: set[str] = set()

    # --- the screen ----------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Header, finding, views, keys."""
        yield Static(id="job")
        yield Static(id="cost")
        yield Strip(id="strip")
        with TabbedContent(initial="pane-ranks", id="views"):
            for at, view in enumerate((RankTable(), StackView(), StackTree(), WaitTree(), Batches(), Sockets(), Settings(),
                                       Events()), 1):  # fmt: skip
                name = _VIEWS[at - 1]
                with TabPane(f"{at} {_TITLES.get(name, name.capitalize())}", id=f"pane-{name}"):
                    yield view
        yield Input(placeholder="filter: words that the row must have", id="filter")
        yield Static("hangdoc top needs a terminal of 60 by 16.", id="small")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Nothing is there yet: say what is looked for, and begin."""
        self.query_one("#filter").display = False
        self.query_one("#job", Static).update(Text(f" looking for ranks of torch.distributed: {self.source.title}"))
        self._measure()
        self._collect()

    def on_unmount(self) -> None:
        """The collector must not wait out its pause."""
        self._wake.set()

    def on_resize(self, event: events.Resize) -> None:
        """Below a certain size nothing can be read."""
        self._measure()

    def _measure(self) -> None:
        self.screen.set_class(self.size.width < _SMALLEST[0] or self.size.height < _SMALLEST[1], "small")

    # --- polling -------------------------------------------------------------------------------------------------------

    @work(thread=True, exclusive=True)
    def _collect(self) -> None:
        """Poll for as long as the app is there, never dearer than the budget."""
        worker = get_current_worker()
        taken = -1
        while not worker.is_cancelled:
            self._wake.clear()
            wanted = taken + 1 if self.source.length is None else self.number
            cost = 0.0
            if (not self.paused or taken < 0 or self.source.length is not None) and wanted != taken:
                try:
                    poll = self.source.poll(wanted)
                except (
                    Exception
                ) as error:  # a broken bundle in a series, a host that changes under us: say it and go on
                    self.call_from_thread(
                        self.notify, f"{type(error).__name__}: {error}", severity="error", markup=False
                    )
                else:
                    self.post_message(Polled(poll))
                    cost = poll.cpu_seconds
                taken = wanted
            if worker.is_cancelled:
                return
            self._wake.wait(max(self.rate, cost / BUDGET))
            if self.source.length is not None and not self.paused:
                self.number = min(self.number + (self.number == taken), self.source.length - 1)

    def on_polled(self, message: Polled) -> None:
        """Take a poll in and paint what is visible."""
        self.poll, self._before = message.poll, self.poll
        self._costs(message.poll)
        jobs = message.poll.diagnosis.jobs
        for job in jobs:
            history = self._histories.setdefault(job.id, History())
            news = history.add(message.poll.at, job)
            if job.verdict == "hung" and any(event.rank is None for event in news) and job.id not in self._announced:
                self._announced.add(job.id)  # once
                self.bell()
                self.notify(job.findings[0].summary if job.findings else job.id, title="the run hangs", severity="error",
                            markup=False)  # fmt: skip
            if job.verdict == "healthy":
                self._announced.discard(job.id)
        if not jobs:
            self._scene = None
            self.query_one("#job", Static).update(Text(f" no rank of torch.distributed yet: {self.source.title}"))
            why = " ".join(message.poll.diagnosis.problems)
            self.query_one(Strip).update(Text(why or "Start a run: its ranks appear here."))
            return
        self._set_scene()

    def _set_scene(self) -> None:
        """The scene of the job that is looked at, out of the last poll."""
        poll = self.poll
        if poll is None or not poll.diagnosis.jobs:
            return
        worst = sorted(
            poll.diagnosis.jobs, key=lambda job: ("hung", "unknown", "waiting", "healthy").index(job.verdict)
        )
        self._job = self._job if any(job.id == self._job for job in worst) else worst[0].id
        at = next(at for at, job in enumerate(poll.diagnosis.jobs) if job.id == self._job)
        job = poll.diagnosis.jobs[at]
        before = (
            next((run for run in self._before.runs if run.id == job.id), None) if self._before is not None else None
        )
        ranks = [view.rank for view in job.ranks]
        if self.following and job.findings and job.findings[0].culprits:
            self._selected = job.findings[0].culprits[0]
        if self._selected not in ranks:
            self._selected = ranks[0] if ranks else None
        self._scene = Scene(poll, job, poll.runs[at], self._selected, self._histories[job.id], before)
        self.query_one("#job", Static).update(job_line(job, len(poll.diagnosis.jobs), at))
        self.query_one(Strip).show(self._scene)
        if self.following:
            self.query_one(RankTable).point_at(self._selected)
        self._paint()

    def _costs(self, poll: Poll) -> None:
        problems = len(poll.diagnosis.problems) + sum(len(job.unseen) for job in poll.diagnosis.jobs)
        parts = [
            f"{self.source.title}, {poll.at.strftime('%Y-%m-%d %H:%M:%S')} UTC",
            f"poll {poll.number + 1}" + (f" of {self.source.length}" if self.source.length is not None else ""),
        ]
        if self.source.length is None:
            every = max(self.rate, poll.cpu_seconds / BUDGET)
            slowed = f" (asked for {self.rate:g} s)" if every > self.rate else ""
            parts.append(f"every {every:.1f} s{slowed}, {poll.cpu_seconds:.2f} s of CPU each")
        parts += ["paused"] * self.paused + ["following the culprit"] * self.following
        parts += [f"{problems} things unseen (u)"] * bool(problems)
        self.query_one("#cost", Static).update(
            Text(" " + " · ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")
        )

    def _paint(self) -> None:
        """The visible view alone; others are painted when they become visible."""
        if self._scene is not None:
            pane = self.query_one(TabbedContent).active_pane
            if pane is not None:
                view: Any = pane.children[0]
                view.show(self._scene)

    # --- what a person does --------------------------------------------------------------------------------------------

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        """Another view is visible."""
        self._paint()
        event.pane.children[0].focus()

    def on_rank_table_chosen(self, event: RankTable.Chosen) -> None:
        """Another rank is selected."""
        self._selected = event.rank
        self._set_scene()
        if event.entered:
            self.action_go("stack")

    def on_strip_opened(self) -> None:
        """The finding's page."""
        self.action_findings()

    def on_input_changed(self, event: Input.Changed) -> None:
        """The filter, letter by letter."""
        self.query_one(RankTable).filter = event.value
        self._paint()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The filter stays; the keys go back to the table."""
        self.query_one(RankTable).focus()

    def action_leave(self) -> None:
        """End the filter."""
        entry = self.query_one("#filter", Input)
        entry.value, entry.display = "", False
        self.query_one(RankTable).focus()

    def action_filter(self) -> None:
        """Let the person type a filter."""
        self.action_go("ranks")
        entry = self.query_one("#filter", Input)
        entry.display = True
        entry.focus()

    def action_go(self, view: str) -> None:
        """Show a view."""
        self.query_one(TabbedContent).active = f"pane-{view}"

    def action_keys(self) -> None:
        """All keys."""
        self.push_screen(pages.help_page(_HELP))

    def action_findings(self) -> None:
        """All findings of the job."""
        if self._scene is not None:
            self.push_screen(pages.finding_page(self._scene.job.findings))

    def action_unseen(self) -> None:
        """What could not be seen."""
        if self.poll is not None:
            ranks = (f"rank {one.rank}: {one.why}" for job in self.poll.diagnosis.jobs for one in job.unseen)
            self.push_screen(pages.unseen_page(self.poll.diagnosis.problems, ranks))

    def action_sort(self) -> None:
        """By the next column."""
        table = self.query_one(RankTable)
        table.sorted_by = _following(list(SORTS), table.sorted_by)
        self.notify(f"sorted by {table.sorted_by}")
        self._paint()

    def action_group(self) -> None:
        """By class, by host, or not."""
        table = self.query_one(RankTable)
        table.grouped_by = _following(list(GROUPS), table.grouped_by)
        self.notify(f"one row per {table.grouped_by.removesuffix('es' if table.grouped_by == 'classes' else 's')}")
        self._paint()

    def action_step(self, by: int) -> None:
        """The next rank."""
        if self._scene is not None and self._selected is not None:
            ranks = [view.rank for view in self._scene.job.ranks]
            self._selected = ranks[(ranks.index(self._selected) + by) % len(ranks)]
            self.query_one(RankTable).point_at(self._selected)
            self._set_scene()

    def action_follow(self) -> None:
        """Keep the culprit selected."""
        self.following = not self.following
        self._again()

    def action_pause(self) -> None:
        """Stop polling, or go on."""
        self.paused = not self.paused
        self._again()
        self._wake.set()

    def action_rate(self, by: int) -> None:
        """Poll more or less often."""
        nearest = min(range(len(_RATES)), key=lambda at: abs(_RATES[at] - self.rate))
        self.rate = _RATES[min(len(_RATES) - 1, max(0, nearest + by))]
        self.notify(f"polling every {self.rate:g} s")
        self._wake.set()

    def action_slide(self, by: int) -> None:
        """In a recording: another moment."""
        if self.source.length is not None:
            self.paused = True
            self.number = min(self.source.length - 1, max(0, self.number + by))
            self._wake.set()

    def action_native(self) -> None:
        """With C++ frames, where there are some."""
        stack, tree = self.query_one(StackView), self.query_one(StackTree)
        stack.native = tree.native = not stack.native
        self._paint()

    def action_locals(self) -> None:
        """With variables, or without."""
        stack = self.query_one(StackView)
        stack.locals = not stack.locals
        self._paint()

    def action_compare(self) -> None:
        """The stack, with another."""
        stack = self.query_one(StackView)
        stack.compared_to = _following(list(COMPARISONS), stack.compared_to)
        self.notify(f"the stack is compared with {stack.compared_to}")
        self._paint()

    def action_all_settings(self) -> None:
        """Also those that all ranks have alike."""
        settings = self.query_one(Settings)
        settings.whole = not settings.whole
        self._paint()

    def action_next_job(self) -> None:
        """Look at the next job."""
        if self.poll is not None and self.poll.diagnosis.jobs:
            self._job = _following([job.id for job in self.poll.diagnosis.jobs], self._job)
            self._set_scene()

    def action_write(self) -> None:
        """Keep the poll as a bundle."""
        if self.poll is not None:
            self._written("bundle", "hangdoc", codec.encode(self.poll.snapshot))

    def action_report(self) -> None:
        """Keep the report as a text."""
        if self.poll is not None:
            console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
            report(self.poll.diagnosis, console)
            self._written("report", "txt", console.export_text().encode())

    def action_copy(self) -> None:
        """What to type next."""
        command = next((c for f in (self._scene.job.findings if self._scene else ()) for c in f.commands), None)
        if command is None:
            self.notify("there is nothing to type")
        else:
            self.copy_to_clipboard(command)
            self.notify(f"copied: {command}", markup=False)

    def action_continue_rank(self) -> None:
        """Send SIGCONT to the selected rank, after a question."""
        self._ask(act.continuing)

    def action_end_rank(self) -> None:
        """Send SIGTERM to the selected rank, an orphan, after a question."""
        self._ask(act.ending)

    def _ask(self, what: Any) -> None:
        if not self.allow_signals or self.source.length is not None:
            self.notify("signals are off: start hangdoc top with --allow-signals", severity="warning")
            return
        deed = what(self._scene) if self._scene is not None else "there is no rank"
        if isinstance(deed, str):
            self.notify(deed, markup=False)
            return
        self.push_screen(
            pages.Question(deed.question), lambda yes: self.notify(deed.do(), markup=False) if yes else None
        )

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The command palette: every key's action by name."""
        yield from super().get_system_commands(screen)
        for key, what in _HELP:
            yield SystemCommand(what.capitalize(), f"key {key}", lambda key=key: self.simulate_key(key.split()[0]))

    def _written(self, what: str, suffix: str, content: bytes) -> None:
        path = self.folder / time.strftime(f"hangdoc-{what}-%Y%m%d-%H%M%S.{suffix}", time.gmtime())
        try:
            codec.write_aside(path, content)
            self.notify(f"{what} written: {path}", markup=False)
        except OSError as error:
            self.notify(f"cannot write {path}: {error}", severity="error", markup=False)

    def _again(self) -> None:
        """Paint header and view for what has changed about the looking."""
        if self.poll is not None:
            self._costs(self.poll)
            self._set_scene()


def _following(values: list[str], value: str | None) -> str:
    return values[(values.index(value) + 1) % len(values)] if value in values else values[0]
