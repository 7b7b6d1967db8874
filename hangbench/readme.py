"""Writes the line and the table about accuracy in the README, whose figures are sums over the series in docs/accuracy.md."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hangbench.marks import between

_ROOT = Path(__file__).parents[1]
ACCURACY = _ROOT / "docs" / "accuracy.md"
README = _ROOT / "README.md"
_HEADING = "\n## Scripts written after the rules\n"
_SERIES = re.compile(r"^\| \d+ \| (\d{4}-\d\d-\d\d) \| (.*) \|$", re.MULTILINE)
_COUNT = re.compile(r"(\d+) of (\d+)")


class Count(NamedTuple):
    """How many of how many. A cell without a count (`none`, or empty) is 0 of 0."""

    right: int
    total: int

    def __str__(self) -> str:
        return f"{self.right} of {self.total}"


class Answers(NamedTuple):
    """The counts of the first answers about the scripts of one series, or of several."""

    date: str
    """Of the newest series."""
    verdicts: Count
    false_alarms: Count
    causes: Count
    culprits: Count


def read_series(page: str) -> list[Answers]:
    """The series of scripts in docs/accuracy.md, oldest first. Raises ValueError if the page has none."""
    section = page.partition(_HEADING)[2].partition("\n## ")[0]
    series = [Answers(date, *map(_read_count, row.split("|"))) for date, row in _SERIES.findall(section)]
    if not series:
        raise ValueError("the page has no table of series")
    return series


def _read_count(cell: str) -> Count:
    numbers = _COUNT.search(cell)
    return Count(int(numbers[1]), int(numbers[2])) if numbers else Count(0, 0)


def add_up(series: Sequence[Answers]) -> Answers:
    """The sums of these series."""
    dates, *columns = zip(*series, strict=True)
    return Answers(
        max(dates), *(Count(sum(c.right for c in column), sum(c.total for c in column)) for column in columns)
    )


def without_false_alarm(series: Sequence[Answers]) -> Sequence[Answers]:
    """The series after the last one with a false alarm."""
    last = max((place for place, answers in enumerate(series) if answers.false_alarms.right), default=-1)
    return series[last + 1 :]


def accuracy_sentence(page: str) -> str:
    """The README's line, from the text of docs/accuracy.md."""
    series = read_series(page)
    total = add_up(series)
    return (
        f"**How often it is right**, until {total.date}, at the first look at unseen scripts on Gloo: called hung but not hung:"
        f" {total.false_alarms}; culprits right: {total.culprits} ([more](#how-often-it-is-right))."
    )


def accuracy_lines(page: str) -> list[str]:
    """The README's table, from the text of docs/accuracy.md. Its second column is there only if the newest series have no false
    alarm."""
    every = read_series(page)
    newest = without_false_alarm(every)
    columns = [(f"all {len(every)} series", add_up(every))]
    if newest and len(newest) < len(every):
        columns.append((f"the {len(newest)} series since the last false alarm", add_up(newest)))
    sums = [total for _, total in columns]
    rows = (
        ("", [name for name, _ in columns]),
        ("---", ["---"] * len(columns)),
        ("verdict right", [str(total.verdicts) for total in sums]),
        ("false alarm: not hung, but called hung", [str(total.false_alarms) for total in sums]),
        ("culprits right: exactly those ranks", [str(total.culprits) for total in sums]),
    )
    return [
        *(f"| {' | '.join((first, *cells))} |".replace("|  |", "| |") for first, cells in rows),
        "",
        f"The leading finding named the right cause for {sums[0].causes} hung scripts.",
    ]


def write_accuracy() -> None:
    """Write the README's line and table."""
    page = ACCURACY.read_text()
    between(README, "accuracy in a line", [accuracy_sentence(page)])
    between(README, "accuracy", accuracy_lines(page))
