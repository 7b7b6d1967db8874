"""How right a diagnosis is, against what is true of its case."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hangbench.case import Case
from hangdoc.diagnosis import Diagnosis, Finding, Job
from hangdoc.snapshot import Snapshot

SURE = 0.9


@dataclass(frozen=True)
class Score:
    """One look at one case."""

    case: Case
    verdict: str
    """What was said; `none` for no job at all."""
    verdict_right: bool
    called_hung: bool
    labels: tuple[int, int]
    """(right, all), of the ranks of which one label is right."""
    states: tuple[int, int]
    operations: tuple[int, int]
    leading: str | None
    cause_right: bool
    blamed: frozenset[int]
    """Culprits of the leading finding."""
    victims_right: bool
    accused: frozenset[int]
    """Victims that some finding blames."""
    sure: tuple[int, int]
    """(right, all), of the findings of at least SURE confidence that are more than a note."""
    problems: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def culprits(self) -> frozenset[int]:
        """Whom it should have blamed."""
        return frozenset(self.case.culprits)

    @property
    def right(self) -> bool:
        """Whether nothing about it is wrong."""
        return (
            self.verdict_right and self.cause_right and self.blamed == self.culprits and self.victims_right
            and not self.accused and not self.problems
            and all(right == total for right, total in (self.labels, self.states, self.operations, self.sure))
        )  # fmt: skip

    def complaints(self) -> str:
        """What is wrong with it, in a few words."""
        wrong = []
        if not self.verdict_right:
            wrong.append(f"verdict {self.verdict} for {'/'.join(self.case.verdict)}")
        if not self.cause_right:
            wrong.append(f"{self.leading} for {self.case.finding}")
        if self.blamed != self.culprits:
            wrong.append(f"blames {sorted(self.blamed)} for {sorted(self.culprits)}")
        if not self.victims_right:
            wrong.append("victims")
        if self.accused:
            wrong.append(f"accuses {sorted(self.accused)}")
        for name in ("labels", "states", "operations", "sure"):
            right, total = getattr(self, name)
            if right != total:
                wrong.append(f"{name} {right}/{total}")
        return "; ".join([*wrong, *self.problems])


def job_of(case: Case, diagnosis: Diagnosis, snapshot: Snapshot) -> Job | None:
    """The job that is judged, where several were seen: the one that runs the case's script; None where there is none."""
    ports = {
        process.identity.master_port
        for host in snapshot.hosts
        for process in host.processes
        if process.identity is not None and any(word.endswith(f"/{case.script.name}") for word in process.argv)
    }
    mine = [job for job in diagnosis.jobs if any((job.master or "").endswith(f":{port}") for port in ports)]
    return max(mine or diagnosis.jobs, key=lambda job: len(job.ranks), default=None)


def score(case: Case, diagnosis: Diagnosis, snapshot: Snapshot, seconds: float = 0.0) -> Score:
    """Judge a diagnosis of a run of `case`, made of `snapshot`; `seconds` is what the look took."""
    job = job_of(case, diagnosis, snapshot)
    findings = job.findings if job else ()
    leading = findings[0] if findings else None
    beside_hung = any(other.verdict == "hung" for other in diagnosis.jobs if other is not job)
    ranks = job.ranks if job else ()
    operations = [rank.operation.op if rank.operation else "" for rank in ranks]
    said = job.verdict if job else "none"
    more = [f for f in findings if f.severity != "info"]
    sure = [f for f in more if f.confidence >= SURE]
    counted = leading is not None and (case.finding is not None or leading.severity != "info")
    return Score(
        case=case,
        verdict=said,
        verdict_right=said in case.verdict and not beside_hung,
        called_hung=said == "hung" or beside_hung,
        labels=_matches(case.labels, [rank.label for rank in ranks]),
        states=_matches(case.states, [rank.state for rank in ranks]),
        operations=_matches(case.operations, operations),
        leading=leading.code if leading else None,
        cause_right=_cause_right(case, findings),
        blamed=frozenset(leading.culprits) if leading and counted else frozenset(),
        victims_right=case.finding is None or (leading is not None and leading.victims == case.victims),
        accused=frozenset(r for f in more for r in f.culprits) & frozenset(case.victims),
        sure=(sum(_right(case, f) for f in sure), len(sure)),
        problems=diagnosis.problems,
        seconds=seconds,
    )


def _cause_right(case: Case, findings: tuple[Finding, ...]) -> bool:
    if case.finding is None:
        return all(f.severity == "info" or f.code in case.also for f in findings)
    return bool(findings) and (findings[0].code, findings[0].severity) == (case.finding, case.severity)


def _right(case: Case, finding: Finding) -> bool:
    if finding.code == case.finding:
        return finding.culprits == case.culprits
    return finding.code in case.also


def _matches(expected: Iterable[str | None], seen: Iterable[str | None]) -> tuple[int, int]:
    expected, seen = list(expected), list(seen)
    wanted = [(want, have) for want, have in zip(expected, [*seen, *[None] * len(expected)], strict=False) if want]
    return sum(want == have for want, have in wanted), len(wanted)


@dataclass
class Totals:
    """Many scores together."""

    scores: list[Score] = field(default_factory=list)

    def share(self, which: Iterable[bool]) -> tuple[int, int]:
        """(true, all)."""
        which = list(which)
        return sum(which), len(which)

    @property
    def verdicts(self) -> tuple[int, int]:
        """Right verdicts."""
        return self.share(s.verdict_right for s in self.scores)

    @property
    def causes(self) -> tuple[int, int]:
        """Right causes, among the runs that have one."""
        return self.share(s.cause_right for s in self.scores if s.case.finding is not None)

    @property
    def quiet(self) -> tuple[int, int]:
        """Runs without a cause of which nothing was claimed."""
        return self.share(s.cause_right for s in self.scores if s.case.finding is None)

    @property
    def controls_called_hung(self) -> tuple[int, int]:
        """The worst bug."""
        return self.share(s.called_hung for s in self.scores if s.case.control)

    def sums(self, name: str) -> tuple[int, int]:
        """(right, all) of a field that is such a pair."""
        pairs = [getattr(s, name) for s in self.scores]
        return sum(right for right, _ in pairs), sum(total for _, total in pairs)

    @property
    def blames(self) -> tuple[int, int]:
        """Runs in which exactly the ranks at fault are blamed, among the runs that have one."""
        return self.share(s.blamed == s.culprits for s in self.scores if s.culprits)

    @property
    def precision(self) -> tuple[int, int]:
        """Of the ranks blamed, those to blame."""
        return sum(len(s.blamed & s.culprits) for s in self.scores), sum(len(s.blamed) for s in self.scores)

    @property
    def recall(self) -> tuple[int, int]:
        """Of the ranks to blame, those blamed."""
        return sum(len(s.blamed & s.culprits) for s in self.scores), sum(len(s.culprits) for s in self.scores)
