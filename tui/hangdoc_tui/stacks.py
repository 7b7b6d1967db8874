"""One rank's stack with its source lines and variables, and how it differs from another."""

from collections.abc import Iterator

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from hangdoc.phrases import amount, duration
from hangdoc.reasoning.evidence.records import LastCall, last_call
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks.movement import own_counts
from hangdoc.reasoning.views.detail import frames_of, place_of_frame
from hangdoc.render import words
from hangdoc.snapshot import Frame, Local, Unavailable
from hangdoc_tui.cells import flow
from hangdoc_tui.places import shorten_path, stack_age
from hangdoc_tui.view_model import ViewModel

COMPARISONS = ("nothing", "the last poll", "another rank")
_MORE = ", ..."
_LOCALS_SHOWN = 12
_LEAST_PLACE = 24
"""Columns that the place of a frame has beside a long name."""
_JUST_READ = 0.05
"""Seconds."""


class StackView(VerticalScroll):
    """The stack of the selected rank's training thread."""

    def __init__(self) -> None:
        super().__init__(id="stack")
        self.native, self.locals, self.compared_to = False, True, "nothing"
        self._shown = Static(id="stack-text", markup=False)
        self._model: ViewModel | None = None
        self._placed: int | None = None
        """The rank for which the view was last scrolled. Afterwards, a person scrolls."""

    def compose(self) -> ComposeResult:
        """A text that scrolls."""
        yield self._shown

    def show(self, model: ViewModel) -> None:
        """Draw it."""
        self._model = model
        self._shown.update(Text("\n").join(self.lines(model)))
        if model.selected != self._placed:
            self._placed = model.selected
            self.call_after_refresh(self._show_own_code, model)

    def _show_own_code(self, model: ViewModel) -> None:
        """Scroll to the user's own innermost frame if it is below the visible lines, behind the frames of libraries."""
        rank = model.run.ranks.get(model.selected) if model.selected is not None else None
        if rank is None or not rank.own:
            return
        title, height = _make_title(rank.own[0], self._width).plain, self.size.height
        at = next((at for at, line in enumerate(self.lines(model)) if title in line.plain), 0)
        self.scroll_to(y=max(0, at - height // 2) if at + 1 >= height else 0, animate=False)

    @property
    def _width(self) -> int:
        return max(40, self.size.width - 1)

    def on_resize(self) -> None:
        """Paths are shortened to the width."""
        if self._model is not None:
            self.show(self._model)

    def lines(self, model: ViewModel) -> Iterator[Text]:
        """The lines of the view."""
        rank = model.run.ranks.get(model.selected) if model.selected is not None else None
        if rank is None:
            yield Text("No rank is selected.", style="dim")
            return
        yield from self._head(model, rank)
        view = model.view(rank.rank)
        stale = view is not None and stack_age(view) is not None
        for line in self._frames(model, rank):
            if stale:
                line.stylize("dim")
            yield line

    def _frames(self, model: ViewModel, rank: Rank) -> Iterator[Text]:
        frames = frames_of(rank, native=self.native)
        other = self._other(model, rank)
        there = {place_of_frame(frame) for frame in other[1]} if other is not None else None
        if other is not None:
            here = {place_of_frame(frame) for frame in frames}
            yield Text(f"+ only here, - only {other[0]}" if here != there else f"no difference {other[0]}", style="dim")
            for frame in other[1]:
                if place_of_frame(frame) not in here:
                    yield Text.assemble(("- ", "red"), _make_title(frame, self._width))
        elif self.compared_to != "nothing":
            yield Text(f"no stack of {self.compared_to} to compare with", style="dim")
        for frame in frames:
            new = there is not None and place_of_frame(frame) not in there
            yield Text.assemble(("+ " if new else "  ", "green"), _make_title(frame, self._width))
            if frame.source:
                yield Text(f"      {words.clean(frame.source)}", style="cyan" if not frame.library else "dim")
            if self.locals and not frame.library:
                yield from _show_locals(frame)
        if not frames and (call := self._last_call(model, rank)) is not None:
            called = words.clean(f"It called {call.name} {duration(call.age_seconds)} ago here:")
            sentences = ("It moves, so it is not paused for its stack.", called)
            yield from flow((Text(sentence, "dim") for sentence in sentences), self._width, " ")
            yield from (Text("  ") + _make_title(frame, self._width) for frame in call.frames)
        elif not frames:
            stack = rank.process.stack if rank.process is not None else None
            yield Text(stack.reason if isinstance(stack, Unavailable) else "No stack.", style="magenta")

    def _last_call(self, model: ViewModel, rank: Rank) -> LastCall | None:
        host = model.run.host.get(rank.host)
        if rank.process is None or host is None or own_counts(rank.process) is None:
            return None
        return last_call(rank.process, host.wall_us)

    def _head(self, model: ViewModel, rank: Rank) -> Iterator[Text]:
        view = model.view(rank.rank)
        if view is not None:
            facts = (f"pid {view.pid or '-'} on {words.clean(view.host)}", words.operation(view.operation))
            state = Text(
                f"{words.LABEL_GLYPH[view.label]} {words.label_and_state(view)}", words.LABEL_STYLE[view.label]
            )
            yield from flow([Text(f"rank {rank.rank}", "bold"), state, *map(Text, filter(None, facts))], self._width)
            if view.like is not None:
                text = f"in the same state as rank {view.like}, whose variables and threads its host sent for both"
                yield Text(text, "dim")
            if view.stack_seconds_ago is not None and rank.thread is not None:
                since = "; the rank has made no progress since" if words.stands_still(view) else ""
                old = view.stack_seconds_ago >= _JUST_READ
                # A rank that has not run since has the same stack, and was not read again.
                text = f"stack read {duration(view.stack_seconds_ago)} ago{since}" if old else "stack of this poll"
                yield Text(text, "bold yellow" if stack_age(view) is not None else "dim")
        native = rank.process.native if rank.process is not None else None
        if self.native and isinstance(native, Unavailable):
            yield Text(f"no native frames: {native.reason}", style="dim")
        yield Text("")

    def _other(self, model: ViewModel, rank: Rank) -> tuple[str, tuple[Frame, ...]] | None:
        """(where, frames) of the stack to compare with."""
        if self.compared_to == "the last poll":
            before = model.before.ranks.get(rank.rank) if model.before is not None else None
            return ("at the last poll", frames_of(before, native=self.native)) if before is not None else None
        if self.compared_to == "another rank":
            # A culprit is compared with a rank that waits, every other rank with the culprit.
            others = [
                n for n in (model.culprits if rank.rank not in model.culprits else model.run.ranks) if n != rank.rank
            ]
            other = model.run.ranks.get(others[0]) if others else None
            return (f"on rank {other.rank}", frames_of(other, native=self.native)) if other is not None else None
        return None


def _make_title(frame: Frame, width: int) -> Text:
    place = f"{words.clean(frame.file)}:{frame.line}" if not frame.native else words.clean(frame.file)
    name = words.clean(frame.function)
    place = shorten_path(place, max(_LEAST_PLACE, width - len(name) - 6))
    return Text.assemble((name, "bold" if not frame.library else "dim"), (f"  {place}", "dim"))


def show_value(local: Local) -> str:
    """The value of a variable. Of a large model, only the first parameters are read."""
    text = words.clean(local.text)[:200]
    partly = local.name.endswith(".parameters()") and text.endswith(_MORE)
    return f"{text.removesuffix(_MORE)} in the parameters that were read, and more" if partly else text


def _show_locals(frame: Frame) -> Iterator[Text]:
    for local in frame.locals[:_LOCALS_SHOWN]:
        yield Text(f"        {words.clean(local.name)} = {show_value(local)}", style="dim")
    left = {local.name for local in frame.locals[_LOCALS_SHOWN:]} - {
        local.name for local in frame.locals[:_LOCALS_SHOWN]
    }
    variables = sum(name.isidentifier() for name in left)
    own = amount(variables, "more variable") if variables else ""
    inside = f"{amount(len(left) - variables, 'more value')} inside of variables" if len(left) > variables else ""
    if left:
        yield Text(f"        and {' and '.join(filter(None, (own, inside)))}", style="dim")
