"""The app: a thread that polls, one immutable message per poll, and views that draw it."""

import datetime
import gc
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Static, TabbedContent, TabPane

from hangdoc.diagnosis import Job
from hangdoc.observe.look.polling import cpu_seconds
from hangdoc.phrases import duration
from hangdoc.render import words
from hangdoc.timeline import Timeline
from hangdoc_tui.actions import Actions
from hangdoc_tui.batches import Batches
from hangdoc_tui.cards import CardTable, has_cards
from hangdoc_tui.cells import flow
from hangdoc_tui.filter_line import FilterLine
from hangdoc_tui.head import TABS_WIDTH, Slider, Strip, finding_line, job_line, tab_label
from hangdoc_tui.history import History
from hangdoc_tui.keys import VIEWS
from hangdoc_tui.pages import Page
from hangdoc_tui.ranks import RanksView, RankTable
from hangdoc_tui.source import Poll, Source
from hangdoc_tui.stacks import StackView
from hangdoc_tui.tables import Events, Settings, Sockets
from hangdoc_tui.trees import StackTree
from hangdoc_tui.view_model import RankChosen, ViewModel
from hangdoc_tui.waits import WaitTable

BUDGET, BUDGET_OF_HOSTS = 0.05, 0.2
"""Share of one core that polling may use, on a host that trains and where the replies of many hosts are put together. More
expensive polls come less often."""
_BURST = 1.0
"""Seconds of CPU that polls may use beyond that share after they have used less."""
SLOWEST = 15.0
"""Seconds between polls at most, whatever they cost."""
_SHORTEST_PAUSE = 0.05
"""Seconds between two polls at least."""
_SMALLEST = (60, 16)
_WIDE = 160
"""Columns in which almost every finding fits into two lines."""
_SWITCH_SECONDS = 0.0005
"""How long the polling thread may hold the GIL while a key waits for its answer on the screen."""
_AGE_SECONDS = 0.5
"""How often the age of the screen is looked at."""
_NEVER = 1_000_000_000
_COLLECTED_POLLS = 60
"""Polls between two full garbage collections. Otherwise they could run at any key."""
_WIDGETS = (RanksView, StackView, StackTree, WaitTable, Batches, Sockets, Settings, Events, CardTable)
_WORST_FIRST = ("hung", "unknown", "waiting", "healthy")


class Polled(Message):
    """A new poll, which began `took` seconds ago. It replaces one that has not been handled yet."""

    def __init__(self, poll: Poll, took: float = 0.0) -> None:
        self.poll, self.took = poll, took
        age = (datetime.datetime.now(datetime.timezone.utc) - poll.at).total_seconds()
        self.observed = time.monotonic() - min(max(0.0, age), took)
        """When it was taken, on the monotonic clock. The clock of another host may be wrong: not before the poll began."""
        super().__init__()

    def can_replace(self, message: Message) -> bool:
        """Drop older polls."""
        return isinstance(message, Polled)


class Confirmed(Message):
    """What the poll on the screen has shown of the ranks is still so. `at` is when that was asked, on the monotonic clock."""

    def __init__(self, at: float) -> None:
        self.at = at
        super().__init__()


class _Views(TabbedContent):
    """The views. Only a visible one gets the focus."""

    def _on_tab_pane_focused(self, event: TabPane.Focused) -> None:
        """Do not show a view because it got the focus: by now, a key may have chosen another one."""
        event.prevent_default()
        event.stop()


class Top(Actions):
    """The app `hangdoc top`."""

    CSS_PATH = Path(__file__).with_name("top.tcss")
    TITLE = "hangdoc top"

    def __init__(
        self,
        source: Source,
        *,
        rate: float = 1.0,
        budget: float = BUDGET,
        run_option: str = "--pid PID",
        allow_signals: bool = False,
        folder: Path | None = None,
    ) -> None:
        """`budget`: share of one core for polls. `run_option`: the option that limits polls to one run."""
        super().__init__(source, rate=rate, allow_signals=allow_signals, folder=folder)
        self._budget, self._run_option = budget, run_option
        self._before: Poll | None = None
        self._histories: dict[str, History] = {}
        self._announced: set[str] = set()
        self._cards_shown = False
        self._credit, self._credited = _BURST, time.monotonic()
        """Seconds of CPU that polls may use, and since when."""
        self._saving = 0.0
        """Seconds between two polls at least, because of what they have used."""
        self._ended = False
        self._observed: float | None = None
        """When it was last seen that the screen shows the present, on the monotonic clock: when its poll was taken, or later."""
        self._took = 0.0
        """Seconds that this poll took."""
        self._glances, self._checks_between = 0, False
        """How often that was seen since the last poll, and whether it was before."""
        self._problems_since: tuple[str, ...] | None = None
        """Of the last poll, if it saw no rank any more: the screen shows an earlier one."""
        self._polling: float | None = None
        """When the poll began that is under way."""

    # --- the screen ----------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Header, finding, views, keys."""
        yield Static(id="job", markup=False)
        yield Static(id="cost", markup=False)
        if self._is_series():
            yield Slider()
        yield Strip()
        with _Views(initial="pane-ranks", id="views"):
            for at, (name, widget) in enumerate(zip(VIEWS, _WIDGETS, strict=True), 1):
                with TabPane(f"{at} {name.capitalize()}", id=f"pane-{name}"):
                    yield widget()
        yield Static("filter:", id="filter-label", markup=False)
        yield FilterLine()
        yield Static("hangdoc top needs a terminal of at least 60 columns and 16 lines.", id="small", markup=False)
        yield Static(id="keys", markup=False)

    def _is_series(self) -> bool:
        return self.source.length is not None and self.source.length > 1

    def on_mount(self) -> None:
        """Show what is searched for, and start polling."""
        self.query_one(FilterLine).show(None)
        self.query_one(TabbedContent).hide_tab("pane-cards")  # until there are any
        self.query_one("#job", Static).update(Text(f" looking for torch.distributed ranks: {self.source.title}"))
        self.query_one(RankTable).focus()
        self._measure()
        if (
            self.console.color_system == "standard" and not self.is_headless
        ):  # with 16 colours: the terminal's own, not the nearest to ours
            self.theme = "ansi-dark"
        sys.setswitchinterval(_SWITCH_SECONDS)
        gc.set_threshold(*gc.get_threshold()[:2], _NEVER)  # a full collection takes 0.1 s with 1,024 ranks: on_polled
        self.animation_level = "none"  # over ssh, animation only delays the screen
        if self.source.length is None:
            self.set_interval(_AGE_SECONDS, self._mark_age)
        # No worker of Textual, for whose end the app would wait: a poll of hosts that do not reply takes long.
        threading.Thread(target=self._collect, name="polls", daemon=True).start()

    def on_unmount(self) -> None:
        """End the polling thread after its poll, also during its pause."""
        self._ended = True  # before `wake`: the thread may have just cleared it
        self.wake.set()

    def on_resize(self, event: events.Resize) -> None:
        """Show a message instead of the views if the terminal is too small."""
        self._measure()
        self._draw_job()
        self.query_one("#keys", Static).update(self.keys_line())

    def _measure(self) -> None:
        self._label_tabs()
        self.screen.set_class(self.size.width < _SMALLEST[0] or self.size.height < _SMALLEST[1], "small")
        self.screen.set_class(self.size.width >= _WIDE, "wide")
        self.screen.set_class(self.size.width < TABS_WIDTH + len(VIEWS), "tight")

    def _label_tabs(self) -> None:
        views = self.query_one(TabbedContent)
        for at, name in enumerate(VIEWS, 1):
            pane = f"pane-{name}"
            views.get_tab(pane).label = tab_label(at, name, active=views.active == pane, width=self.size.width)

    def _draw_job(self) -> None:
        if self.model is None:
            return
        jobs = self.model.poll.diagnosis.jobs
        at = [job.id for job in jobs].index(self.model.job.id)
        line = job_line(
            self.model.job, self.model.name, jobs, at, self.size.width, observed=self._find_age(),
            seen_last=self.model.poll.at if self.model.is_over else None,
        )  # fmt: skip
        self.query_one("#job", Static).update(line, layout=False)

    def _find_age(self) -> float | None:
        """Seconds since the observation on the screen, if that is more than two intervals: then it is not the present."""
        if self._observed is None or self.paused or self.source.length is not None:
            return None
        age = time.monotonic() - self._observed
        return age if age > 2 * self.rate else None

    def _mark_age(self) -> None:
        """Show how old the screen is, and dim it if it is old."""
        if not self.is_running:  # as in `on_polled`
            return
        age = self._find_age()
        if age is not None or self.screen_stack[0].has_class("old"):
            self.screen_stack[0].set_class(age is not None, "old")
            self._draw_job()
            if self.poll is not None:
                self._show_costs(self.poll)

    # --- polling -------------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Poll until the app ends, within the CPU budget."""
        taken = -1
        while True:
            self.wake.clear()
            if self._ended:
                return
            began = time.monotonic()
            live = self.source.length is None
            wanted = taken + 1 if live else self.number
            if wanted != taken and not (live and self.paused and taken >= 0):
                self._polling = began
                try:
                    poll = self.source.poll(wanted)
                except (
                    Exception
                ) as error:  # a bundle was deleted, a host changed during the poll: report it and continue
                    if self._ended:
                        return
                    self.call_from_thread(
                        self.notify, f"{type(error).__name__}: {error}", severity="error", markup=False
                    )
                else:
                    self.post_message(Polled(poll, time.monotonic() - began))
                    if taken >= 0:  # the first one also imports modules
                        self._saving = self._save(poll.cpu_seconds)
                taken, self._polling = wanted, None
            if live:
                self._rest(began + self._every())
            else:  # a recorded poll takes almost no time, and must stay on the screen for the whole interval
                self.wake.wait(self._every())
            if self.source.length is not None and not self.paused and self.number == taken:
                self.number = min(taken + 1, self.source.length - 1)

    def _rest(self, until: float) -> None:
        """Wait for the time of the next poll. If polls come less often than requested, ask between them whether the screen
        is still true. Poll at once when it is not."""
        while not self.paused and until - time.monotonic() > self.rate:
            if self.wake.wait(self.rate):
                return
            at, used = time.monotonic(), cpu_seconds()
            confirmed = self.source.confirms()
            self._credit -= cpu_seconds() - used
            if confirmed is False:
                return
            if confirmed:
                self.post_message(Confirmed(at))
        self.wake.wait(max(_SHORTEST_PAUSE, until - time.monotonic()))

    def _every(self) -> float:
        """Seconds from the beginning of a poll to that of the next one."""
        return max(self.rate, self._saving)

    def _save(self, cost: float) -> float:
        """How long to save after a poll that took so many seconds of CPU. A costly one, as when ranks have just come to rest and
        their stacks are read, may be followed by others at once."""
        now = time.monotonic()
        earned = min(_BURST, self._credit + (now - self._credited) * self._budget)
        self._credit, self._credited = max(earned - cost, -SLOWEST * self._budget), now
        return max(0.0, -self._credit / self._budget)

    def on_confirmed(self, message: Confirmed) -> None:
        """What the screen shows of the run is still so."""
        self._observed = message.at
        self._glances += 1

    def on_polled(self, message: Polled) -> None:
        """Add a poll to the histories, and draw the visible view. If no rank is left, the ranks that were seen last stay, with
        their age, unless the launcher hangs."""
        if not self.is_running:  # it ends, and its widgets are gone
            return
        left = any(job.ranks or job.verdict == "hung" for job in message.poll.diagnosis.jobs)
        if not left and self.model is not None and self.model.job.ranks and self.source.length is None:
            self._problems_since = message.poll.diagnosis.problems
            self.refresh_model()
            return
        self._problems_since = None
        self.poll, self._before = message.poll, self.poll
        self._observed, self._took = message.observed, message.took
        self._checks_between, self._glances = self._glances > 0, 0
        if message.poll.number % _COLLECTED_POLLS == _COLLECTED_POLLS - 1:
            gc.collect()
        hanging: list[Job] = []
        for job in message.poll.diagnosis.jobs:
            history = self._histories.setdefault(job.id, History())
            history.add(message.poll.at, job, message.poll.pasts.get(job.id))
            if job.verdict == "hung" and job.id not in self._announced:
                self._announced.add(job.id)  # once
                hanging.append(job)
            elif job.verdict == "healthy":
                self._announced.discard(job.id)
        self.refresh_model()
        if self.source.length is None:
            self._announce(hanging, message.poll.diagnosis.jobs)

    def _announce(self, hanging: Iterable[Job], jobs: Sequence[Job]) -> None:
        """Say which jobs hang since the last poll."""
        for job in hanging:
            self.bell()
            shown = self.model is not None and self.model.job.id == job.id
            name = words.job_names(jobs)[job.id]
            text = "The run hangs. Press i to see why." if shown else f"{name} hangs. Press j to show it."
            self.notify(text, severity="error", markup=False)

    def refresh_model(self) -> None:
        """Build the view model from the last poll, and draw header and view."""
        poll = self.poll
        if poll is None:
            return
        self._show_costs(poll)
        jobs = poll.diagnosis.jobs
        if not jobs:
            self.model = None
            self.query_one("#job", Static).update(
                Text(f" no torch.distributed rank found yet: {self.source.title}"), layout=False
            )
            why = " ".join(poll.diagnosis.problems) or poll.no_rank
            self.query_one(Strip).show(Text(why or "Start a run: its ranks appear here."))
            return
        if self.job_id not in {job.id for job in jobs}:
            self.job_id = min(jobs, key=lambda job: _WORST_FIRST.index(job.verdict)).id
        at = next(at for at, job in enumerate(jobs) if job.id == self.job_id)
        job, ranks = jobs[at], [view.rank for view in jobs[at].ranks]
        culprits = [rank for finding in job.findings[:1] for rank in finding.culprits if rank in ranks]
        wanted = self.following or not self.selected_by_hand
        pointed = (wanted and bool(culprits)) or self.selected not in ranks
        if pointed:  # follow the culprit
            self.selected = next(iter(culprits or ranks), None)
        before = self._before.runs if self._before is not None else ()
        earlier = next((run for run in before if run.id == job.id), None)
        name = words.job_names(jobs)[job.id]
        history = self._histories[job.id]
        filled, over = history.fill_counts(job), self._problems_since is not None
        self.model = ViewModel(poll, filled, poll.runs[at], self.selected, history, name, earlier, is_over=over)
        self._draw_job()
        self.query_one(Strip).show(finding_line(self.model, self._problems_since or ()))
        if not self._cards_shown and has_cards(self.model):
            self._cards_shown = True
            self.query_one(TabbedContent).show_tab("pane-cards")
        self.paint()
        if pointed:
            self.call_after_refresh(self.query_one(RankTable).point_at, self.selected)

    def timelines(self) -> dict[str, Timeline]:
        """What each rank did at each poll, by job id."""
        return {job: history.recorder.timeline() for job, history in self._histories.items()}

    def _show_costs(self, poll: Poll) -> None:
        problems = len(poll.diagnosis.problems) + sum(len(job.unseen) for job in poll.diagnosis.jobs)
        parts = ["paused"] * self.paused + ["following the culprit"] * self.following
        parts += [f"{problems} not observed (u)"] * bool(problems)
        if self._is_series():
            self.query_one(Slider).show(poll.number, self.source.length or 1)
        late: list[str] = []
        forms = ["%Y-%m-%d %H:%M:%S"]
        if self.source.length is None:
            parts += [self._describe_interval(poll), f"{poll.cpu_seconds:.2f} s of CPU each"]
            if self._find_age() is not None:
                began = self._polling
                taking = time.monotonic() - began if began is not None else 0.0
                if taking > min(self._took, 2 * self.rate):
                    late = [f"the next poll has taken {duration(taking)} so far"]
                elif self._took > self.rate:
                    late = [f"this poll took {duration(self._took)}"]
            forms.append("%H:%M:%S")  # the present needs no date where there is no room for it
        for form in forms:
            line = [*late, f"{self.source.title} at {poll.at.strftime(form)} UTC", *parts]
            (shown, *more) = flow([Text(part, "dim") for part in line], self.size.width - 1, " · ")
            if not more:
                break
        self.query_one("#cost", Static).update(Text(" ").join((Text(), shown)), layout=False)

    def _describe_interval(self, poll: Poll) -> str:
        """How often it polls; if that is less often than requested, also what a person can do about it."""
        every = f"every {self._every():.1f} s"
        if self._every() <= self.rate:
            return every
        between = ", with short checks between" if self._checks_between else ""
        remedy = f"; {self._run_option} polls only one run" if len(poll.diagnosis.jobs) > 1 else ""
        return f"{every}, not {self.rate:g} s{between}{remedy}"

    def paint(self) -> None:
        """Draw the visible view. Others are drawn when they become visible."""
        pane = self.query_one(TabbedContent).active_pane
        if self.model is not None and pane is not None:
            view: Any = pane.children[0]
            view.show(self.model)
        for screen in self.screen_stack:
            if isinstance(screen, Page):
                screen.renew()

    # --- messages of the widgets ---------------------------------------------------------------------------------------

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        """Another view is visible."""
        self._label_tabs()
        self.paint()
        line, table = self.query_one(FilterLine), self.visible_table()
        if not line.is_editing(table):  # its key may have been pressed right after that of the view
            line.show(table)
            event.pane.screen.set_focus(table if table is not None else event.pane.children[0])

    def on_rank_chosen(self, event: RankChosen) -> None:
        """Another rank is selected."""
        self.selected, self.selected_by_hand = event.rank, True
        if self.model is not None:
            self.model = replace(self.model, selected=event.rank)
            self.query_one(RankTable).point_at(event.rank)
            self.query_one(RanksView).show_selected(self.model)
        if event.entered:
            self.action_go("stack")

    def on_strip_opened(self) -> None:
        """Open the page of the findings."""
        self.action_findings()

    def on_slider_moved(self, event: Slider.Moved) -> None:
        """Show another poll of a recording."""
        self.slide_to(event.number)

    def on_filter_line_edited(self) -> None:
        """Show the rows that the filter leaves."""
        self.paint()
