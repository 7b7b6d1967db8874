"""A hang of a run, from the first look that shows it to its end. Plain values: the state file keeps them."""

import hashlib
from typing import Literal

from msgspec import Struct

from hangdoc.diagnosis import Job

_PROCESSES_KEPT = 16

Ending = Literal["goes-on", "ended"]
"""How a hang ended: the run makes progress again, or it is gone."""


class Place(Struct, frozen=True, order=True):
    """One process of a run."""

    host: str
    pid: int


class Hang(Struct, frozen=True, kw_only=True):
    """One hang of one run."""

    id: str
    """The id of its first finding, which is the same in every look at this hang."""
    job: str
    findings: frozenset[str]
    """Ids of the error findings that all looks since then had."""
    processes: tuple[Place, ...]
    """Of its lowest ranks, in the newest look. Another run with the same name has other processes."""
    since: float
    """When it was first observed: in memory in seconds of the monotonic clock, in the state file in Unix seconds."""
    first_seen: str
    """ISO 8601 UTC, of the first look that showed it. Together with the id it is unique."""
    code: str = ""
    name: str = ""
    summary: str = ""
    culprits: tuple[int, ...] = ()
    looks: int = 0
    reported: bool = False
    looks_without: int = 0
    """Looks in a row that did not show it."""

    def is_of(self, job: Job) -> bool:
        """Whether this job is the run that hangs, and not another one with the same name."""
        now = places(job, most=None)
        return not now or not self.processes or not now.isdisjoint(self.processes)

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts of its lowest ranks."""
        return frozenset(place.host for place in self.processes)


def places(job: Job, most: int | None = _PROCESSES_KEPT) -> frozenset[Place]:
    """The processes of a job's ranks, or of its lowest ones."""
    known = [Place(view.host, view.pid) for view in job.ranks if view.pid is not None]
    return frozenset(known[:most])


def errors(job: Job) -> frozenset[str]:
    """The ids of a job's error findings."""
    return frozenset(finding.id for finding in job.findings if finding.severity == "error")


def hang_of(job: Job, since: float, first_seen: str) -> Hang:
    """A new hang. `since` and `first_seen` as in `Hang`."""
    first = next((finding for finding in job.findings if finding.severity == "error"), None)
    fallback = hashlib.blake2b(job.id.encode(), digest_size=8).hexdigest()
    return Hang(
        id=(first.id if first is not None else "") or fallback,
        job=job.id,
        findings=errors(job),
        processes=tuple(sorted(places(job))),
        since=since,
        first_seen=first_seen,
        code=first.code if first is not None else "",
        name=first.name if first is not None else "",
        summary=first.summary if first is not None else "",
        culprits=first.culprits if first is not None else (),
    )
