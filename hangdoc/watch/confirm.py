"""Decides when a hang is confirmed and when it is over: after two looks in a row, and a hang must have lasted long enough.
Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.watch.hangs import Ending, Hang, Place, errors, hang_of, places

_LOOKS = 2


@dataclass(frozen=True)
class Confirmed:
    """A hang that this look confirmed."""

    hang: Hang
    job: Job


@dataclass(frozen=True)
class Resolved:
    """A reported hang that is over."""

    hang: Hang
    job: Job | None
    """The job as it is now; None if it is gone, or if another run has its name."""
    ending: Ending


@dataclass(frozen=True)
class Changes:
    """What a look changed."""

    began: list[Confirmed] = field(default_factory=list)
    over: list[Resolved] = field(default_factory=list)
    soon: bool = False
    """Whether one more look may confirm a hang or its end."""

    @property
    def confirmed(self) -> list[Job]:
        """Jobs whose hang this look confirmed."""
        return [one.job for one in self.began]


class Confirmation:
    """Takes one diagnosis after another. `patience` in seconds; `hangs` are known from before a restart."""

    def __init__(self, patience: float, hangs: Iterable[Hang] = ()) -> None:
        self._patience = patience
        self._hangs = {hang.job: hang for hang in hangs}

    @property
    def hangs(self) -> tuple[Hang, ...]:
        """All hangs that are not over, also those that are not confirmed yet."""
        return tuple(self._hangs.values())

    def add(
        self,
        diagnosis: Diagnosis,
        now: float,
        hosts: Collection[str] | None = None,
        unread: Collection[Place] = (),
    ) -> Changes:
        """What this look changed. A hang is confirmed once, and again if it returns after its end. `now` in seconds of a
        monotonic clock. `hosts` are those that were observed (None: all), `unread` processes that are there and could not be
        read: the run of an unobserved host or process is not gone."""
        over, soon = [], False
        jobs = {job.id: job for job in diagnosis.jobs}
        for hang in list(self._hangs.values()):
            observed = (hosts is None or hang.hosts <= set(hosts)) and set(unread).isdisjoint(hang.processes)
            ended, again = self._ended(hang, jobs.get(hang.job), observed=observed)
            soon = soon or again
            over += ended
        began = []
        for job in jobs.values():
            if job.verdict != "hung":
                continue
            confirmed, again = self._seen(job, now, diagnosis.taken_at)
            soon = soon or again
            began += confirmed
        return Changes(began, over, soon)

    def _ended(self, hang: Hang, job: Job | None, *, observed: bool) -> tuple[list[Resolved], bool]:
        """Whether a hang is over; and whether one more look may show that it is. `observed`: its processes would have been
        seen."""
        if job is None and not observed:
            return [], False
        replaced = job is not None and not hang.is_of(job)
        if job is not None and not replaced and (job.verdict == "hung" or (hang.reported and job.verdict == "unknown")):
            return [], False  # one look that could not observe enough does not end a hang
        if not hang.reported:
            del self._hangs[hang.job]
            return [], False
        if not replaced and hang.looks_without + 1 < _LOOKS:
            self._hangs[hang.job] = replace(hang, looks_without=hang.looks_without + 1)
            return [], True
        del self._hangs[hang.job]
        if job is None or replaced:
            return [Resolved(hang, None, "ended")], False
        return [Resolved(hang, job, "goes-on")], False

    def _seen(self, job: Job, now: float, taken_at: str) -> tuple[list[Confirmed], bool]:
        """Whether this look confirmed the hang of a job; and whether one more look may."""
        known = self._hangs.get(job.id)
        found = errors(job)
        if known is None or not (known.reported or known.findings & found):
            known = hang_of(job, now, taken_at)
        known = replace(
            known,
            findings=known.findings & found if known.findings & found else found,
            processes=tuple(sorted(places(job))) or known.processes,
            looks=known.looks + 1,
            looks_without=0,
        )
        young = max(now - known.since, job.hung_for_seconds or 0.0) < self._patience
        confirmed = not known.reported and not young and known.looks >= _LOOKS
        self._hangs[job.id] = replace(known, reported=known.reported or confirmed)
        soon = not known.reported and not young and not confirmed
        return ([Confirmed(self._hangs[job.id], job)] if confirmed else []), soon
