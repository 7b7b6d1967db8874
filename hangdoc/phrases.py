"""Formats ranks, durations, the callers of operations, and text from outside, for findings and reports."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import dropwhile, takewhile
from os.path import commonprefix

_BEGINNING_LINES = 12
_NAMES, _NAME = 3, 40
"""How many operations are named, and the characters of each."""
_CALLERS = {
    "ddp-backward": "DDP backward",
    "ddp-forward": "DDP forward",
    "ddp-init": "DDP init",
    "fsdp": "FSDP",
    "gpu": "GPU",
}
_INVISIBLE = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10),
              *range(0xE0100, 0xE01F0)))
)  # fmt: skip
"""Characters that take no space or show nothing, although Python counts them as printable: the letters and marks among Unicode's
Default_Ignorable_Code_Point (DerivedCoreProperties.txt), and the empty Braille pattern."""


def printable(text: str) -> str:
    """Text from outside, safe for a terminal: `·` for each control, formatting and invisible character. Formatting characters
    (bidi overrides, for example) make a terminal show another text than the one that is there."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() and c not in _INVISIBLE else "·" for c in text)


def caller(origin: str) -> str:
    """The part of torch that called an operation, for readers: `DDP backward` for `ddp-backward`."""
    return _CALLERS.get(origin, origin)


def numbers(ranks: Iterable[int]) -> str:
    """`0-2, 5`: ascending, with consecutive ranks as a range."""
    return _join_ranges(sorted(set(ranks)))


def _join_ranges(ordered: Sequence[int]) -> str:
    parts: list[str] = []
    index = 0
    while index < len(ordered):
        # In a range, numbers grow as their positions do.
        end = bisect_right(range(len(ordered)), ordered[index] - index, index, key=lambda at: ordered[at] - at) - 1
        parts.append(str(ordered[index]) if end == index else f"{ordered[index]}-{ordered[end]}")
        index = end + 1
    return ", ".join(parts)


def verb(which: Iterable[int], singular: str, plural: str) -> str:
    """The form of a verb that fits the number of ranks."""
    return singular if len(set(which)) == 1 else plural


def do(which: Iterable[int], singular: str, plural: str) -> str:
    """`rank 3 waits`, `ranks 0-2 wait`."""
    ordered = sorted(set(which))
    return f"{_name_ranks(ordered)} {singular if len(ordered) == 1 else plural}"


_TWO_DAYS = 2 * 24 * 60
"""Minutes."""


def duration(seconds: float) -> str:
    """`4.2 s`, `48 s`, `3 min 20 s`, `2 h 5 min`, `7 d`, `6 d 23 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= _TWO_DAYS:
        days, hours = divmod(round(minutes / 60), 24)
        return f"{days} d {hours} h" if hours else f"{days} d"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def compared_calls(calls: int, of: int, operations: Iterable[str]) -> str:
    """Which calls a number is about, `calls` of the last `of`: `the last 99 calls`, or those to which the ranks come the furthest
    apart: `the 12 calls (broadcast) of the last 256 in which the ranks came the furthest apart`."""
    if calls >= of:
        return f"the last {calls} calls"
    which = f"the {calls} calls" if calls != 1 else "the call"
    return f"{which} ({list_operations(operations)}) of the last {of} in which the ranks came the furthest apart"


def list_operations(operations: Iterable[str]) -> str:
    """`all_gather, all_reduce`, `a, b, c and 2 more`. The names of operations are a process's own texts."""
    names = sorted(shorten(printable(name), _NAME) for name in operations)
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{', '.join(names[:_NAMES])}{more}"


def apart_from_waits(count: int, seconds: float, awaited: Iterable[int]) -> str:
    """` apart from one wait of 2 min 1 s in the run`, ` apart from 3 waits of up to 20 s for rank 0 in the run`: behind a share
    of the time in which they are not counted; empty for none. `seconds`: the longest one."""
    if not count:
        return ""
    waits = f"{count} waits of up to" if count > 1 else "one wait of"
    late = sorted(awaited)
    return f" apart from {waits} {duration(seconds)}{f' for {ranks(late)}' if late else ''} in the run"


def milliseconds(seconds: float) -> str:
    """`52 ms`, `0.4 ms`."""
    return f"{seconds * 1000:.1f} ms" if abs(seconds) < 0.01 else f"{seconds * 1000:.0f} ms"


def minutes(seconds: float) -> str:
    """As `duration`, without seconds from two minutes on, and without hours up to two."""
    return f"{seconds / 60:.0f} min" if 120 <= seconds < 7200 else duration(seconds)


def least_minutes(seconds: float) -> str:
    """As `minutes`, rounded down: a time that surely remains."""
    return minutes(
        seconds // 1 if seconds < 120 else seconds // 60 * 60 if seconds < 2 * 86_400 else seconds // 3600 * 3600
    )


def timeout(seconds: float) -> str:
    """As `duration`, without a last part that is zero: `30 min`, `2 min 40 s`, `2 h`."""
    return duration(seconds).replace(" min 0 s", " min").replace(" h 0 min", " h")


def volume(size: int) -> str:
    """`512 bytes`, `66 kB`, `1.2 MB`."""
    if size < 1000:
        return amount(size, "byte")
    return f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def amount(number: int, what: str, ending: str = "s") -> str:
    """`1 rank`, `2,048 ranks`. `ending` makes the plural."""
    return f"{number:,} {what}{ending * (number != 1)}"


def ranks(which: Iterable[int]) -> str:
    """`rank 1`, `ranks 0-2, 5`, `no rank`."""
    return _name_ranks(sorted(set(which)))


def _name_ranks(ordered: Sequence[int]) -> str:
    return f"rank{'s' * (len(ordered) != 1)} {_join_ranges(ordered)}" if ordered else "no rank"


def also(which: Iterable[int], word: str = "also") -> str:
    """` (also ranks 1-3)` for the ranks after the first one; empty for one rank."""
    _, *others = sorted(set(which))
    return f" ({word} {_name_ranks(others)})" if others else ""


def shorten(text: str, most: int) -> str:
    """A text of at most `most` characters, the last `…` if it was longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def shorten_before(text: str, kept: str, most: int) -> str:
    """A text of at most `most` characters that has the part `kept`: what is left out is in the middle, before it, and behind it.
    `python torchrun --stand…4 train.py…`."""
    end = text.find(kept) + len(kept)
    first = most // 3
    if len(text) <= most or end < most or len(kept) >= most - first:
        return shorten(text, most)
    more = "…" if end < len(text) else ""
    return f"{text[:first]}…{text[end - (most - first - 1 - len(more)) : end]}{more}"


def shorten_values(
    values: Sequence[tuple[str | None, Iterable[int]]], most: int = 60
) -> list[tuple[str, Iterable[int]]]:
    """Values with their ranks, as texts of at most `most` characters. A long beginning that all have in common is left out, so
    that the texts differ as the values do: `…pt_0/0/error.json` and `…pt_0/1/error.json`."""
    texts = ["not set" if value is None else value for value, _ in values]
    longest = max(map(len, texts), default=0)
    common = len(commonprefix(texts)) if len(texts) > 1 else 0  # noqa: RUF071
    left_out = min(common - most // 3, longest - most + 1)
    shown = [f"…{text[left_out:]}" for text in texts] if left_out > 1 else texts
    return [(shorten(text, most), ranks) for text, (_, ranks) in zip(shown, values, strict=True)]


def values_by_rank(values: Sequence[tuple[str | None, Iterable[int]]], most: int = 4) -> str:
    """The first `most` values and the ranks that have them: `8 on ranks 0-2; 9 on rank 3`."""
    return "; ".join(f"{text} on {ranks(which)}" for text, which in shorten_values(values[:most]))


def beginning(report: str) -> str:
    """The first lines of a report without its list of runs, up to the evidence of its first finding, and what to do, for logs."""
    if report.partition("\n")[0].endswith(" runs"):
        report = report.partition("\n\n")[2]
    lines = [line for line in report.splitlines() if line.strip()]
    end = next((at for at, line in enumerate(lines) if line.startswith("  evidence")), len(lines))
    remedy = list(dropwhile(lambda line: not line.startswith("  to do"), lines[end:]))
    more = takewhile(lambda line: line.startswith(" " * 12) and not line.lstrip().startswith("$ "), remedy[1:])
    return "\n".join([*lines[: min(end, _BEGINNING_LINES)], *remedy[:1], *more])


def frequency(per_second: float) -> str:
    """How often something happens in a second: `1,480`, `480`, `12.3`, `0.05`, `0`."""
    if per_second >= 100 or not per_second:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= 1 else f"{per_second:.2g}"
