"""The place in the source where a rank is, shortened to the width that there is."""

from rich.text import Text

from hangdoc.diagnosis import RankView, Where
from hangdoc.phrases import duration
from hangdoc.render import words

_USEFUL = 6
"""A source line cut to fewer characters is not worth showing."""


def place(where: Where | None, width: int) -> str:
    """`base_train.py:198  loss.backward()`. If `width` is too small, the source line is cut at its end. The file name is cut
    at its beginning only if `file:line` alone does not fit."""
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


def shorten_path(path: str, width: int) -> str:
    """A path of at most `width` characters: `…/torch/_tensor.py:623` without as many of its first directories as that takes."""
    while len(path) > width and "/" in (rest := path.removeprefix("…").lstrip("/")):
        path = "…/" + rest.partition("/")[2]
    return path if len(path) <= width else f"…{path[len(path) - max(0, width - 1) :]}"


def placed(view: RankView, width: int) -> Text:
    """The place of a rank; dim and with its age if it comes from an older stack and the rank may have left it."""
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
    """How old a rank's stack is, if that matters: below a second it was read in this poll. A blocked rank has no age: it is
    still where its stack shows it, because its stack is read again as soon as its clocks move."""
    if view.stack_seconds_ago is None or words.stands_still(view) or view.stack_seconds_ago < words.THIS_LOOK:
        return None
    return duration(view.stack_seconds_ago)
