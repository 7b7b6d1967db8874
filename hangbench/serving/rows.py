"""The rows of the table of first looks."""

import json
from pathlib import Path
from typing import Any

from hangbench.serving.system import State, System
from hangbench.serving.table import SYSTEMS

HEADER = """# First looks at serving systems

Written by `python -m hangbench.serving` from the results next to the bundles. `right` is the verdict and the process
where the cause lies. The answer has, for each job, its verdict, [the ranks that were seen], and each finding
with its severity and (culprits).

| system | state | pid of | answer | exit | summaries | right |
| --- | --- | --- | --- | --- | --- | --- |
"""


def write_table(table: Path, bundles: Path) -> None:
    """Write the rows of all states that have a result."""
    text = HEADER
    for system in SYSTEMS:
        for state in system.states:
            result = bundles / f"{system.name}-{state.name}.result.json"
            if result.exists():
                text += rows(system, state, json.loads(result.read_text()))
    text += "\n## What is real\n\n" + "".join(f"- {system.name}: {system.real}\n" for system in SYSTEMS)
    text += "\n## The states\n\n"
    text += "".join(f"- {system.name}/{state.name}: {state.truth}\n" for system in SYSTEMS for state in system.states)
    table.write_text(text)


def rows(system: System, state: State, result: dict[str, Any]) -> str:
    """One row for each look."""
    names = {pid: role for role, pid in result["roles"].items()}
    right = f"{'/'.join(state.verdict)}: {', '.join(state.cause) or 'nothing is wrong'}"
    lines = []
    for look in result["looks"]:
        pid = f"{look['view']} ({names[look['pid']]})" if look["pid"] is not None else "none (host)"
        answer, says = _answer(look["document"], names) if look["document"] else ("no document", look["stderr"].strip())
        cells = (system.name, state.name, pid, answer, str(look["exit"]), says, right)
        lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |\n")
    return "".join(lines)


def _answer(document: dict[str, Any], names: dict[int, str]) -> tuple[str, str]:
    answers, says = [], []
    for job in document["jobs"]:
        pids = {rank["rank"]: rank.get("pid") for rank in job["ranks"]}
        findings = []
        for finding in job["findings"]:
            who = ", ".join(names.get(pids.get(rank) or 0, f"rank {rank}?") for rank in finding["culprits"])
            findings.append(f"{finding['code']} {finding['severity']} ({who})")
            says.append(f"{finding['code']}: {finding['summary']}")
        ranks = ", ".join(names.get(pid, f"pid {pid}") for pid in pids.values())
        answers.append(f"**{job['verdict']}** [{ranks}] {'; '.join(findings)}".strip())
    if not document["jobs"]:
        answers.append(f"**{document['verdict']}**, no job")
        says += [str(problem) for problem in document.get("problems", [])]
    return "<br>".join(answers), "<br>".join(says)
