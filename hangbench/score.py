"""Compares a diagnosis with the truth about its case."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hangbench.case import Case
from hangdoc.diagnosis import Diagnosis, Finding, Job
from hangdoc.snapshot import Snapshot

SURE = 0.9


@dataclass(frozen=True)
class Score:
    """The score of one look at one case."""

    case: Case
    verdict: str
    """The reported verdict; `none` if there was no job."""
    verdict_right: bool
    called_hung: bool
    labels: tuple[int, int]
    """(right, all), over the ranks for which only one label is right."""
    states: tuple[int, int]
    operations: tuple[int, int]
    leading: str | None
    cause_right: bool
    blamed: frozenset[int]
    """Culprits of the first finding."""
    victims_right: bool
    accused: frozenset[int]
    """Victims that are culprits of some finding."""
    sure: tuple[int, int]
    """(right, all), over the warnings and errors with a confidence of at least SURE."""
    problems: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def culprits(self) -> frozenset[int]:
        """The right culprits."""
        return frozenset(self.case.culprits)

    @property
    def right(self) -> bool:
        """Whether all parts are right."""
        return (
            self.verdict_right and self.cause_right and self.blamed == self.culprits and self.victims_right
            and not self.accused and not self.problems
            and all(right == total for right, total in (self.labels, self.states, self.operations, self.sure))
        )  # fmt: skip

    def complaints(self) -> str:
        """What is wrong, in a few words."""
        wrong = []
        if not self.verdict_right:
            wrong.append(f"verdict {self.verdict} instead of {'/'.join(self.case.verdict)}")
        if not self.cause_right:
            wrong.append(f"{self.leading} instead of {self.case.finding}")
        if self.blamed != self.culprits:
            wrong.append(f"culprits {sorted(self.blamed)} instead of {sorted(self.culprits)}")
        if not self.victims_right:
            wrong.append("wrong victims")
        if self.accused:
            wrong.append(f"victims {sorted(self.accused)} named as culprits")
        for name in ("labels", "states", "operations", "sure"):
            right, total = getattr(self, name)
            if right != total:
                wrong.append(f"{name} {right}/{total}")
        return "; ".join([*wrong, *self.problems])


def job_of(case: Case, diagnosis: Diagnosis, snapshot: Snapshot) -> Job | None:
    """The job to score: if there are several, the one that runs the case's script. None if there is no job."""
    ports = {
        process.identity.master_port
        for host in snapshot.hosts
        for process in host.processes
        if process.identity is not None and any(word.endswith(f"/{case.script.name}") for word in process.argv)
    }
    mine = [job for job in diagnosis.jobs if any((job.master or "").endswith(f":{port}") for port in ports)]
    return max(mine or diagnosis.jobs, key=lambda job: len(job.ranks), default=None)


def score(case: Case, diagnosis: Diagnosis, snapshot: Snapshot, seconds: float = 0.0) -> Score:
    """Score a diagnosis of `snapshot`, a look at `case` that took `seconds`."""
    job = job_of(case, diagnosis, snapshot)
    findings = job.findings if job else ()
    leading = findings[0] if findings else None
    beside_hung = any(other.verdict == "hung" for other in diagnosis.jobs if other is not job)
    ranks = job.ranks if job else ()
    operations = [rank.operation.op if rank.operation else "" for rank in ranks]
    verdict = job.verdict if job else "none"
    claims = [f for f in findings if f.severity != "info"]
    sure = [f for f in claims if f.confidence >= SURE]
    # A note, or a finding that the case allows, accuses nobody wrongly.
    allowed = leading is None or leading.severity == "info" or leading.code in case.also
    counted = case.finding is not None or not allowed
    return Score(
        case=case,
        verdict=verdict,
        verdict_right=verdict in case.verdict and not beside_hung,
        called_hung=verdict == "hung" or beside_hung,
        labels=_matches(case.labels, [rank.label for rank in ranks]),
        states=_matches(case.states, [rank.state for rank in ranks]),
        operations=_matches(case.operations, operations),
        leading=leading.code if leading else None,
        cause_right=_cause_right(case, findings),
        blamed=frozenset(leading.culprits) if leading and counted else frozenset(),
        victims_right=case.finding is None or (leading is not None and leading.victims == case.victims),
        accused=frozenset(r for f in claims for r in f.culprits) & frozenset(case.victims),
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
    """The scores of many looks together."""

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
        """Right causes, over the runs that have one."""
        return self.share(s.cause_right for s in self.scores if s.case.finding is not None)

    @property
    def quiet(self) -> tuple[int, int]:
        """Runs without a cause and without a wrong finding."""
        return self.share(s.cause_right for s in self.scores if s.case.finding is None)

    @property
    def controls_called_hung(self) -> tuple[int, int]:
        """Controls that were called hung, which is the worst bug."""
        return self.share(s.called_hung for s in self.scores if s.case.control)

    def sums(self, name: str) -> tuple[int, int]:
        """The sum of a field that is a pair (right, all)."""
        pairs = [getattr(s, name) for s in self.scores]
        return sum(right for right, _ in pairs), sum(total for _, total in pairs)

    @property
    def precision(self) -> tuple[int, int]:
        """Precision: reported culprits that are right."""
        return sum(len(s.blamed & s.culprits) for s in self.scores), sum(len(s.blamed) for s in self.scores)

    @property
    def recall(self) -> tuple[int, int]:
        """Recall: right culprits that are reported."""
        return sum(len(s.blamed & s.culprits) for s in self.scores), sum(len(s.culprits) for s in self.scores)
