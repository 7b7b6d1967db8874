"""Looks that an agent asks for, one at a time, and the last few of them, which it can ask about."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hangdoc.agents.confined import Confined
from hangdoc.commands.errors import NO_RANK, USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.commands.looking import described, look_at_hosts, look_here
from hangdoc.diagnose.engine import DEFAULT_PATIENCE, examine
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.observe.observe import Options
from hangdoc.phrases import numbers
from hangdoc.redact import Locals
from hangdoc.snapshot import Snapshot

KEPT = 8
KEPT_PROCESSES = 20_000
"""Of all kept looks together, except that the latest is always kept: evidence of a large fleet takes much memory."""
_BESIDE_WINDOW_SECONDS = 30.0
"""What a look may take beside its window."""
_GRAVITY = {"hung": 0, "unknown": 1, "waiting": 2, "healthy": 3}


@dataclass(frozen=True)
class Look:
    """One look: the evidence, and what follows from it."""

    number: int
    of: str
    snapshot: Snapshot
    diagnosis: Diagnosis
    runs: tuple[Run, ...]
    """In the order of the diagnosis's jobs."""

    def jobs(self) -> list[Job]:
        """The worst first."""
        return sorted(self.diagnosis.jobs, key=lambda job: _GRAVITY[job.verdict])

    def job(self, name: str | None) -> tuple[Job, Run]:
        """The job of that id; without one the only job, or the only one that is hung. Raises CommandError."""
        pairs = list(zip(self.diagnosis.jobs, self.runs, strict=True))
        hung = [pair for pair in pairs if pair[0].verdict == "hung"]
        found = (
            [pair for pair in pairs if pair[0].id == name] if name is not None else hung if len(hung) == 1 else pairs
        )
        if len(found) == 1:
            return found[0]
        known = ", ".join(job.id for job, _ in pairs[:20]) or "none"
        if name is not None:
            raise CommandError(f"no job {name[:100]!r} in look {self.number}. Its jobs: {known}.", USAGE)
        raise CommandError(f"look {self.number} has {len(pairs)} jobs: name one of them as `job`: {known}.", USAGE)

    def rank(self, number: int, run: Run) -> Rank:
        """A rank that was seen; raises CommandError."""
        if (rank := run.ranks.get(number)) is not None:
            return rank
        if (unseen := run.unseen.get(number)) is not None:
            raise CommandError(f"rank {number} was not seen: {unseen.why}.", NO_RANK)
        raise CommandError(f"job {run.id} has no rank {number}: it has {numbers(run.ranks) or 'none'}.", USAGE)


@dataclass
class Looks:
    """Takes looks and keeps the last ones. Safe to call from several threads."""

    confined: Confined
    hosts: Hosts
    """How other hosts are reached. Its `hosts`, where given, are the only ones that may be named."""
    locals: Locals = "used"
    native: str = "auto"
    """See hangdoc.observe.observe.Options."""
    _kept: deque[Look] = field(default_factory=lambda: deque(maxlen=KEPT))
    _taken: int = 0
    _first: dict[str, int] = field(default_factory=dict)
    """Ids of findings, and the look that had them first."""
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _memory: threading.Lock = field(default_factory=threading.Lock)

    def observe(
        self, pids: Sequence[int], hosts: str | None, window: float, native: str | None = None
    ) -> tuple[Snapshot, str]:
        """The evidence, and what was looked at. Raises CommandError."""
        options = Options(
            window=window,
            timeout=window + _BESIDE_WINDOW_SECONDS,
            native=native or self.native,
            pids=tuple(pids),
            locals=self.locals,
        )
        fleet = self.fleet(hosts, window)
        with self._one_at_a_time:  # two tracers at one rank get in each other's way
            snapshot = look_here(options) if hosts is None else look_at_hosts(options, fleet)
        return snapshot, described(options, fleet)

    def fleet(self, hosts: str | None, window: float = 0.0) -> Hosts:
        """How to reach the hosts; raises CommandError for those that may not be looked at."""
        enough = max(self.hosts.host_timeout, window + _BESIDE_WINDOW_SECONDS / 2)
        asked = msgspec.structs.replace(self.hosts, hosts=hosts, host_timeout=enough)
        if hosts is not None and self.hosts.hosts is not None:
            strange = set(asked.names()) - set(self.hosts.names())
            if strange:
                raise CommandError(
                    f"{min(strange)} is not among the hosts that this server may look at (--hosts {self.hosts.hosts}).",
                    USAGE,
                )
        return asked

    def keep(self, snapshot: Snapshot, of: str, patience: float = DEFAULT_PATIENCE, job: str | None = None) -> Look:
        """Diagnose, and remember it. Raises CommandError for a job that is not there."""
        diagnosis, runs = examine(snapshot, patience=patience)
        if job is not None:
            wanted = [at for at, run in enumerate(runs) if run.id == job]
            if not wanted:
                known = ", ".join(run.id for run in runs[:20]) or "none"
                raise CommandError(f"no job {job[:100]!r} here. Jobs: {known}. `list_runs` lists them.", USAGE)
            (at,) = wanted
            only = diagnosis.jobs[at]
            diagnosis = msgspec.structs.replace(diagnosis, jobs=(only,), verdict=only.verdict)
            runs = (runs[at],)
        with self._memory:
            self._taken += 1
            look = Look(self._taken, of, snapshot, diagnosis, runs)
            self._kept.append(look)
            while len(self._kept) > 1 and sum(map(_size, self._kept)) > KEPT_PROCESSES:
                self._kept.popleft()
            for one in diagnosis.jobs:
                for finding in one.findings:
                    self._first.setdefault(finding.id, look.number)
        return look

    def bundle(self, path: str, patience: float, job: str | None) -> Look:
        """As `keep`, of saved evidence. Raises CommandError and BundleError."""
        snapshot = self.confined.read(path)
        if not any(host.processes for host in snapshot.hosts):
            raise CommandError("no rank in this bundle: it was taken where no training ran.", NO_RANK)
        return self.keep(snapshot, f"bundle {Path(path).name}", patience, job)

    def kept(self) -> list[Look]:
        """The looks in memory, the oldest first."""
        with self._memory:
            return list(self._kept)

    def get(self, number: int | None) -> Look:
        """A look in memory, the latest without a number; raises CommandError."""
        kept = self.kept()
        if not kept:
            raise CommandError("no look was taken yet: call `diagnose` or `open_bundle` first.", USAGE)
        if number is None:
            return kept[-1]
        found = next((look for look in kept if look.number == number), None)
        if found is None:
            known = ", ".join(str(look.number) for look in kept)
            raise CommandError(f"look {number} is not kept. In memory: {known}. Call `diagnose` for a new one.", USAGE)
        return found

    def first_seen(self, finding: str) -> int | None:
        """The number of the first look with this finding."""
        with self._memory:
            return self._first.get(finding)


def _size(look: Look) -> int:
    return sum(len(host.processes) for host in look.snapshot.hosts)
