"""Where a rank stands, in as much room as there is."""

from rich.text import Text

from hangdoc.diagnosis import RankView, Where
from hangdoc.phrases import duration
from hangdoc.render import words

_USEFUL = 6
"""Characters of a source line that are worth to be shown."""


def place(where: Where | None, width: int) -> str:
    """`base_train.py:198  loss.backward()`. Where there is less room, the end of the source line gives way, and the beginning of
    the file's name only where `file:line` alone is wider than `width`."""
    if where is None:
        return ""
    name = f"{words.clean(where.file.rpartition('/')[2])}:{where.line}"
    what = words.clean((where.source or "").strip()) or f"in {words.clean(where.function)}"
    if len(name) + 2 + len(what) <= width:
        return f"{name}  {what}"
    room = width - len(name) - 2
    if room >= _USEFUL:
        return f"{name}  {what[: room - 1]}…"
    return name if len(name) <= width else f"…{name[len(name) - width + 1 :]}"


def placed(view: RankView, width: int) -> Text:
    """The place of a rank; dim and with its age where it comes from an older stack and the rank may have left it."""
    age = stack_age(view)
    if age is None:
        return Text(place(view.where, width))
    seconds = view.stack_seconds_ago or 0.0
    for suffix in (f" ({age} ago)", f" {seconds:.0f}s"):
        room = width - len(suffix)
        if (text := place(view.where, room)) and not text.startswith("…"):
            break
    return Text(text + suffix, "dim")


def stack_age(view: RankView) -> str | None:
    """How old a rank's stack is where that matters. A blocked rank is read again as soon as its clocks move: until then it stands
    where its stack says."""
    if view.stack_seconds_ago is None or view.label == "blocked":
        return None
    return duration(view.stack_seconds_ago)
