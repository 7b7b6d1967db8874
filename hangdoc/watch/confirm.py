"""When a hang is sure: two looks in a row that find the same, and long enough. Pure."""

from dataclasses import dataclass, field

from hangdoc.diagnosis import Diagnosis, Job


@dataclass
class _Suspect:
    hang: frozenset[str]
    """Ids of the error findings that every look since then had."""
    since: float
    looks: int
    reported: bool


@dataclass(frozen=True)
class News:
    """What a look changed."""

    sure: list[Job] = field(default_factory=list)
    """Jobs whose hang has become sure with this look."""
    over: list[Job] = field(default_factory=list)
    """Jobs whose hang was sure, and that make progress again."""
    soon: bool = False
    """Whether one more look may be all that a hang lacks."""


class Confirmation:
    """Takes one diagnosis after another."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._suspects: dict[str, _Suspect] = {}

    def add(self, diagnosis: Diagnosis, now: float) -> News:
        """What is new with this look. A hang becomes sure once, and again after the job has made progress. `now` in seconds of
        any clock that does not jump."""
        sure, over, soon = [], [], False
        jobs = {job.id: job for job in diagnosis.jobs}
        for name, suspect in list(self._suspects.items()):
            job = jobs.get(name)
            if job is not None and (job.verdict == "hung" or (suspect.reported and job.verdict == "unknown")):
                continue  # one look that sees too little does not end a hang
            if job is not None and suspect.reported:
                over.append(job)
            del self._suspects[name]
        for name, job in jobs.items():
            if job.verdict != "hung":
                continue
            hang = frozenset(finding.id for finding in job.findings if finding.severity == "error")
            known = self._suspects.get(name)
            if known is None or not known.hang & hang:
                reported = known is not None and known.reported  # another finding about a reported hang is no news
                known = self._suspects[name] = _Suspect(hang, now, 0, reported)
            known.hang &= hang
            known.looks += 1
            age = max(now - known.since, job.hung_for_seconds or 0.0)
            if known.reported or age < self._patience:
                continue
            if known.looks >= 2:
                known.reported = True
                sure.append(job)
            else:
                soon = True
        return News(sure, over, soon)
