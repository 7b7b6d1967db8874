"""Writes the results as lines and tables: for the terminal, docs/accuracy.md and docs/accuracy-cases.md."""

import datetime
import platform
import statistics
from collections.abc import Iterable, Sequence

from rich.table import Table

from hangbench.case import cases
from hangbench.look import Look
from hangbench.marks import between
from hangbench.peers import labels_right
from hangbench.readme import ACCURACY, write_accuracy
from hangbench.score import SURE, Score, Totals
from hangdoc.version import __version__

CASES = ACCURACY.with_name("accuracy-cases.md")
_VERDICTS = ("healthy", "waiting", "hung", "unknown", "none")


def line(score: Score) -> str:
    """The line about one case."""
    mark = "[green]right[/]" if score.right else f"[red]WRONG[/] {score.complaints()}"
    return f"{score.case.name:<32}{score.verdict:<9}{score.leading or '-':<7}{score.seconds:5.1f} s  {mark}"


def _percent(pair: tuple[int, int]) -> str:
    right, total = pair
    return f"{100 * right / total:.0f} % ({right}/{total})" if total else "-"


def rows(looks: Sequence[Look]) -> list[tuple[str, str, str, str]]:
    """(figure, hangdoc, naive rule, py-spy dump)."""
    totals = Totals([look.score for look in looks])
    simple = [look for look in looks if look.naive.verdict is not None]
    naive_verdict = (
        sum(_same(look.naive.verdict, look.score) for look in simple),
        len(simple),
    )
    naive_hung = (
        sum(look.naive.verdict == "hung" for look in looks if look.score.case.control),
        sum(look.score.case.control for look in looks),
    )

    def labels(which: str) -> tuple[int, int]:
        return _sum(labels_right(look.score.case, getattr(look, which)) for look in looks)

    lines = [look.py_spy.lines for look in looks if look.py_spy.lines]
    read = f"none given ({statistics.median(lines):.0f} lines of stacks)" if lines else "-"
    return [
        ("verdict", _percent(totals.verdicts), _percent(naive_verdict), "none given"),
        ("healthy, slow or waiting runs called hung", _percent(totals.controls_called_hung), _percent(naive_hung), "-"),
        ("rank is computing, blocked or dead", _percent(totals.sums("labels")), _percent(labels("naive")),
         _percent(labels("py_spy"))),
        ("detailed state of a rank", _percent(totals.sums("states")), "-", "-"),
        ("collective or call that a rank is in", _percent(totals.sums("operations")), "-", "-"),
        ("cause (leading finding)", _percent(totals.causes), "none given", read),
        ("ranks named as culprits that are culprits", _percent(totals.precision), "none given", "-"),
        ("culprits that are named", _percent(totals.recall), "none given", "-"),
        ("runs without a fault and without a false warning", _percent(totals.quiet), "-", "-"),
        ("processes unchanged after the look", _percent(_sum(look.undisturbed for look in looks)), "-", "-"),
        (f"findings with a score of {SURE * 100:.0f} or more that are right", _percent(totals.sums("sure")), "-", "-"),
    ]  # fmt: skip


def _sum(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    pairs = list(pairs)
    return sum(right for right, _ in pairs), sum(total for _, total in pairs)


def _same(verdict: str | None, score: Score) -> bool:
    """Whether a verdict of the naive rule is right. It has no verdict `waiting`, so `healthy` counts as right for a waiting
    run."""
    return verdict in score.case.verdict or (verdict == "healthy" and "waiting" in score.case.verdict)


def table(looks: Sequence[Look]) -> Table:
    """The table for the terminal."""
    shown = Table("figure", "hangdoc", "naive rule", "py-spy dump", title=f"{len(looks)} cases", title_justify="left")
    for row in rows(looks):
        shown.add_row(*row)
    return shown


def confusion(looks: Sequence[Look]) -> list[str]:
    """The verdicts about runs that are hung and about runs that are not, as lines of Markdown."""
    seen = [v for v in _VERDICTS if any(look.score.verdict == v for look in looks)]
    lines = ["| truth \\ verdict | " + " | ".join(seen) + " |", "| --- |" + " --- |" * len(seen)]
    for truth, control in (("hung", False), ("not hung", True)):
        mine = [look.score for look in looks if look.score.case.control == control]
        lines.append(f"| {truth} | " + " | ".join(str(sum(s.verdict == v for s in mine)) for v in seen) + " |")
    return lines


def _markdown(looks: Sequence[Look]) -> list[str]:
    return [
        "| | hangdoc | naive rule | `py-spy dump` |",
        "| --- | --- | --- | --- |",
        *(f"| {' | '.join(row)} |" for row in rows(looks)),
    ]


def write(looks: Sequence[Look], left_out: Sequence[str], window: float, native: str) -> None:
    """Write the parts of docs/accuracy.md and docs/accuracy-cases.md between their marks, and the README's table."""
    controls = sum(look.score.case.control for look in looks)
    about = [
        f"{len(looks)} of the {len(cases())} cases, {controls} of them not hung; run live on {datetime.date.today()}, "  # noqa: DTZ011
        f"hangdoc {__version__}, Python {platform.python_version()}, window {window:g} s, `--native {native}`.",
        "",
    ]
    listing = ["| case | right verdict | verdict | finding | description |", "| --- | --- | --- | --- | --- |"]
    for look in looks:
        case, score = look.score.case, look.score
        reported = score.verdict if score.right else f"**{score.verdict}** ({score.complaints()})"
        truth = " ".join(f"{case.truth} {case.known_miss or ''}".split()).replace("|", "\\|")
        listing.append(f"| {case.name} | {' or '.join(case.verdict)} | {reported} | {score.leading or '-'} | {truth} |")
    plain = Totals([look.without_native for look in looks])
    lost = [f"{s.case.name} ({s.complaints()})" for s in plain.scores if not s.right]
    native_never = [
        "",
        f"The same looks without C++ frames (`--native never`): verdict {_percent(plain.verdicts)}; cause "
        f"{_percent(plain.causes)}; ranks named as culprits that are culprits {_percent(plain.precision)}; culprits that are "
        f"named {_percent(plain.recall)}; runs called hung that are not {_percent(plain.controls_called_hung)}. Not right: "
        f"{'; '.join(lost) or 'none'}.",
    ]
    left = ["", *(f"Left out: {name}." for name in left_out)] if left_out else []
    between(ACCURACY, "figures", [*about, *_markdown(looks), "", *confusion(looks), *native_never, *left])
    between(CASES, "cases", listing)
    write_accuracy()


def write_beacons(looks: Sequence[Look], left_out: Sequence[str]) -> None:
    """Write the table about runs whose ranks have a watchdog."""
    figures = rows(looks)
    lost = [f"{look.score.case.name} ({look.score.complaints()})" for look in looks if not look.score.right]
    text = [
        f"{len(looks)} of the {len(cases())} cases, run live on {datetime.date.today()}.",  # noqa: DTZ011
        "",
        "| | with the watchdog |",
        "| --- | --- |",
        *(f"| {figure} | {ours} |" for figure, ours, _, _ in figures),
        "",
        f"Not right: {'; '.join(lost) or 'none'}.",
        *(f"Left out: {name}." for name in left_out),
    ]
    between(ACCURACY, "beacons", text)


def write_soak(looks: int, controls: int, hung: int, errors: int) -> None:
    """Write the line about the soak."""
    text = (
        f"{looks} looks at {controls} runs that are not hung, with windows of 0.1 to 1 s, on {datetime.date.today()}: "  # noqa: DTZ011
        f"**{hung}** called hung, {errors} errors."
    )
    between(ACCURACY, "soak", [text])
