"""Takes looks for an agent, one at a time, and keeps the last few for further questions."""

import datetime
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hangdoc import redact
from hangdoc.agents.bounds import LINE, clip
from hangdoc.agents.confined import Confined
from hangdoc.commands.errors import NO_RANK, USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.commands.looking import described, look_at_hosts, look_here
from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.observe.look.observe import Options
from hangdoc.phrases import numbers
from hangdoc.reasoning.engine import DEFAULT_PATIENCE, examine, select_runs
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.redact import Locals
from hangdoc.render.words import job_names
from hangdoc.snapshot import Snapshot

KEPT = 8
KEPT_PROCESSES = 20_000
"""Processes in all kept looks together, because evidence of a large fleet needs much memory. The latest look is always kept."""
_BESIDE_WINDOW_SECONDS = 30.0
"""Time limit of a look in addition to its window."""
_LISTED = 10
"""Jobs in an error."""
_HERE = ("localhost", "127.0.0.1", "::1")
"""Names with which agents mean this host, for which no ssh is needed."""
_SEVERITY_ORDER = {"hung": 0, "unknown": 1, "waiting": 2, "healthy": 3}


@dataclass(frozen=True)
class Look:
    """One look: the evidence and its diagnosis."""

    number: int
    observed: str
    snapshot: Snapshot
    diagnosis: Diagnosis
    runs: tuple[Run, ...]
    """In the order of the diagnosis's jobs."""

    def names(self) -> dict[str, str]:
        """The names of the jobs for people, by id."""
        return job_names(self.diagnosis.jobs)

    def seconds_ago(self) -> float | None:
        """The age of the evidence by this host's clock; None if it has no readable time."""
        try:
            taken = datetime.datetime.fromisoformat(self.diagnosis.taken_at)
        except ValueError:
            return None
        now = datetime.datetime.now(datetime.timezone.utc)
        return round(max(0.0, (now - taken).total_seconds()), 1) if taken.tzinfo is not None else None

    def jobs(self) -> list[Job]:
        """The worst first."""
        return sorted(self.diagnosis.jobs, key=lambda job: _SEVERITY_ORDER[job.verdict])

    def job(self, name: str | None) -> tuple[Job, Run]:
        """The job with this id; without an id the only job, or the only hung one. Raises CommandError if that is not one job."""
        pairs = list(zip(self.diagnosis.jobs, self.runs, strict=True))
        hung = [pair for pair in pairs if pair[0].verdict == "hung"]
        if name is not None:
            wanted = {run.id for run in select_runs(self.runs, name)}
            chosen = [pair for pair in pairs if pair[0].id in wanted]
        else:
            chosen = hung if len(hung) == 1 else pairs
        if len(chosen) == 1:
            return chosen[0]
        jobs = _list_jobs(self.diagnosis)
        if name is not None and not chosen:
            raise CommandError(f"look {self.number} has no job {name[:100]!r}. Its jobs are: {jobs}.", USAGE)
        raise CommandError(f"look {self.number} has {len(pairs)} jobs. Name one of them as `job`: {jobs}.", USAGE)

    def rank(self, number: int, run: Run) -> Rank:
        """A rank of this look. Raises CommandError if it was not observed or does not exist."""
        if (rank := run.ranks.get(number)) is not None:
            return rank
        if (unseen := run.unseen.get(number)) is not None:
            raise CommandError(f"rank {number} was not observed: {unseen.why}.", NO_RANK)
        raise CommandError(f"job {run.id} has no rank {number}. Its ranks are: {numbers(run.ranks) or 'none'}.", USAGE)


@dataclass
class Looks:
    """Takes looks and keeps the last ones. Safe to call from several threads."""

    confined: Confined
    hosts: Hosts
    """How to reach other hosts. If its `hosts` are set, agents may name only these: the names that they have at the start."""
    locals: Locals = "used"
    native: str = "auto"
    ras: str = "auto"
    """See hangdoc.observe.look.observe.Options."""
    _kept: deque[Look] = field(default_factory=lambda: deque(maxlen=KEPT))
    _taken: int = 0
    _first: dict[str, int] = field(default_factory=dict)
    """Ids of findings, and the first look with each."""
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _memory: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.hosts.hosts is not None:
            self.hosts = msgspec.structs.replace(self.hosts, expanded=self.hosts.names())

    def observe(
        self, pids: Sequence[int], hosts: str | None, window: float, *, glimpse: bool = False
    ) -> tuple[Snapshot, str]:
        """(evidence, what was observed in words). A glimpse takes nothing that takes long. Raises CommandError if there is
        nothing to observe."""
        options = Options(
            window=window,
            timeout=window + _BESIDE_WINDOW_SECONDS,
            native="never" if glimpse else self.native,
            ras="never" if glimpse else self.ras,
            pids=tuple(pids),
            locals=self.locals,
        )
        hosts = None if hosts in _HERE else hosts
        fleet = self.fleet(hosts, window)
        with self._one_at_a_time:  # a rank can have only one tracer
            snapshot = look_here(options) if hosts is None else look_at_hosts(options, fleet)
        return snapshot, described(options, fleet)

    def fleet(self, hosts: str | None, window: float = 0.0) -> Hosts:
        """How to reach the hosts. Raises CommandError for hosts that may not be observed."""
        enough = max(self.hosts.host_timeout, window + _BESIDE_WINDOW_SECONDS / 2)
        if hosts is None:
            return msgspec.structs.replace(self.hosts, hosts=None, expanded=None, host_timeout=enough)
        asked = msgspec.structs.replace(self.hosts.naming(hosts), host_timeout=enough)
        if self.hosts.hosts is not None:
            forbidden = set(asked.names()) - set(self.hosts.names())
            if forbidden:
                raise CommandError(
                    f"this server may not observe {min(forbidden)}. It was started with --hosts {self.hosts.hosts}.",
                    USAGE,
                )
        return asked

    def keep(
        self, snapshot: Snapshot, observed: str, patience: float = DEFAULT_PATIENCE, job: str | None = None
    ) -> Look:
        """Diagnose a snapshot and keep the look. Raises CommandError for a job that does not exist."""
        diagnosis, runs = examine(snapshot, patience=patience)
        if job is not None:
            wanted = [run.id for run in select_runs(runs, job)]
            if len(wanted) != 1:
                many = f"{len(wanted)} users have a job {job[:100]!r}" if wanted else f"there is no job {job[:100]!r}"
                raise CommandError(f"{many}. The jobs are: {_list_jobs(diagnosis)}.", USAGE)
            at = [run.id for run in runs].index(wanted[0])
            only = diagnosis.jobs[at]
            diagnosis = msgspec.structs.replace(diagnosis, jobs=(only,), verdict=only.verdict)
            runs = (runs[at],)
        with self._memory:
            self._taken += 1
            look = Look(self._taken, observed, snapshot, diagnosis, runs)
            self._kept.append(look)
            while len(self._kept) > 1 and sum(map(_count_processes, self._kept)) > KEPT_PROCESSES:
                self._kept.popleft()
            for diagnosed in diagnosis.jobs:
                for finding in diagnosed.findings:
                    self._first.setdefault(finding.id, look.number)
        return look

    def bundle(self, path: str, patience: float, job: str | None) -> Look:
        """Like `keep`, for saved evidence. Raises CommandError and BundleError."""
        # Another version of hangdoc may have written it, or nobody who filters.
        snapshot = redact.snapshot(self.confined.read(path), self.locals)
        if not any(host.processes for host in snapshot.hosts):
            raise CommandError("this bundle contains no rank. No training ran on the host when it was saved.", NO_RANK)
        return self.keep(snapshot, f"bundle {Path(path).name}", patience, job)

    def kept(self) -> list[Look]:
        """The looks in memory, the oldest first."""
        with self._memory:
            return list(self._kept)

    def get(self, number: int | None) -> Look:
        """A look in memory; without a number the latest one. Raises CommandError if there is none."""
        kept = self.kept()
        if not kept:
            raise CommandError("there is no look yet. Call `diagnose` or `open_bundle` first.", USAGE)
        if number is None:
            return kept[-1]
        look = next((look for look in kept if look.number == number), None)
        if look is None:
            kept_numbers = ", ".join(str(look.number) for look in kept)
            raise CommandError(
                f"look {number} is no longer in memory. The looks in memory are: {kept_numbers}. Call `diagnose` for a new one.",
                USAGE,
            )
        return look

    def first_seen(self, finding: str) -> int | None:
        """The number of the first look with this finding."""
        with self._memory:
            return self._first.get(finding)


def _list_jobs(diagnosis: Diagnosis) -> str:
    """The ids of the jobs, with their names."""
    names = job_names(diagnosis.jobs[:_LISTED])
    return ", ".join(f"{clip(job, LINE)} ({clip(name, LINE)})" for job, name in names.items()) or "none"


def _count_processes(look: Look) -> int:
    return sum(len(host.processes) for host in look.snapshot.hosts)
