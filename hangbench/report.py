"""The figures as lines and tables: for the terminal, docs/accuracy.md and the README."""

import datetime
import platform
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.table import Table

from hangbench.look import Look
from hangbench.peers import labels_right
from hangbench.score import SURE, Score, Totals
from hangdoc.version import __version__

_ROOT = Path(__file__).parents[1]
ACCURACY = _ROOT / "docs" / "accuracy.md"
README = _ROOT / "README.md"
_VERDICTS = ("healthy", "waiting", "hung", "unknown", "none")


def line(score: Score) -> str:
    """One case, one line."""
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
    read = f"{statistics.median(lines):.0f} lines of stacks to read" if lines else "-"
    return [
        ("verdict", _percent(totals.verdicts), _percent(naive_verdict), "none given"),
        ("controls called hung", _percent(totals.controls_called_hung), _percent(naive_hung), "-"),
        ("labels of ranks", _percent(totals.sums("labels")), _percent(labels("naive")), _percent(labels("py_spy"))),
        ("states of ranks", _percent(totals.sums("states")), "-", "-"),
        ("operations", _percent(totals.sums("operations")), "-", "-"),
        ("cause (leading finding)", _percent(totals.causes), "none given", read),
        ("culprits, precision", _percent(totals.precision), "none given", "-"),
        ("culprits, recall", _percent(totals.recall), "none given", "-"),
        ("nothing claimed where nothing is wrong", _percent(totals.quiet), "-", "-"),
        ("ranks left as they were", _percent(_sum(look.undisturbed for look in looks)), "-", "-"),
        (f"findings with confidence ≥ {SURE:g} that are right", _percent(totals.sums("sure")), "-", "-"),
    ]


def _sum(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    pairs = list(pairs)
    return sum(right for right, _ in pairs), sum(total for _, total in pairs)


def _same(verdict: str | None, score: Score) -> bool:
    """The naive rule knows no waiting: healthy is right for it too where a run only waits."""
    return verdict in score.case.verdict or (verdict == "healthy" and "waiting" in score.case.verdict)


def table(looks: Sequence[Look]) -> Table:
    """For the terminal."""
    found = Table("figure", "hangdoc", "naive rule", "py-spy dump", title=f"{len(looks)} cases", title_justify="left")
    for row in rows(looks):
        found.add_row(*row)
    return found


def confusion(looks: Sequence[Look]) -> list[str]:
    """What was said against what is true, as lines of Markdown."""
    truths = ("healthy", "waiting", "hung")
    seen = [v for v in _VERDICTS if any(look.score.verdict == v for look in looks)]
    lines = ["| true \\ said | " + " | ".join(seen) + " |", "| --- |" + " --- |" * len(seen)]
    for truth in truths:
        # A healthy run may be seen while it waits: both are right, and it stands in the row of what was said.
        mine = [
            look.score for look in looks
            if (look.score.verdict if look.score.verdict_right else look.score.case.verdict[0]) == truth
        ]  # fmt: skip
        lines.append(f"| {truth} | " + " | ".join(str(sum(s.verdict == v for s in mine)) for v in seen) + " |")
    return lines


def _markdown(looks: Sequence[Look]) -> list[str]:
    return [
        "| | hangdoc | naive rule | `py-spy dump` |",
        "| --- | --- | --- | --- |",
        *(f"| {' | '.join(row)} |" for row in rows(looks)),
    ]


def write(looks: Sequence[Look], left_out: Sequence[str], window: float, native: str) -> None:
    """docs/accuracy.md's parts between their marks, and the README's."""
    controls = sum(look.score.case.control for look in looks)
    about = [
        f"{len(looks)} cases, {controls} of them controls that are not hung; run live on {datetime.date.today()}, "  # noqa: DTZ011
        f"hangdoc {__version__}, Python {platform.python_version()}, window {window:g} s, native stacks: {native}.",
        "",
    ]
    listing = ["| case | truth | said | finding | what is true |", "| --- | --- | --- | --- | --- |"]
    for look in looks:
        case, score = look.score.case, look.score
        said = score.verdict if score.right else f"**{score.verdict}** ({score.complaints()})"
        truth = " ".join(case.truth.split()).replace("|", "\\|")
        listing.append(f"| {case.name} | {' or '.join(case.verdict)} | {said} | {score.leading or '-'} | {truth} |")
    plain = Totals([look.without_native for look in looks])
    lost = [f"{s.case.name} ({s.complaints()})" for s in plain.scores if not s.right]
    native_never = [
        "",
        f"The same looks without native frames (`--native never`): verdict {_percent(plain.verdicts)}, cause "
        f"{_percent(plain.causes)}, culprits' precision {_percent(plain.precision)}, recall {_percent(plain.recall)}, controls "
        f"called hung {_percent(plain.controls_called_hung)}. Lost: {'; '.join(lost) or 'nothing'}.",
    ]
    left = ["", *(f"Left out: {name}." for name in left_out)] if left_out else []
    between(ACCURACY, "figures", [*about, *_markdown(looks), "", *confusion(looks), *native_never, *left])
    between(ACCURACY, "cases", listing)
    between(README, "accuracy", [*_markdown(looks), "", *confusion(looks)])


def write_beacons(looks: Sequence[Look], left_out: Sequence[str]) -> None:
    """The table of looks at ranks with a watchdog."""
    found = rows(looks)
    lost = [f"{look.score.case.name} ({look.score.complaints()})" for look in looks if not look.score.right]
    text = [
        f"{len(looks)} cases, run live on {datetime.date.today()}.",  # noqa: DTZ011
        "",
        "| | with beacons |",
        "| --- | --- |",
        *(f"| {figure} | {ours} |" for figure, ours, _, _ in found),
        "",
        f"Lost: {'; '.join(lost) or 'nothing'}.",
        *(f"Left out: {name}." for name in left_out),
    ]
    between(ACCURACY, "beacons", text)


def write_soak(looks: int, controls: int, hung: int, errors: int) -> None:
    """The soak's line."""
    text = f"{looks} looks at {controls} controls with windows of 0.1 to 1 s: **{hung}** called hung, {errors} errors."
    between(ACCURACY, "soak", [text])
    between(README, "soak", [text])


def between(path: Path, mark: str, lines: Sequence[str]) -> None:
    """Replace what stands between `<!-- MARK -->` and `<!-- /MARK -->`; raises ValueError where the marks are missing."""
    text = path.read_text()
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{path} has no marks for {mark}")
    path.write_text(pattern.sub(lambda m: m[1] + "\n".join(lines) + "\n" + m[2], text))
