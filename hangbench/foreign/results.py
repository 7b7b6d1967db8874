"""Compares a look with the truth, and stores the results.

The first look at a situation is stored forever, and the newest one in addition.
"""

import fcntl
import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from hangbench.foreign.program import Program, Situation
from hangbench.foreign.run import ROOT
from hangbench.marks import between
from hangbench.readme import ACCURACY

KEPT = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "accuracy-foreign.md"
_BY_CHANCE = {"lightning-cli/healthy": "e8c8971", "lightning-cli/healthy-detached": "e8c8971"}
"""Results, by their commit, that were right only because the machine was less busy. They count as wrong."""


@dataclass(frozen=True)
class LookResult:
    """The result of one look, and which parts of it are right (None: not applicable)."""

    commit: str
    version: str
    verdict: str
    leading: str | None
    culprits: tuple[int, ...]
    jobs: int
    verdict_right: bool
    culprit_right: bool | None
    cause_right: bool
    healthy_called_hung: bool | None
    seconds: float
    note: str

    @property
    def right(self) -> bool:
        """Whether all applicable parts are right."""
        return not self.wrong

    @property
    def wrong(self) -> list[str]:
        """The parts that are wrong."""
        parts = {"verdict": self.verdict_right, "culprit": self.culprit_right, "cause": self.cause_right}
        return [name for name, part in parts.items() if part is False]

    def line(self) -> str:
        """The line for the terminal."""
        blamed = f"{self.leading or '-'} {list(self.culprits)}"
        rating = f"WRONG {', '.join(self.wrong)}" if self.wrong else "right"
        return f"{self.verdict:<9}{blamed:<16}{self.seconds:5.1f} s  {rating}  {self.note}"


def judged(program: Program, situation: Situation, version: str, seen: dict[str, Any]) -> LookResult:
    """Compare a look of `run.inside` with the truth. A run is one job; several jobs count as a wrong verdict."""
    document = seen["document"] or {"jobs": [], "verdict": "none", "problems": []}
    nothing: dict[str, Any] = {"verdict": "none", "findings": [], "ranks": []}
    job: dict[str, Any] = max(document["jobs"], key=lambda candidate: len(candidate["ranks"]), default=nothing)
    findings = job["findings"]
    leading = findings[0] if findings else None
    world = program.world if situation.world is None else situation.world
    whole = len(document["jobs"]) == 1 and len(job["ranks"]) in (world or len(job["ranks"]),)
    notes = [] if whole else [f"{len(document['jobs'])} jobs, {len(job['ranks'])} of {world} ranks in this one"]
    notes += document["problems"][:2]
    if not seen["settled"]:
        notes.append("did not settle before the look")
    if situation.healthy and seen["steps_after"] <= seen["steps_before"]:
        notes.append("no step after the look")
    worse = [f for f in findings if f["severity"] != "info"]
    culprits = tuple(leading["culprits"]) if leading else ()
    return LookResult(
        commit=_commit(),
        version=version,
        verdict=document["verdict"],
        leading=leading["code"] if leading else None,
        culprits=culprits,
        jobs=len(document["jobs"]),
        verdict_right=document["verdict"] in situation.verdict and whole,
        culprit_right=None if situation.culprits is None else frozenset(culprits) in situation.culprits,
        cause_right=(leading is not None and leading["code"] in situation.codes) if situation.codes else not worse,
        healthy_called_hung=document["verdict"] == "hung" if "hung" not in situation.verdict else None,
        seconds=seen["seconds"],
        note="; ".join(notes)[:300],
    )


def truth(program: Program, situation: Situation) -> dict[str, Any]:
    """The truth, to store next to a bundle."""
    return {
        "program": program.name, "entry": program.entry, "situation": situation.name, "truth": situation.truth,
        "commands": situation.commands, "act": situation.act, "verdict": situation.verdict,
        "culprits": None if situation.culprits is None else [sorted(ranks) for ranks in situation.culprits],
        "codes": situation.codes,
    }  # fmt: skip


def _commit() -> str:
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", "hangdoc"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def kept() -> dict[str, dict[str, LookResult]]:
    """situation -> {"first": LookResult, "after": LookResult}; `after` only where there was a second look."""
    if not KEPT.exists() or not KEPT.stat().st_size:
        return {}
    return msgspec.json.decode(KEPT.read_bytes(), type=dict[str, dict[str, LookResult]])


def keep(key: str, answer: LookResult) -> None:
    """Store a result: as the first one if there is none, else as the newest."""
    with KEPT.open("a") as lock:  # several runs may be active at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        everything = kept()
        both = everything.setdefault(key, {})
        both["after" if "first" in both else "first"] = answer
        raw = {k: {which: asdict(a) for which, a in pair.items()} for k, pair in sorted(everything.items())}
        KEPT.write_text(json.dumps(raw, indent=1) + "\n")


def write_page(programs: tuple[Program, ...]) -> None:
    """The counts in docs/accuracy.md, and docs/accuracy-foreign.md with a line for each situation. Situations that
    were never looked at are left out."""
    answers = kept()
    pairs = [
        (program, situation, answers[key])
        for program in programs
        for situation in program.situations
        if (key := f"{program.name}/{situation.name}") in answers
    ]
    newest = [(program, situation, both.get("after", both["first"])) for program, situation, both in pairs]
    first = [(program, situation, both["first"]) for program, situation, both in pairs]
    tried = {program.name: program for program, _, _ in pairs}
    versions = {program.name: both["first"].version for program, _, both in pairs}
    again = sum("after" in both for _, _, both in pairs)
    lines = [
        f"{len(tried)} programs of {len({p.package for p in tried.values()})} packages, {len(pairs)} situations, "
        f"{sum(s.healthy for _, s, _ in pairs)} of them healthy. {again} were looked at again after a change.",
        "",
        "| | first look | newest look |",
        "| --- | --- | --- |",
        *(f"| {name} | {count(first)} | {count(newest)} |" for name, count in _COUNTS.items()),
    ]
    between(ACCURACY, "foreign", lines)
    lines = [
        "| program | package | entry point |",
        "| --- | --- | --- |",
        *(f"| {p.name} | {p.package} {versions[p.name]} | {p.entry} |" for p in tried.values()),
        "",
        "| situation | description | accepted | first look | right? | newest look | right? |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for program, situation, both in pairs:
        key = f"{program.name}/{situation.name}"
        after = _cells(key, both["after"]) if "after" in both else ("", "")
        cells = [key, situation.truth, _accepted(situation), *_cells(key, both["first"]), *after]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    between(PAGE, "foreign", lines)


def _accepted(situation: Situation) -> str:
    """The right answers, in words."""
    verdict = " or ".join(situation.verdict)
    if situation.healthy:
        return f"{verdict}, no warning"
    ranks = " or ".join(str(sorted(ranks)) for ranks in situation.culprits or ())
    scored = "" if situation.has_culprits else " (ranks not scored)"
    return f"{verdict} {' or '.join(situation.codes)} {ranks}".strip() + scored


def _cells(key: str, answer: LookResult) -> tuple[str, str]:
    blamed = f" {answer.leading} {list(answer.culprits)}" if answer.leading else ""
    note = f" ({answer.note.partition('. ')[0]})" if answer.note and not answer.right else ""
    text = f"{answer.verdict}{blamed} at {answer.commit}{note}"
    if _by_chance(key, answer):
        return text, "**by chance**: counted as wrong"
    return text, "yes" if answer.right else f"**no**: {', '.join(answer.wrong)}"


def _by_chance(key: str, answer: LookResult) -> bool:
    return _BY_CHANCE.get(key) == answer.commit


_Looks = Sequence[tuple[Program, Situation, LookResult]]


def _share(parts: Iterable[bool | None]) -> str:
    applying = [part for part in parts if part is not None]
    return f"{sum(applying)} of {len(applying)}"


_COUNTS: dict[str, Callable[[_Looks], str]] = {
    "verdict right": lambda looks: _share(a.verdict_right for _, _, a in looks),
    "culprit right": lambda looks: _share(a.culprit_right for _, s, a in looks if s.has_culprits),
    "leading cause right": lambda looks: _share(a.cause_right for _, s, a in looks if s.codes),
    "healthy run without a warning": lambda looks: _share(
        a.cause_right and not _by_chance(f"{p.name}/{s.name}", a) for p, s, a in looks if not s.codes
    ),
    "healthy called hung": lambda looks: _share(a.healthy_called_hung for _, _, a in looks),
}
