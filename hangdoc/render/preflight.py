"""The text report of preflight."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hangdoc.phrases import amount
from hangdoc.preflight.plan import Check
from hangdoc.render.words import clean

_STYLE = {"pass": "green", "warn": "yellow", "fail": "bold red", "unknown": "magenta"}
_ORDER = ("fail", "warn", "unknown", "pass")


def report(checks: Sequence[Check], nodes: int, console: Console) -> None:
    """Print the checks: failed ones first, with their remedy, passed ones last, in one line each."""
    for check in sorted(checks, key=lambda check: _ORDER.index(check.status)):
        line = Text.assemble(
            (f"{check.status:<7} ", _STYLE[check.status]), (f"{check.name}  ", "bold"), clean(check.text)
        )
        line.overflow = "fold"
        console.print(line)
        if check.remedy and check.status != "pass":
            console.print(Padding(Text(clean(check.remedy)), (0, 0, 0, 8), expand=False))
    tally = {status: sum(check.status == status for check in checks) for status in _ORDER}
    console.print()
    verdict = "this launch cannot work" if tally["fail"] else "no problem found for this launch"
    counts = ", ".join(f"{count} {status}" for status, count in tally.items() if count)
    style = "bold red" if tally["fail"] else "bold green"
    console.print(Text.assemble((verdict, style), f" ({amount(nodes, 'node')}: {counts})"))
