"""The timeline as text: a character for each poll, with a shape and a colour for what a rank, or a block of ranks, did.

The more goes on, the higher the character: a row that freezes becomes a thin line. Every shape but three is in the oldest
character set of PC terminals (code page 437), and none depends on its colour.
"""

from itertools import groupby

from rich.text import Text

from hangdoc.phrases import duration
from hangdoc.timeline import CELLS, PROGRESS, Cell, Row, Timeline

GLYPH: dict[Cell, str] = {
    "computing": "█", "data": "▒", "moving": "▄", "waiting": "─", "dead": "×", "unseen": "·",
}  # fmt: skip
STYLE: dict[Cell, str] = {
    "computing": "green", "data": "blue", "moving": "cyan", "waiting": "yellow", "dead": "bold red", "unseen": "magenta",
}  # fmt: skip
_WORDS: dict[Cell, str] = {
    "computing": "computing", "data": "loading data", "moving": "in a collective, moving", "waiting": "waiting",
    "dead": "dead", "unseen": "not seen",
}  # fmt: skip
_SHARE = "▁▂▃▄▅▆▇"
"""Of the ranks of a block that do not all do the same: how many come on."""
_TICK = 12
"""Cells between two times above the timeline."""


def row(row: Row, width: int) -> Text:
    """The newest `width` polls of a row, the newest at the right."""
    drawn = [_cell(cell, share, len(row.ranks)) for cell, share in zip(row.cells, row.progress, strict=True)][-width:]
    text = Text(" " * (width - len(drawn)))
    for style, run in groupby(drawn, key=lambda one: one[1]):
        text.append("".join(glyph for glyph, _ in run), style)
    return text


def _cell(cell: Cell, share: float, ranks: int) -> tuple[str, str]:
    """(character, style). `cell` is what most of the ranks did, `share` how many of them came on."""
    if ranks == 1 or (share == 1.0 and cell in PROGRESS) or (share == 0.0 and cell not in PROGRESS):
        return GLYPH[cell], STYLE[cell]
    height = min(len(_SHARE) - 1, int(share * len(_SHARE)))
    return _SHARE[height], "red" if cell == "dead" else "yellow" if share < 0.5 else "green"


def axis(timeline: Timeline, width: int) -> Text:
    """The times above `width` cells, with a mark at the last poll in which any rank came on, where none does any more."""
    seconds = timeline.seconds[-width:]
    line = [" "] * width
    frozen = timeline.last_progress()
    at = None if frozen is None else frozen - len(timeline.seconds) + width
    if at is not None and 0 <= at < width - 1:
        since = duration(-timeline.seconds[frozen or 0])
        _write(line, at, *(f"▼ last progress {since} ago", f"▼ {since} ago", f"▼ {since}", "▼"))
    _write(line, width - len("now"), "now")
    for back in range(_TICK, len(seconds), _TICK):
        _write(line, width - 1 - back, f"╷{_short(-seconds[-1 - back])}")
    return Text("".join(line), "bold")


def _write(line: list[str], at: int, *texts: str) -> None:
    """Write the first of these texts that fits between what stands there already."""
    for text in texts:
        end = at + len(text)
        if at >= 0 and end <= len(line) and all(c == " " for c in line[max(0, at - 1) : end + 1]):
            line[at:end] = text
            return


def _short(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / 3600:.0f}h"


def legend(*, blocks: bool) -> Text:
    """What the shapes mean."""
    text = Text(no_wrap=True, overflow="ellipsis", style="dim")
    for cell in CELLS:
        text.append(GLYPH[cell], STYLE[cell]).append(f" {_WORDS[cell]}  ")
    return text.append(f"{_SHARE[0]}…{_SHARE[-1]} share of its ranks that come on" if blocks else "")
