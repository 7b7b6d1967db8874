"""The table of docs/launchers.md from the outcomes of the matrix."""

from collections.abc import Iterable
from subprocess import SubprocessError

from hangbench.launchers.round import Outcome
from hangbench.launchers.table import TABLE, Launcher

_COLUMNS = (
    ("healthy", "host"), ("hung", "host"), ("healthy", "pid"), ("hung", "pid"), ("healthy", "watchdog"), ("hung", "watchdog"),
)  # fmt: skip


def table(outcomes: Iterable[Outcome]) -> str:
    """A Markdown table with a line per launcher. Each cell has the number of right looks."""
    all_outcomes = list(outcomes)
    lines = [
        "| launcher | version | runs in | healthy, by host | hung, by host | healthy, by `--pid` | hung, by `--pid` "
        "| healthy, by watchdog | hung, by watchdog |",
        "| --- | --- | --- |" + " --- |" * len(_COLUMNS),
    ]
    for launcher in TABLE:
        mine = [outcome for outcome in all_outcomes if outcome.launcher == launcher.name]
        cells = [_cell([o for o in mine if o.kind == kind and _state(o) == state]) for state, kind in _COLUMNS]
        where = "CI" if launcher.in_ci else "by hand"
        lines.append(f"| `{launcher.name}` | {_version(launcher)} | {where} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _state(outcome: Outcome) -> str:
    return "healthy" if outcome.state == "healthy" else "hung"


def _cell(looks: list[Outcome]) -> str:
    right = sum(1 for look in looks if not look.wrong)
    if not looks:
        return "-"
    return f"{right}/{len(looks)}" if right == len(looks) else f"**{right}/{len(looks)}**"


def _version(launcher: Launcher) -> str:
    try:
        return launcher.version_here()
    except (OSError, SubprocessError, IndexError):
        return "not installed"
