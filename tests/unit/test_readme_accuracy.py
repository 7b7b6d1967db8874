"""The README's figures about accuracy are those of docs/accuracy.md."""

import pytest

from hangbench.readme import ACCURACY, README, accuracy_lines, accuracy_sentence, read_series

PAGE = """
## Scripts written after the rules

| series | date | verdict right | not hung, but called hung | cause right, of the hung | culprits right, if named |
| --- | --- | --- | --- | --- | --- |
| 1 | 2026-11-22 | 8 of 10 | {first} | 5 of 6 | 3 of 4 |
| 2 | 2026-11-23 | 9 of 10 | {second} | 6 of 6 |  |
| **all** | | 17 of 20 | 1 of 8 | 11 of 12 | 3 of 4 |

## Programs from public repositories

| 3 | 2026-11-24 | 1 of 100 | **50 of 50** | 0 of 50 | 0 of 50 |
"""


def test_the_readme_has_the_figures_of_the_page() -> None:
    table = "\n".join(accuracy_lines(ACCURACY.read_text()))
    assert f"<!-- accuracy -->\n{table}\n<!-- /accuracy -->" in README.read_text()
    line = accuracy_sentence(ACCURACY.read_text())
    assert f"<!-- accuracy in a line -->\n{line}\n<!-- /accuracy in a line -->" in README.read_text()


def test_the_line_has_the_date_of_the_newest_series() -> None:
    line = accuracy_sentence(PAGE.format(first="**1 of 4**", second="0 of 4"))
    assert "until 2026-11-23" in line
    assert "not hung: 1 of 8" in line
    assert "culprits right: 3 of 4" in line


def test_the_row_of_sums_is_the_sum_of_the_series() -> None:
    page = ACCURACY.read_text()
    sums = accuracy_lines(page)
    total = next(line for line in page.splitlines() if line.startswith("| **all** |"))
    _, _, verdicts, alarms, causes, culprits = (cell.strip(" *") for cell in total.strip("|").split("|"))
    assert [line.split(" | ")[1].rstrip(" |") for line in sums[2:5]] == [verdicts, alarms, culprits]
    assert causes in sums[-1]


@pytest.mark.parametrize(
    ("first", "second", "alarms"),
    [
        ("**1 of 4**", "0 of 4", "| 1 of 8 | 0 of 4 |"),
        ("0 of 4", "**1 of 4**", "| 1 of 8 |"),  # no series is newer than the last false alarm
        ("0 of 4", "none", "| 0 of 4 |"),  # all series are
    ],
)
def test_the_newest_series_are_those_since_the_last_false_alarm(first: str, second: str, alarms: str) -> None:
    lines = accuracy_lines(PAGE.format(first=first, second=second))
    assert lines[3] == f"| false alarm: not hung, but called hung {alarms}"


def test_a_page_without_series_is_refused() -> None:
    with pytest.raises(ValueError, match="no table of series"):
        read_series(PAGE.partition("## Scripts")[0])
