"""A hang of a run, from the first look that shows it to its end, and how a later look recognises it. Plain values: the state file
keeps them.

A run is recognised by its processes, as the kernels and the fleet session know them: the host as it was reached, pid, user, and
that they have not started since. The name of a run is not used, because other users can give their processes the variables of
the run, and so change its name, or take it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec import Struct

from hangdoc.diagnosis import Job
from hangdoc.snapshot import Snapshot

_PROCESSES_KEPT = 16

Ending = Literal["goes-on", "ended"]
"""How a hang ended: the run makes progress again, or it is gone."""


class Place(Struct, frozen=True, order=True):
    """One process of a run."""

    host: str
    """The name by which the host was reached, which the host can not choose; without a fleet its own."""
    pid: int


class Alive(NamedTuple):
    """A process in a look."""

    uid: int | None
    age: float
    """Seconds since its start."""


@dataclass(frozen=True)
class Observed:
    """What one look proves about processes. Nothing in it is what a process says of itself."""

    hosts: frozenset[str] | None = None
    """The names by which hosts were reached; None: all that there are."""
    unread: frozenset[Place] = frozenset()
    """Processes that are there and could not be read."""
    alive: Mapping[Place, Alive] = field(default_factory=dict)
    reached_as: Mapping[str, str] = field(default_factory=dict)
    """By the names that the hosts have in the diagnosis."""
    began: float = 0.0
    """When the look began, in seconds of the monotonic clock."""

    def places(self, job: Job, most: int | None = None) -> list[Place]:
        """The processes of a job's ranks, or of its `most` lowest ones."""
        places = (self._place(view.host, view.pid) for view in job.ranks if view.pid is not None)
        return list(places)[:most]

    def starter(self, job: Job) -> Place | None:
        """The process that started a job."""
        return self._place(job.started_by.host, job.started_by.pid) if job.started_by is not None else None

    def _place(self, host: str, pid: int) -> Place:
        return Place(self.reached_as.get(host, host), pid)


def observed_in(snapshot: Snapshot, began: float) -> Observed:
    """What a look proves about processes. `began`: as in `Observed`."""
    names = {host.name: host.asked_as or host.name for host in snapshot.hosts}
    return Observed(
        hosts=frozenset(names.values()),
        unread=frozenset(Place(names[host.name], pid) for host in snapshot.hosts for pid in host.unread),
        alive={
            Place(names[host.name], process.pid): Alive(process.uid, process.started_seconds_ago)
            for host in snapshot.hosts
            for process in host.processes
            if process.state not in ("Z", "X")  # it has ended
        },
        reached_as=names,
        began=began,
    )


class Hang(Struct, frozen=True, kw_only=True):
    """One hang of one run."""

    id: str
    """The id of its first finding, which is the same in every look at this hang."""
    job: str
    """The id of its job in the newest look."""
    findings: frozenset[str]
    """The error findings that all looks since then had (`errors`)."""
    processes: tuple[Place, ...]
    """Of its lowest ranks, in the newest look that showed it."""
    starter: Place | None = None
    """The process that started it. It stands for the run while that has no rank with a process."""
    users: frozenset[int] = frozenset()
    """The owners of these processes."""
    since: float
    """When it was first observed: in memory in seconds of the monotonic clock, in the state file in Unix seconds."""
    seen: float | None = None
    """When the newest look that showed it had ended, by the same clock."""
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

    @property
    def places(self) -> tuple[Place, ...]:
        """The processes that show that the run is there."""
        return self.processes or ((self.starter,) if self.starter is not None else ())

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts of these processes."""
        return frozenset(place.host for place in self.places)

    def is_alive(self, place: Place, observed: Observed) -> bool:
        """Whether a process that a look has seen is the one of this hang: no other user's, and not started since with the old
        pid."""
        process = observed.alive.get(place)
        if process is None:
            return True
        if self.users and process.uid is not None and process.uid not in self.users:
            return False
        return self.seen is None or observed.began - process.age <= self.seen


def errors(job: Job) -> frozenset[str]:
    """A job's error findings: by their ids, which stay where a later look finds another cause; and by what they say, which stays
    where the job's host has another id, because another host claims the same."""
    error_findings = [finding for finding in job.findings if finding.severity == "error"]
    return frozenset(finding.id for finding in error_findings) | {
        " ".join((finding.code, *map(str, finding.culprits))) for finding in error_findings
    }


def processes_of(job: Job, observed: Observed) -> tuple[tuple[Place, ...], Place | None, frozenset[int]]:
    """What a job is recognised by: `processes`, `starter` and `users` of its hang."""
    processes, starter = tuple(sorted(observed.places(job, _PROCESSES_KEPT))), observed.starter(job)
    alive = (observed.alive.get(place) for place in (*processes, starter) if place is not None)
    return (
        processes,
        starter,
        frozenset(process.uid for process in alive if process is not None and process.uid is not None),
    )


def hang_of(job: Job, since: float, first_seen: str, observed: Observed) -> Hang:
    """A new hang. `since` and `first_seen` as in `Hang`."""
    first = next((finding for finding in job.findings if finding.severity == "error"), None)
    fallback = hashlib.blake2b(job.id.encode("utf-8", "replace"), digest_size=8).hexdigest()
    processes, starter, users = processes_of(job, observed)
    return Hang(
        id=(first.id if first is not None else "") or fallback,
        job=job.id,
        findings=errors(job),
        processes=processes,
        starter=starter,
        users=users,
        since=since,
        first_seen=first_seen,
        code=first.code if first is not None else "",
        name=first.name if first is not None else "",
        summary=first.summary if first is not None else "",
        culprits=first.culprits if first is not None else (),
    )
