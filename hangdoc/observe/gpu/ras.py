"""Asks NCCL's RAS service what each rank has launched in each communicator (--ras).

It needs no right to trace a process, and one answer has all ranks of a job, also those of hosts that hangdoc does not reach.
`ras_consent` decides whether it may be asked, `ras_client` asks, and `ras_match` finds the observed processes in the answer.

A look asks after its window, and again two seconds later if ranks differ or one has no record of its own: only counts that do not
grow show a hang. Polls never wait. They ask in a thread, twice a minute, and compare with the answer before.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

from msgspec.structs import replace

from hangdoc.observe.access import isolation
from hangdoc.observe.access.abandonable import Threads, TooMany
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.gpu import ras_consent
from hangdoc.observe.gpu.nccl_library import NcclLibrary, find_nccl
from hangdoc.observe.gpu.ras_counts import is_uniform, with_earlier
from hangdoc.observe.gpu.ras_service import Key, Service, find_services
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Ras, RasAnswer, Unavailable

_BETWEEN_SECONDS = 2.0
"""Between two readings. A healthy job launches many collectives in this time, and RAS itself collects anew for each question."""
_EACH_SECONDS = 12.0
"""For one service, with all attempts."""
_TIME_SHARE = 0.5
"""Of the time that a look has left."""
_LEAST_SECONDS = 1.0
_POLL_SECONDS = 30.0
_NO_TIME = Unavailable(reason="no time was left")

_readings = isolation.Isolation(ProcFS(), isolation.shared.accounts, "NCCL's RAS did not answer")
"""A service that does not answer says nothing about the processes that it serves, which are still read."""
_threads: Threads[None] = Threads("ras", 4)


def read_ras(observation: Observation, gathered: ras_consent.Gathered) -> tuple[Ras, ...]:
    """The answers at the end of a look. It takes at most half of the time that is left."""
    results: list[Ras] = []
    asked: dict[int, Service] = {}
    for service, objection in _list_permitted(observation, gathered, whole=not observation.of_fleet):
        if objection is None:
            asked[service.targets[0].pid] = service
        else:
            results.append(service.result(Unavailable(reason=objection)))
    until = time.monotonic() + observation.deadline.remaining() * _TIME_SHARE
    first = _ask_each(observation, asked, until)
    again = {pid: asked[pid] for pid, (answer, _) in first.items() if _is_unclear(answer, asked[pid].targets, gathered)}
    if again:
        latest = max(at for pid, (_, at) in first.items() if pid in again)
        time.sleep(max(0.0, min(latest + _BETWEEN_SECONDS, until) - time.monotonic()))
    second = _ask_each(observation, again, until)
    for pid, service in asked.items():
        results.append(service.result(_combine(first[pid], second.get(pid))))
    return tuple(results)


_Reading = tuple[RasAnswer | Unavailable, float]
"""With its time (monotonic)."""


def _ask_each(observation: Observation, services: dict[int, Service], until: float) -> dict[int, _Reading]:
    """The answers of services, which are named by the pid of a rank."""

    def read(pid: int) -> _Reading:
        left = min(until - time.monotonic(), _EACH_SECONDS)
        return (
            _read_service(observation.proc, services[pid], observation.ras, left) if left > 0 else _NO_TIME
        ), time.monotonic()

    if until - time.monotonic() < _LEAST_SECONDS:
        return dict.fromkeys(services, (_NO_TIME, time.monotonic()))
    readings = _readings.read_each(services, read, observation.deadline, _EACH_SECONDS)
    return {
        pid: reading if isinstance(reading, tuple) else (reading, time.monotonic()) for pid, reading in readings.items()
    }


def _is_unclear(answer: RasAnswer | Unavailable, targets: Iterable[Target], gathered: ras_consent.Gathered) -> bool:
    """Whether a second reading tells more."""
    if isinstance(answer, Unavailable) or not answer.communicators:
        return False
    return not all(map(is_uniform, answer.communicators)) or ras_consent.is_needed(targets, gathered, whole=False)


def _combine(first: _Reading, second: _Reading | None) -> RasAnswer | Unavailable:
    """The later answer with the counts of the one before."""
    (earlier, began), (answer, ended) = first, second if second is not None else first
    if second is None or isinstance(earlier, Unavailable):
        return earlier
    if isinstance(answer, Unavailable):
        problem = f"it was read once, because the second time {answer.reason}"
        return replace(earlier, problems=(*earlier.problems, problem))
    return with_earlier(answer, earlier, ended - began)


# --- which services may be asked ----------------------------------------------------------------------------------------


def _list_permitted(
    observation: Observation, gathered: ras_consent.Gathered, *, whole: bool
) -> Iterator[tuple[Service, str | None]]:
    """The services of ranks that use NCCL, and why each may not be asked."""
    if observation.ras == "never":
        return
    proc, always = observation.proc, observation.ras == "always"
    for service in find_services(observation):
        if not always and not ras_consent.is_needed(service.targets, gathered, whole=whole):
            continue
        libraries = observation.read_each(
            service.beside, lambda target: find_nccl(proc, target.pid, target.start_ticks)
        )
        if not _use_nccl(service, libraries) and not (always and _is_there(service)):
            continue
        yield service, None if always else ras_consent.find_objection(service.beside, gathered, libraries)


def _use_nccl(service: Service, libraries: dict[int, list[NcclLibrary] | Unavailable]) -> bool:
    return any(
        libraries[target.pid] and not isinstance(libraries[target.pid], Unavailable) for target in service.targets
    )


def _is_there(service: Service) -> bool:
    from hangdoc.observe.gpu.ras_reading import is_there

    return is_there(service)


def _read_service(proc: ProcFS, service: Service, ras: str, seconds: float) -> RasAnswer | Unavailable:
    from hangdoc.observe.gpu.ras_reading import read_service

    return read_service(proc, service, ras, seconds)


# --- polls --------------------------------------------------------------------------------------------------------------


class _Kept:
    """What is known of a service between polls."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.reading: _Reading = (Unavailable(reason="not asked yet"), time.monotonic())
        self.job: Future[_Reading] | None = None

    def take(self) -> None:
        """Take over an answer that has come."""
        if self.job is None or not self.job.done():
            return
        reading, self.job = self.job.result(), None
        earlier, before = self.reading
        if isinstance(reading[0], RasAnswer) and isinstance(earlier, RasAnswer):
            reading = with_earlier(reading[0], earlier, reading[1] - before), reading[1]
        self.reading = reading

    def result(self) -> Ras:
        """What the snapshot of this poll has of it."""
        answer, at = self.reading
        if isinstance(answer, RasAnswer):
            answer = replace(answer, age_seconds=round(time.monotonic() - at, 3))
        return self.service.result(answer)


class PolledRas:
    """The answers for repeated looks at one host, which never wait for them."""

    def __init__(self) -> None:
        self._kept: dict[Key, _Kept] = {}
        self._decided_at = float("-inf")

    def poll(self, observation: Observation, gathered: Callable[[], ras_consent.Gathered]) -> tuple[Ras, ...]:
        """The answers that have come so far. Twice a minute, it begins to ask again; only then it needs the evidence."""
        now = time.monotonic()
        if now - self._decided_at >= _POLL_SECONDS:
            self._decided_at = now
            self._begin(observation, gathered())
        for kept in self._kept.values():
            kept.take()
        alive = {target.pid for target in observation.alive()}
        return tuple(kept.result() for kept in self._kept.values() if any(t.pid in alive for t in kept.service.targets))

    def _begin(self, observation: Observation, gathered: ras_consent.Gathered) -> None:
        earlier, self._kept = self._kept, {}
        for service, objection in _list_permitted(observation, gathered, whole=False):
            kept = self._kept[service.key] = earlier.get(service.key) or _Kept(service)
            kept.service = service
            if objection is not None:
                kept.reading = Unavailable(reason=objection), time.monotonic()
            elif kept.job is None:
                kept.job = _begin(observation.proc, service, observation.ras)


def _begin(proc: ProcFS, service: Service, ras: str) -> "Future[_Reading] | None":
    def read() -> _Reading:
        return _read_service(proc, service, ras, _EACH_SECONDS), time.monotonic()

    try:
        return _threads.begin(None, read)
    except TooMany:  # four services do not answer: this one is asked next time
        return None
