"""Below the table: its legend, the details of the selected rank, and for a large run a map of all ranks."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from rich.text import Text
from textual import events
from textual.widget import Widget

from hangdoc.diagnosis import RankView
from hangdoc.phrases import duration, numbers
from hangdoc.render import words
from hangdoc.timeline import blocks
from hangdoc_tui import calls, cells
from hangdoc_tui.places import place, stack_age
from hangdoc_tui.view_model import RankChosen, ViewModel, gibibytes

LARGE = 64
"""A run with more ranks is large: they do not fit into a table of one row each."""
_PER_LINE = 64


class Detail(Widget):
    """The legend, the selected rank, the map."""

    def __init__(self) -> None:
        super().__init__(id="detail")
        self._model: ViewModel | None = None
        self._zoomed: Sequence[int] | None = None
        self._legend: Callable[[int], list[Text]] = lambda width: []
        self._map_at = 0
        """The line on which the map begins."""
        self._map: list[tuple[int, ...]] = []
        self._label = 0
        """Width of the numbers before each line of the map."""

    def show(self, model: ViewModel, *, zoomed: Sequence[int] | None, legend: Callable[[int], list[Text]]) -> None:
        """Draw it. `zoomed` are the ranks that the table is limited to; `legend` gives the lines that explain its cells, for a
        width."""
        self._model, self._zoomed, self._legend = model, zoomed, legend
        self.refresh()

    def render(self) -> Text:
        """As many lines as there is room for."""
        model, zoomed = self._model, self._zoomed
        if model is None:
            return Text()
        ranks = [view.rank for view in model.job.ranks]
        width = max(20, self.size.width)
        lines = self._legend(width)
        if zoomed is not None:
            lines = [
                Text(f"{len(zoomed):,} of {len(ranks):,} ranks: {numbers(zoomed)[:40]}  (esc: all)", "bold"),
                *lines,
            ]
        view = model.view(model.selected)
        if view is not None:
            lines += _describe_rank(model, view, width)
        self._map, self._map_at = [], len(lines) + 2
        if len(ranks) > LARGE and (room := self.size.height - self._map_at) > 1:
            lines += self._mapped(model, ranks, room)
        height = max(1, self.size.height)
        if len(lines) > height:
            lines[height - 1 :] = [Text("  …", "dim")]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)

    def _mapped(self, model: ViewModel, ranks: Sequence[int], room: int) -> Iterator[Text]:
        """A character for each rank now, or for each block of ranks if there are too many."""
        self._map = blocks(ranks, room * _PER_LINE)
        self._label = len(str(ranks[-1])) + 1
        each = "" if len(self._map) == len(ranks) else f", {len(self._map[0])} to a character"
        yield Text("")
        yield Text(f"all ranks now{each}", "bold")
        did = model.history.recorder.newest()
        is_culprit = set(model.culprits)
        for start in range(0, len(self._map), _PER_LINE):
            line = [(f"{self._map[start][0]:>{self._label - 1}} ", "dim")]
            for block in self._map[start : start + _PER_LINE]:
                glyph, style = cells.draw_block([did.get(rank, "unseen") for rank in block])
                if not is_culprit.isdisjoint(block):
                    glyph, style = "●", words.CULPRIT_STYLE
                line.append((glyph, f"{style} reverse" if model.selected in block and glyph != "●" else style))
            yield cells.joined(line)

    def on_click(self, event: events.Click) -> None:
        """A click in the map selects a rank."""
        line, column = event.y - self._map_at, event.x - 1 - self._label
        at = line * _PER_LINE + column
        if line >= 0 and 0 <= column < _PER_LINE and at < len(self._map):
            self.post_message(RankChosen(self._map[at][0], False))


def _describe_rank(model: ViewModel, view: RankView, width: int) -> Iterator[Text]:
    age, rank = stack_age(view), model.run.ranks.get(view.rank)
    is_culprit = view.rank in model.culprits
    activity = (words.clean(view.role or ""), words.operation(view.operation), _describe_batches(view))
    state = Text(f"{words.LABEL_GLYPH[view.label]} {words.label_and_state(view)}", words.LABEL_STYLE[view.label])
    first = Text.assemble(
        (f"{'●' if is_culprit else ''}rank {view.rank}  ", words.CULPRIT_STYLE if is_culprit else "bold"), state
    )
    yield from _flow([first, *(Text(fact) for fact in activity if fact)], width, indent=0)
    facts = (
        f"pid {view.pid} on {words.clean(view.host)}" if view.pid is not None else f"on {words.clean(view.host)}",
        f"CPU {view.cpu_percent:.0f}%" if view.cpu_percent is not None else "",
        f"memory {gibibytes(memory)}" if (memory := model.memory(view)) is not None else "",
        f"card {view.gpu.index} {words.gpu([view])}" if view.gpu is not None else "",
        f"last byte {duration(view.silent_seconds)} ago" if view.silent_seconds is not None else "",
        f"stack of {age} ago" if age is not None and rank is not None and rank.thread is not None else "",
    )
    for some in (chain(facts, calls.facts(model, view)), calls.pace_facts(model, view)):
        parts = [part for fact in some for part in textwrap.wrap(fact, width - 4)]
        yield from _flow([Text(part, "dim") for part in parts], width)
    if view.where is not None:
        by = "last call at " if words.is_last_call(view) else ""
        yield Text(f"  {by}{place(view.where, width - 2 - len(by))}", "dim" if age is not None else "")
    for frame in rank.own[1:] if rank is not None else ():
        name = words.clean(frame.file.rpartition("/")[2])
        source = words.clean((frame.source or "").strip()) or f"in {words.clean(frame.function)}"
        yield Text(f"  {name}:{frame.line}  {source}", "dim")


def _flow(facts: list[Text], width: int, indent: int = 2) -> Iterator[Text]:
    """The facts in lines of `width`: none is cut where a line has room for it."""
    for number, line in enumerate(cells.flow(facts, width - 2, " · ")):
        yield Text(" " * (2 if number else indent)).append_text(line)


def _describe_batches(view: RankView) -> str:
    if view.batches_done is None:
        return ""
    total = f" of {view.batches_total}" if view.batches_total is not None else ""
    age = words.batches_age(view)
    ago = f", counted {duration(age)} ago" if age is not None else ""
    end = f", {words.name_end_of_batches(view.batches_done, view.batches_total)}" if view.batches_ended else ""
    return f"{view.batches_done}{total} batches{end}{ago}"
