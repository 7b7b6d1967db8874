"""The text report of preflight."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hangdoc.parse import has_removed_part
from hangdoc.phrases import amount
from hangdoc.preflight.plan import Check
from hangdoc.render.console import print_blocks
from hangdoc.render.words import clean

_STYLE = {"pass": "green", "warn": "yellow", "fail": "bold red", "unknown": "magenta"}
_ORDER = ("fail", "warn", "unknown", "pass")
_REMOVED = "<str> and <redacted> stand for words that may be private, which hangdoc neither shows nor stores."


def report(checks: Sequence[Check], nodes: int, console: Console) -> None:
    """Print the checks: failed ones first, with their remedy, passed ones last."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for check in sorted(checks, key=lambda check: _ORDER.index(check.status)):
        table.add_row(Text(check.status, _STYLE[check.status]), check.name, Text(clean(check.text)))
        if check.remedy and check.status != "pass":
            table.add_row("", "", Text(clean(check.remedy)))
    tally = {status: sum(check.status == status for check in checks) for status in _ORDER}
    verdict = _conclude([check for check in checks if check.status == "fail"])
    counts = ", ".join(f"{count} {status}" for status, count in tally.items() if count)
    style = "bold red" if tally["fail"] else "bold green"
    end = Text.assemble((verdict, style), f" ({amount(nodes, 'node')}: {counts})")
    notes = ("", _REMOVED) if any(has_removed_part(check.text) for check in checks) else ()
    print_blocks(console, (table, *notes, "", end))


def _conclude(failed: Sequence[Check]) -> str:
    """What the failed checks mean for the launch. If each of them has a condition, so has the conclusion."""
    if not failed:
        return "nothing that was checked prevents this launch"
    conditions = dict.fromkeys(check.unless for check in failed)
    return "this launch cannot work" + ("" if "" in conditions else f", unless {' and '.join(conditions)}")
