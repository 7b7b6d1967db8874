"""One reading of a RAS service. Only a look that asks needs this module: what it imports takes 20 ms to load."""

import time
from collections.abc import Iterable, Iterator

from hangdoc.observe.access import isolation
from hangdoc.observe.access.observation import Target
from hangdoc.observe.gpu import ras_consent
from hangdoc.observe.gpu.ras_answer import RasAnswerError, parse_answer
from hangdoc.observe.gpu.ras_client import (
    MOST_ATTEMPTS,
    RasError,
    RasListener,
    RasSilent,
    ask,
    find_listener,
    parse_address,
)
from hangdoc.observe.gpu.ras_match import (
    LocalRanks,
    counts_for,
    find_local_ranks,
    processes_in,
    shortened,
    with_others,
    with_processes,
)
from hangdoc.observe.gpu.ras_service import Service
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.regex import regex
from hangdoc.snapshot import RasAnswer, Unavailable

_SOCKET = regex(r"socket:\[(\d+)\]")


def is_there(service: Service) -> bool:
    """Whether something of the user listens at the address of a service."""
    try:
        find_listener(service.namespace_file, service.user, parse_address(service.address))
    except (OSError, RasError):
        return False
    return True


def read_service(proc: ProcFS, service: Service, ras: str, seconds: float) -> RasAnswer | Unavailable:
    """The answer of a service within `seconds`. Never raises."""
    try:
        listener = find_listener(service.namespace_file, service.user, parse_address(service.address))
        observed = frozenset(_read_inodes(proc, service.beside))
        if ras != "always" and (objection := ras_consent.find_stranger(listener.inodes, observed)) is not None:
            return Unavailable(reason=objection)
        local = find_local_ranks(proc, service.namespace_file, service.beside)
        return _ask_until_known(
            service, listener, local, alone=listener.inodes <= observed, until=time.monotonic() + seconds
        )
    except (RasError, RasAnswerError) as error:
        return Unavailable(reason=str(error))
    except OSError as error:
        return Unavailable(reason=f"RAS could not be asked: {error.strerror or error}")


def _ask_until_known(
    service: Service, listener: RasListener, local: LocalRanks, *, alone: bool, until: float
) -> RasAnswer:
    """The answer about the ranks of a service: of the first process that answers, and of more if these ranks are of several jobs.
    `alone`: whether nobody but observed ranks listens. Raises RasError, RasAnswerError and OSError."""
    runs = {
        target.run: {other.pid for other in service.targets if other.run == target.run} for target in service.targets
    }
    answer: RasAnswer | None = None
    problem: RasError = RasError("RAS answered only about other jobs of the user")
    for _ in range(MOST_ATTEMPTS):
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            raw = ask(listener, left)
        except RasSilent as error:
            problem = error
            continue
        isolation.charge_bytes(len(raw))
        next_answer = with_processes(parse_answer(raw), local)
        if not alone and not counts_for(next_answer, local.pids.values()):
            continue
        before = len(answer.communicators) if answer is not None else -1
        answer = with_others(answer, next_answer) if answer is not None else next_answer
        named = set(processes_in(answer.communicators))
        if answer.form == "text" or all(named & pids for pids in runs.values()) or len(answer.communicators) == before:
            break
    if answer is None:
        raise problem
    return shortened(answer)


def _read_inodes(proc: ProcFS, targets: Iterable[Target]) -> Iterator[int]:
    """The sockets of processes, as far as they can be read."""
    for target in targets:
        try:
            links = proc.links(f"{target.pid}/fd")
        except ProcError:
            continue
        yield from (int(match[1]) for link in links.values() if (match := _SOCKET.match(link)))
