"""The table of the results, as text."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hangbench.gpu.case import card_cases
from hangbench.gpu.trial import Trial


def results_table(
    trials: Sequence[Trial], left_out: Sequence[str], phases: Mapping[str, tuple[float, float]], samples: Path
) -> str:
    """A line for each case, then the sums, then the card by phase."""
    lines = [
        f"{'case':<22}{'right answer':<24}{'answer':<24}{'frozen':>7}{'look':>6}  result; torch's record against its own dump"
    ]
    for trial in trials:
        case = card_cases()[trial.case]
        truth = _answer("/".join(case.verdict), case.finding, case.culprits)
        answer = _answer(trial.verdict or "none", trial.finding, trial.culprits)
        mark = {True: "right", False: f"WRONG: {trial.complaints}", None: "no answer"}[trial.right]
        looks = [
            f"{name} look: {verdict}"
            for name, verdict in (("early", trial.early), ("second", trial.again))
            if verdict == "hung"
        ]
        notes = "; ".join([mark, *looks, trial.recorder or "no dump", *trial.problems])
        frozen = f"{trial.frozen - trial.began:.1f}" if trial.frozen is not None else "-"
        look = f"{trial.look_seconds:.1f}" if trial.look_seconds is not None else "-"
        lines.append(f"{trial.case:<22}{truth:<24}{answer:<24}{frozen:>7}{look:>6}  {notes}")
    lines += [
        "",
        *_sums(trials),
        *(f"left out: {name}" for name in left_out),
        "",
        *_card_lines(phases, trials, samples),
    ]
    return "\n".join(lines) + "\n"


def markdown(trials: Sequence[Trial]) -> list[str]:
    """The lines of the table for docs/accuracy-gpu.md."""
    lines = ["| case | right verdict | verdict | finding | description |", "| --- | --- | --- | --- | --- |"]
    for trial in trials:
        case = card_cases()[trial.case]
        verdict = trial.verdict or "none"
        reported = verdict if trial.right else f"**{verdict}** ({trial.complaints or 'no answer'})"
        truth = " ".join(case.truth.split()).replace("|", "\\|")
        lines.append(f"| {case.name} | {' or '.join(case.verdict)} | {reported} | {trial.finding or '-'} | {truth} |")
    return [*lines, "", *_sums(trials)]


def _sums(trials: Sequence[Trial]) -> list[str]:
    answered = [trial for trial in trials if trial.right is not None]
    controls = [trial for trial in answered if card_cases()[trial.case].control]
    early = [trial.early for trial in trials if trial.early not in (None, "-")]
    again = [trial.again for trial in trials if trial.again is not None]
    return [
        f"{sum(trial.right is True for trial in trials)} of {len(trials)} right, {len(trials) - len(answered)} without an answer",
        f"{sum(trial.verdict == 'hung' for trial in controls)} of {len(controls)} controls called hung, "
        f"{again.count('hung')} of {len(again)} at a second look; {early.count('hung')} of {len(early)} runs at their start",
    ]


def _answer(verdict: str, finding: str | None, culprits: Sequence[int]) -> str:
    return " ".join([verdict, finding or "-", ",".join(map(str, culprits))]).strip()


def _watts(milliwatts: Sequence[int]) -> str:
    """Median and highest power."""
    return (
        f"{median(milliwatts) / 1000:.0f} W (at most {max(milliwatts) / 1000:.0f})" if milliwatts else "power unknown"
    )


def _card_lines(phases: Mapping[str, tuple[float, float]], trials: Sequence[Trial], samples: Path) -> list[str]:
    if not samples.exists():
        return []
    rows: list[dict[str, Any]] = []
    for line in samples.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:  # the last line, if it was cut
            continue
    lines = [f"the card: {row['card']}" for row in rows if "card" in row] + [f"{row}" for row in rows if "error" in row]
    spans = dict(phases)
    if "cases" in phases:
        began = phases["cases"][0] - min((trial.began for trial in trials), default=0.0)
        spans |= {
            trial.case: (began + trial.frozen, began + trial.ended)
            for trial in trials
            if trial.frozen is not None and trial.ended is not None
        }
    for name, (first, last) in spans.items():
        inside = [row for row in rows if "gpu" in row and first <= row["at"] <= last]
        if inside:
            power = [row["mw"] for row in inside if isinstance(row["mw"], int)]
            lines.append(
                f"{name:<22}{len(inside):>4} samples, utilisation {median(row['gpu'] for row in inside):.0f} %, memory "
                f"{median(row['memory'] for row in inside):.0f} %, "
                f"{_watts(power)}, SM {inside[-1]['sm_mhz']} MHz"
            )
    return lines
