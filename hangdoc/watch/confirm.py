"""When a hang is sure: two looks in a row that say the same, and long enough. Pure."""

from dataclasses import dataclass

from hangdoc.diagnosis import Diagnosis, Job

_Story = tuple[str, tuple[int, ...]]


@dataclass
class _Suspect:
    story: _Story
    since: float
    looks: int
    told: bool


class Confirmation:
    """Takes one diagnosis after another."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._suspects: dict[str, _Suspect] = {}

    def add(self, diagnosis: Diagnosis, now: float) -> list[Job]:
        """Jobs whose hang has become sure with this look; each is told once, and again after it has moved. `now` in seconds of
        any clock that does not jump."""
        sure = []
        hung = {job.id: job for job in diagnosis.jobs if job.verdict == "hung"}
        for gone in set(self._suspects) - set(hung):
            del self._suspects[gone]
        for name, job in hung.items():
            story = _story(job)
            suspect = self._suspects.get(name)
            if suspect is None or suspect.story != story:
                told = suspect is not None and suspect.told  # another finding about a hang that was told is no news
                suspect = self._suspects[name] = _Suspect(story, now, 0, told)
            suspect.looks += 1
            age = max(now - suspect.since, job.hung_for_seconds or 0.0)
            if not suspect.told and suspect.looks >= 2 and age >= self._patience:
                suspect.told = True
                sure.append(job)
        return sure


def _story(job: Job) -> _Story:
    first = next(iter(job.findings), None)
    return (first.code, first.culprits) if first is not None else ("", ())
