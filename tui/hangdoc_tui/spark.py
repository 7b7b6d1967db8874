"""A row of numbers as a row of bars."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def line(values: Sequence[float | None], width: int, top: float) -> str:
    """The last `width` values, each as a bar between 0 and `top`; what is unknown is a blank."""
    shown = list(values)[-width:]
    bars = (" " if v is None else _BARS[min(len(_BARS) - 1, int(v / top * len(_BARS)))] for v in shown)
    return "".join(bars).rjust(width)
