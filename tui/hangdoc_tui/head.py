"""The lines at the top: the job and its verdict, and the first finding in one sentence."""

import datetime
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget

from hangdoc.diagnosis import Job
from hangdoc.phrases import amount, duration
from hangdoc.render import words
from hangdoc_tui.keys import VIEWS
from hangdoc_tui.view_model import ViewModel

_MORE = " … (i)"
_SEPARATOR = " · "


def job_line(
    job: Job,
    name: str,
    jobs: Sequence[Job],
    at: int,
    width: int,
    *,
    observed: float | None = None,
    seen_last: datetime.datetime | None = None,
) -> Text:
    """The verdict and for how long, the name of the job, and how many of its ranks have each label. What `width` has no room for
    is left out from the end of the name, but for the parts that tell it from the other jobs; then the line ends in an ellipsis.
    `observed`: how many seconds ago, if that is not the present; `seen_last`: when, if none of its ranks is left."""
    since = f" for {duration(job.hung_for_seconds)}" if job.hung_for_seconds is not None else ""
    tally = {label: sum(view.label == label for view in job.ranks) for label in ("computing", "blocked", "dead", None)}
    hung = sum(other.verdict == "hung" for other in jobs if other.id != job.id)
    when = f"observed {duration(observed)} ago  " if observed is not None else ""
    if seen_last is not None:
        when = f"seen last at {seen_last:%H:%M:%S}  "
    head = Text.assemble(
        (f" {job.verdict.upper()}{since} ", f"reverse {words.VERDICT_STYLE[job.verdict]}"),
        "  ",
        (when, "bold yellow"),
        no_wrap=True, overflow="ellipsis",
    )  # fmt: skip
    counts = Text("  ").join(
        Text(*part)
        for part in (
            *((f"{words.LABEL_GLYPH[label]} {count:,} {label or 'unknown'}", words.LABEL_STYLE[label])
              for label, count in tally.items() if count),
            *([(f"job {at + 1} of {len(jobs)} (j)", "dim")] if len(jobs) > 1 else []),
            *([(f"{amount(hung, 'other')} {'hang' if hung > 1 else 'hangs'}", "bold red")] if hung else []),
        )
    )  # fmt: skip
    shown, *more = _put_telling_parts_first(name, words.job_names(jobs).values())
    room = width - head.cell_len - 2 - counts.cell_len
    for part in more:
        if cell_len(f"{shown}{_SEPARATOR}{part}") > room:
            break
        shown += f"{_SEPARATOR}{part}"
    else:
        backend = f"{_SEPARATOR}{words.clean(job.backend)}" if job.backend else ""
        fits = cell_len(shown + backend) <= room
        return head.append(shown, "bold").append(backend if fits else "", "dim").append("  ").append_text(counts)
    return head.append(shown, "bold").append("  ").append_text(counts)


def _put_telling_parts_first(name: str, names: Iterable[str]) -> list[str]:
    """The parts of a job's name: its first one with those that other jobs of the same first part do not have, then the others."""
    first, *more = name.split(_SEPARATOR)
    alike = [set(parts[1:]) for each in names if (parts := each.split(_SEPARATOR))[0] == first and each != name]
    telling = [part for part in more if any(part not in other for other in alike)]
    return [_SEPARATOR.join([first, *telling]), *(part for part in more if part not in telling)]


TABS_WIDTH = sum(len(f"{number} {name}") + 1 for number, name in enumerate(VIEWS, 1))
"""Of the tabs of all views with their names, and a blank after each."""


def tab_label(at: int, name: str, *, active: bool, width: int) -> str:
    """The label of a view's tab, by its key: without the name where the tabs of all views with their names do not fit."""
    return f"{at} {name.capitalize()}" if active or width >= TABS_WIDTH else str(at)


def finding_line(model: ViewModel, problems: Iterable[str] = ()) -> Text:
    """The first finding; if there is none, what that means. If the run is over, `problems` of the last poll may say why."""
    if model.is_over:
        why = " ".join(map(words.clean, problems)) or "No rank is left."
        return Text(f"{why} The screen shows what was seen last: all ages count from {model.moment}.")
    finding = model.leading
    if finding is None:
        unseen = (*(rank.why for rank in model.job.unseen), *model.poll.diagnosis.problems)
        if model.job.verdict == "unknown" and unseen:
            return Text(f"hangdoc could not observe enough: {words.clean(unseen[0])} (u)")
        return Text(words.without_finding(model.job), style="dim")
    more = len(model.job.findings) - 1
    return Text.assemble(
        (f" {finding.severity} ", f"reverse {words.SEVERITY_STYLE[finding.severity]}"),
        " ",
        (f"{finding.code} {finding.name} ", "bold"),
        words.clean(finding.summary),
        ("  " + ", ".join(filter(None, (words.score(finding), f"and {more} more" if more else ""))), "dim"),
    )


class Strip(Widget, can_focus=True):
    """The first finding. Enter or a click opens its page.

    Its height depends only on the width of the terminal (top.tcss): the table below must not jump whenever a sentence gets
    longer. A sentence that does not fit ends in an ellipsis.
    """

    class Opened(Message):
        """A person asked for the page."""

    def __init__(self) -> None:
        super().__init__(id="strip")
        self._text = Text()

    def show(self, text: Text) -> None:
        """Draw this."""
        self._text = text
        self.refresh()

    def render(self) -> Text:
        """As much of the text as there is room for."""
        width, height = self.content_size
        lines = self._text.wrap(self.app.console, max(1, width))
        if len(lines) <= height or not height:
            return self._text
        for line in lines:
            line.rstrip()
        last = Text(" ").join(lines[height - 1 :])
        last = last.wrap(self.app.console, max(1, width - len(_MORE)))[0]  # which ends with a whole word
        last.rstrip()
        return Text("\n").join([*lines[: height - 1], Text.assemble(last, (_MORE, "dim"))])

    def on_click(self) -> None:
        """Open the page."""
        self.post_message(self.Opened())

    def key_enter(self) -> None:
        """Open the page."""
        self.post_message(self.Opened())


class Slider(Widget):
    """The position in a recording. A click moves it."""

    class Moved(Message):
        """A person asked for this poll."""

        def __init__(self, number: int) -> None:
            self.number = number
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="slider")
        self._number, self._length = 0, 1

    def show(self, number: int, length: int) -> None:
        """Draw it."""
        self._number, self._length = number, length
        self.refresh()

    def render(self) -> Text:
        """A line as wide as the terminal."""
        label = f" poll {self._number + 1} of {self._length} "
        width = max(4, self.size.width - len(label) - 2)
        at = round((width - 1) * self._number / max(1, self._length - 1))
        return Text.assemble((label, "dim"), ("━" * at, "bold"), "●", ("─" * (width - 1 - at), "dim"), no_wrap=True)

    def on_click(self, event: events.Click) -> None:
        """Move to the poll under the click."""
        start = self.size.width - 2 - max(4, self.size.width - len(f" poll {1} of {self._length} ") - 2)
        share = (event.x - start) / max(1, self.size.width - start - 2)
        self.post_message(self.Moved(round(min(1.0, max(0.0, share)) * (self._length - 1))))
