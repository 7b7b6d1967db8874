"""Decides when a hang is confirmed and when it is over: after two looks in a row, and a hang must have lasted long enough.
Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.watch.hangs import Ending, Hang, Observed, Place, errors, hang_of, processes_of

_LOOKS = 2
_BEFORE_THE_END = 30.0
"""Seconds before torch ends a run. A hang is then confirmed whatever the patience."""


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
    """The job as it is now; None if it is gone."""
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
        return [confirmed.job for confirmed in self.began]


class Confirmation:
    """Takes one diagnosis after another. `patience` in seconds; `hangs` are known from before a restart."""

    def __init__(self, patience: float, hangs: Iterable[Hang] = ()) -> None:
        self._patience = patience
        self._hangs = list(hangs)

    @property
    def hangs(self) -> tuple[Hang, ...]:
        """All hangs that are not over, also those that are not confirmed yet."""
        return tuple(self._hangs)

    def add(self, diagnosis: Diagnosis, now: float, observed: Observed | None = None) -> Changes:
        """What this look changed. A hang is confirmed once, and again if it returns after its end. `now` in seconds of a
        monotonic clock, when the look had ended. `observed`: what it proves about processes (None: nothing but their pids). The
        run of an unobserved host or process is not gone."""
        observed = observed or Observed()
        jobs = diagnosis.jobs
        kept: list[Hang] = []
        of_job: dict[int, list[Hang]] = {}
        over: list[Resolved] = []
        soon = False
        for hang, at in zip(self._hangs, _match_jobs(self._hangs, jobs, observed), strict=True):
            if at is not None and jobs[at].verdict == "hung":
                of_job.setdefault(at, []).append(hang)
                continue
            after, end = _after(hang, jobs[at] if at is not None else None, observed)
            kept += [after] if after is not None else []
            over += [end] if end is not None else []
            soon = soon or (after is not None and after.looks_without > hang.looks_without)
        began = []
        for at, job in enumerate(jobs):
            if job.verdict == "hung":
                hang, confirmed, again = self._update_hang(job, of_job.get(at, []), now, diagnosis.taken_at, observed)
                kept.append(hang)
                soon = soon or again
                began += [Confirmed(hang, job)] if confirmed else []
        self._hangs = kept
        return Changes(began, over, soon)

    def _update_hang(
        self, job: Job, earlier: list[Hang], now: float, taken_at: str, observed: Observed
    ) -> tuple[Hang, bool, bool]:
        """The hang of a job; whether this look confirmed it; and whether one more look may. `earlier` are the hangs of its
        processes in earlier looks: several if runs turn out to be one."""
        job_errors = errors(job)
        first = min(earlier, key=lambda hang: (not hang.reported, hang.since), default=None)
        if first is None or not (first.reported or first.findings & job_errors):
            first = hang_of(job, now, taken_at, observed)
        processes, starter, users = processes_of(job, observed)
        hang = replace(
            first,
            job=job.id,
            findings=first.findings & job_errors if first.findings & job_errors else job_errors,
            processes=processes or first.processes,
            starter=starter or first.starter,
            users=users or first.users,
            seen=now,
            looks=first.looks + 1,
            looks_without=0,
        )
        ends = job.ends_by_itself_in_seconds
        in_time = ends is None or ends > _BEFORE_THE_END  # torch ends the ranks, and the evidence with them
        young = in_time and max(now - hang.since, job.hung_for_seconds or 0.0) < self._patience
        confirmed = not hang.reported and not young and hang.looks >= _LOOKS
        soon = not hang.reported and not young and not confirmed
        return replace(hang, reported=hang.reported or confirmed), confirmed, soon


def _after(hang: Hang, job: Job | None, observed: Observed) -> tuple[Hang | None, Resolved | None]:
    """A hang after a look that does not show it, None if it is dropped; and its end. `job`: of its processes in this look."""
    if job is None and not _are_gone(hang, observed):
        return hang, None
    if job is not None and hang.reported and job.verdict == "unknown":
        return hang, None  # one look that could not observe enough does not end a hang
    if not hang.reported:
        return None, None
    if hang.looks_without + 1 < _LOOKS:
        return replace(hang, looks_without=hang.looks_without + 1), None
    return None, Resolved(hang, job, "ended" if job is None or _is_ending(hang, job, observed) else "goes-on")


def _is_ending(hang: Hang, job: Job, observed: Observed) -> bool:
    """Whether ranks of a hang have ended and none was started in their place: the others are about to end, too."""
    return any(rank.label == "dead" for rank in job.ranks) or set(observed.places(job)) < set(hang.places)


def _are_gone(hang: Hang, observed: Observed) -> bool:
    """Whether the processes of a hang, which are in no job, would have been seen if they were there."""
    if observed.hosts is not None and not hang.hosts <= observed.hosts:
        return False
    if not observed.unread.isdisjoint(hang.places):
        return False
    return not any(place in observed.alive and hang.is_alive(place, observed) for place in hang.places)


def _match_jobs(hangs: Sequence[Hang], jobs: Sequence[Job], observed: Observed) -> list[int | None]:
    """The position of the job that has the processes of each hang; None if no job has them."""
    if not hangs:
        return []
    ranks: dict[Place, int] = {}
    starters: dict[Place, int] = {}
    for at, job in enumerate(jobs):
        places, starter = observed.places(job), observed.starter(job)
        ranks.update(dict.fromkeys(places, at))
        if starter is not None:
            starters.setdefault(starter, at)
    with_ranks = set(ranks.values())
    positions: list[int | None] = []
    for hang in hangs:
        shared = Counter(ranks[place] for place in hang.processes if place in ranks and hang.is_alive(place, observed))
        best = shared.most_common(1)[0][0] if shared else None
        if best is None and hang.starter is not None and hang.is_alive(hang.starter, observed):
            # While one of the two looks showed no process of a rank, the launcher stands for the run. A launcher with new ranks
            # has started them again, and that is another attempt.
            started = starters.get(hang.starter)
            best = started if not hang.processes or started not in with_ranks else None
        positions.append(best)
    return positions
