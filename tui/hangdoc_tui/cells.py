"""The timeline as text: one character per poll, whose shape and colour show what a rank or a block of ranks did.

More activity is a taller character, so a row that freezes becomes a thin line. All shapes but three are in code page 437, the
oldest character set of PC terminals, and the shapes differ without their colours.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from rich.text import Text

from hangdoc.phrases import duration
from hangdoc.timeline import CELLS, PROGRESS, WORDS, Cell, Row, together

GLYPH: dict[Cell, str] = {
    "computing": "█", "data": "▒", "moving": "▄", "waiting": "─", "stopped": "═", "dead": "×",
    "unseen": "·",
}  # fmt: skip
STYLE: dict[Cell, str] = {
    "computing": "green", "data": "blue", "moving": "cyan", "waiting": "yellow", "stopped": "bold",
    "dead": "bold red", "unseen": "magenta",
}  # fmt: skip
_SHARE = "▁▂▃▄▅▆▇"
"""The share of ranks that make progress, for a block whose ranks do different things."""
_ENDS = "◄"
_TICK = 12
"""Cells between two labels of the time axis."""
_BEFORE = 6
"""Cells kept for what came before the last progress."""


def polls_per_cell(since_progress: int | None, width: int) -> int:
    """How many polls one cell shows: more than one if the last progress, `since_progress` polls ago, would otherwise not fit
    into `width` cells."""
    polls = 1
    while (since_progress or 0) // polls >= width - _BEFORE > 0:
        polls *= 2
    return polls


def draw_row(row: Row, width: int, polls: int = 1, recorded: int = 0) -> Text:
    """The newest `width` cells of a row, `polls` polls each. The newest is at the right. The first `recorded` polls come from
    torch's record of calls, and are dim."""
    drawn: list[tuple[str, str]] = []
    progress = row.shares
    for start, end in _divide(len(row.cells), polls, recorded)[:width]:
        some, shares = row.cells[start:end], progress[start:end]
        glyph, style = _draw_cell(max(some, key=some.count), sum(shares) / len(shares))
        drawn.append((glyph, f"dim {style}" if end <= recorded else style))
    return joined([(" " * (width - len(drawn)), ""), *reversed(drawn)])


def _divide(count: int, polls: int, recorded: int) -> list[tuple[int, int]]:
    """(start, end) of the polls of each cell, the newest first. No cell has polls and some of the first `recorded` ones, of which
    less is known: the cell of the newest poll shows what the rank does now."""
    parts = [(recorded, count), (0, recorded)]
    return [(max(first, end - polls), end) for first, last in parts for end in range(last, first, -polls)]


def draw_block(did: Sequence[Cell]) -> tuple[str, str]:
    """(character, style) for what the ranks of a block did at one poll."""
    if len(did) == 1:
        return GLYPH[did[0]], STYLE[did[0]]
    return _draw_cell(*together(did))


def joined(drawn: Iterable[tuple[str, str]]) -> Text:
    """Characters with their styles as one text."""
    text = Text()
    for style, run in groupby(drawn, key=lambda pair: pair[1]):
        text.append("".join(glyph for glyph, _ in run), style)
    return text


def _draw_cell(cell: Cell, share: float) -> tuple[str, str]:
    """(character, style). `cell` is what most ranks did, `share` the share of ranks, polls or time with progress."""
    if (share == 1.0 and cell in PROGRESS) or (share == 0.0 and cell not in PROGRESS):
        return GLYPH[cell], STYLE[cell]
    height = min(len(_SHARE) - 1, int(share * len(_SHARE)))
    return _SHARE[height], "red" if cell == "dead" else "yellow" if share < 0.5 else "green"


def axis(
    seconds: Sequence[float],
    since_progress: int | None,
    width: int,
    polls: int = 1,
    recorded: int = 0,
    *,
    still_seconds: float | None = None,
    moment: str = "now",
) -> Text:
    """The time axis above `width` cells of polls `seconds` ago. One mark is at the last progress of any rank, which the poll
    `since_progress` polls ago saw; another is where the first `recorded` polls end, which come from torch's record of calls.
    `still_seconds`: how long ago that progress was, if that is known better than by the time of the poll. `moment`: what the
    time of the newest poll is called."""
    line = [" "] * width
    newest = len(seconds) - 1
    divided = _divide(len(seconds), polls, recorded)[:width]
    if since_progress:
        since = duration(still_seconds if still_seconds is not None else -seconds[newest - since_progress])
        back = next((cell for cell, (start, _) in enumerate(divided) if start <= newest - since_progress), width)
        at = width - 1 - back
        right = [(at, f"▼ {text}") for text in (f"last progress {since} ago", f"{since} ago")]
        left = [(at - len(text) - 1, f"{text} ▼") for text in (f"last progress {since} ago", f"{since} ago")]
        _write(line, *right, *left, (at, "▼"))
    if recorded:
        end = width - -(-(len(seconds) - recorded) // polls)
        _write(line, *((end - len(text), text) for text in (f"before hangdoc {_ENDS}", f"recorded {_ENDS}", _ENDS)))
    _write(line, (width - len(moment), moment))
    for back in range(_TICK, len(divided), _TICK):
        _write(line, (width - 1 - back, f"╷{_short(-seconds[divided[back][1] - 1])}"))
    return Text("".join(line), "bold")


def _write(line: list[str], *choices: tuple[int, str]) -> None:
    """Write the first of these texts that fits at its place without touching other text."""
    for at, text in choices:
        end = at + len(text)
        if at >= 0 and end <= len(line) and all(c == " " for c in line[max(0, at - 1) : end + 1]):
            line[at:end] = text
            return


def _short(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / 3600:.0f}h"


def legend(
    used: Collection[Cell], width: int, *, blocks: bool, parts_of_time: bool = False, recorded: bool = False
) -> list[Text]:
    """What the shapes of the `used` cells mean, in as many lines of `width` as that takes. `blocks`: a cell may show several
    ranks; `parts_of_time`: it may show for which part of the time a rank did not wait. `recorded`: there are cells from torch's
    record of calls."""
    heights = "share making progress" if blocks else "time not waiting for ranks" if parts_of_time else ""
    parts = [Text("dim: recorded")] if recorded else []
    parts += [Text.assemble((GLYPH[cell], STYLE[cell]), f" {WORDS[cell]}") for cell in CELLS if cell in used]
    parts += [Text(f"{_SHARE[0]}…{_SHARE[-1]} {heights}")] if heights else []
    lines = flow(parts, width)
    for line in lines:
        line.stylize_before("dim")
    return lines


def flow(parts: Iterable[Text], width: int, separator: str = "  ") -> list[Text]:
    """The parts in as many lines of `width` as that takes. None is cut, unless it is longer than a line."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + len(separator) + part.cell_len <= width:
            lines[-1] = Text(separator, part.style).join((lines[-1], part))
        else:
            lines.append(part)
    return lines
