"""Reads many processes so that each can spoil only its own evidence, and each user only that of their own processes.

A process may let a reader wait forever (memory that is mapped from a file system of its own, a lock that a thread in the kernel
holds), or hold what no reader expects. So the readings run in threads that are abandoned when one process takes too long: that
process is `Unavailable`, and the next thread reads the others. Whatever a reading raises becomes `Unavailable` of its
process. Users take turns, and one who has taken a share of the look is not read any further (`shares`).
"""

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from hangdoc.observe.access.abandonable import Threads, TooMany
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.shares import SHARE_TAKEN, Account, Accounts, Turns, User, group, is_share_taken
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import Unavailable

_EACH_SECONDS = 4.0
"""For one process, and longer on an overloaded machine. A reading takes some milliseconds, and a second on such a machine."""
_MAX_LOAD = 3.0
_LATER_SECONDS = 1.0
"""For each process of a user one of whose processes took too long: many of them must not use up the time of a look."""
_LEAST_SECONDS = 0.2
_QUICK_SECONDS = 0.1
"""If all processes are read within this time, their order does not matter, and nobody asks for their users."""
_AGAIN_SECONDS = 60.0
"""After this time, a process that took too long is tried again, if the earlier reading has ended."""
_MOST_STUCK = 32
"""Readings of the processes of one user that have not ended."""
_MOST_THREADS = 512
_AT_ONCE = 16
"""Readings at the same time."""
_END_SECONDS = 1.0
"""Readings at the same time end with the look by themselves. After this time more they are abandoned."""
_SEARCH_SECONDS = 2.0
"""For one search through all processes of the host, and longer on an overloaded machine. On a large host it takes 0.2 s."""
_SEARCHES_SECONDS = 6.0
"""For all searches on behalf of the processes of one user in a look."""

R = TypeVar("R")
_here = threading.local()
"""`reading`: what this thread reads."""


class _Abandoned(NamedTuple):
    """A reading that was given up."""

    reading: "_Reading"
    again_at: float
    """When the process may be read again (monotonic), if this reading has ended by then."""
    why: Unavailable

    def holds(self) -> bool:
        """Whether the process is not read."""
        return not self.reading.over or time.monotonic() < self.again_at


class Isolation:
    """Knows the processes that took too long, and what the processes of each user have taken of a look.

    `failure` is the reason for a process that took too long, without the time.
    """

    def __init__(self, proc: ProcFS, accounts: Accounts | None = None, failure: str = "it could not be read") -> None:
        self.accounts = accounts if accounts is not None else Accounts(proc)
        self._failure = failure
        self._abandoned: dict[int, _Abandoned] = {}
        """By pid."""
        self._stuck: list[_Abandoned] = []
        """Readings that had not ended when another process had taken over the pid."""
        self._problems: dict[str, None] = {}

    def read_each(
        self,
        pids: Iterable[int],
        read: Callable[[int], R],
        deadline: Deadline,
        each_seconds: float | None = None,
        *,
        always: bool = False,
    ) -> dict[int, R | Unavailable]:
        """`read` of every process, one after the other. Never raises. One may take `each_seconds`; None: as long as a reading
        should take on this machine. `always`: also for users who have taken their share of the look, and processes that took too
        long, because this reads hardly anything."""
        account = self.accounts.of_look(deadline)
        results: dict[int, R | Unavailable] = {}
        turns = Turns(pids if always else self._pick_readable(account, pids, results))
        while turns:
            batch = _Batch(turns, account, lambda reading: self._read(reading, None if always else turns.users(), read))
            try:
                _threads.begin(None, batch.run)
            except TooMany:
                why = Unavailable(reason="too many earlier readings have not ended")
                return results | dict.fromkeys(turns.waiting(), why)
            late = batch.wait(lambda user: self._seconds_each(account, turns, user, each_seconds))
            results |= batch.results
            if late is not None:
                account.late.add(late.user)
                results[late.pid] = self._abandon(
                    late, f"{self._failure} within {late.seconds():.1f} s", _AGAIN_SECONDS
                )
        return results

    def read_together(
        self, pids: Iterable[int], read: Callable[[int], R], deadline: Deadline
    ) -> dict[int, R | Unavailable]:
        """`read` of every process, several at the same time; each user has as many threads as each other one. Never raises. A
        reading ends with the look by itself; one that does not is abandoned."""
        account = self.accounts.of_look(deadline)
        results: dict[int, R | Unavailable] = {}
        by_user = group(self._pick_readable(account, pids, results), account.user)
        changed = threading.Condition()
        crews = [
            _Crew(user, waiting, account, lambda reading: self._read(reading, by_user, read), changed)
            for user, waiting in by_user.items()
        ]
        for crew in crews:
            crew.begin(max(1, _AT_ONCE // len(crews)))
        for crew in _wait_for(crews, account, changed):
            again_seconds, why = _AGAIN_SECONDS, f"{self._failure} in time"
            if account.remaining() > 0:
                again_seconds, why = 0.0, self._refuse(crew.user, SHARE_TAKEN)
            results |= dict.fromkeys(crew.waiting, Unavailable(reason=why))
            results |= {reading.pid: self._abandon(reading, why, again_seconds) for reading in crew.present}
        for crew in crews:
            results |= crew.results
        return results

    def about(self, pids: Iterable[int], deadline: Deadline) -> None:
        """Note which processes a look is about (`Account.targets`)."""
        self.accounts.of_look(deadline).targets.update(pids)

    def _pick_readable(
        self, account: Account, pids: Iterable[int], results: dict[int, R | Unavailable]
    ) -> Iterator[int]:
        """The processes that may be read; why the others are not goes into `results`."""
        readings = [
            abandoned.reading for abandoned in (*self._abandoned.values(), *self._stuck) if not abandoned.reading.over
        ]
        stuck = Counter(reading.user for reading in readings)
        full = {user for user, count in stuck.items() if count >= _MOST_STUCK}
        for pid in pids:
            if (before := self._abandoned.get(pid)) is not None and before.holds():
                results[pid] = before.why
            elif full and account.user(pid) in full:
                results[pid] = Unavailable(reason=f"{_MOST_STUCK} processes of its user do not answer")
            else:
                yield pid

    def _seconds_each(self, account: Account, turns: Turns, user: User, each_seconds: float | None) -> float:
        """How long one process of a user may take now."""
        late = user in account.late or any(
            abandoned.reading.user == user and abandoned.holds() for abandoned in list(self._abandoned.values())
        )
        usual = _load() * (_LATER_SECONDS if late else _EACH_SECONDS)
        if each_seconds is not None:  # a long one leaves the others their part of what is left
            usual = min(each_seconds, max(_EACH_SECONDS, account.remaining() / len({user, *turns.users()})))
        return max(_LEAST_SECONDS, min(usual, account.seconds_left(user, turns.users())))

    def _read(self, reading: "_Reading", waiting: Collection[User] | None, read: Callable[[int], R]) -> R | Unavailable:
        """`waiting`: the users of processes that wait to be read, once that matters; None if no user is refused."""
        account = reading.account
        try:
            if waiting or (waiting is not None and account.is_short(reading.used_before)):
                refusal = account.refusal(reading.user, waiting, reading.used_before)
                if refusal is not None:
                    return Unavailable(reason=self._refuse(reading.user, refusal))
            _here.reading, reading.problems = reading, self._problems
            return guarded(read, reading.pid)
        finally:
            _here.reading, reading.over = None, True

    def _refuse(self, user: User, why: str) -> str:
        self._problems[f"some processes of uid {user} were not read: {why}"] = None
        return why

    def _abandon(self, reading: "_Reading", why: str, again_seconds: float) -> Unavailable:
        abandoned = _Abandoned(reading, time.monotonic() + again_seconds, Unavailable(reason=why))
        self._abandoned[reading.pid] = abandoned
        return abandoned.why

    def gave_up(self) -> bool:
        """Whether there is a process that is not read now because it took too long."""
        return any(abandoned.holds() for abandoned in list(self._abandoned.values()))

    def forget(self, pids: Iterable[int]) -> None:
        """Other processes have taken over these pids."""
        self._stuck = [abandoned for abandoned in self._stuck if not abandoned.reading.over]
        self._stuck += [abandoned for pid in pids if (abandoned := self._abandoned.pop(pid, None)) is not None]

    def take_problems(self) -> list[str]:
        """Sentences about what was not read, for the report."""
        self._abandoned = {pid: abandoned for pid, abandoned in self._abandoned.items() if abandoned.holds()}
        late = {
            pid: abandoned.why.reason
            for pid, abandoned in self._abandoned.items()
            if not is_share_taken(abandoned.why.reason)
        }
        sentences = [f"pid {pid}: {reason}" for pid, reason in late.items()]
        sentences += self._problems
        self._problems.clear()
        return sentences


class _Reading:
    """One process that a thread reads."""

    def __init__(self, pid: int, account: Account) -> None:
        self.pid, self.account = pid, account
        self.began = time.monotonic()
        self.used_before = account.used_bytes()
        self.extra_seconds = 0.0
        """For searches, which do not count."""
        self.over = False
        self.problems: dict[str, None] = {}

    @property
    def user(self) -> User:
        return self.account.user(self.pid)

    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.began

    def charge(self) -> None:
        """Charge its user what it has taken."""
        self.account.charge(self.pid, self.seconds(), self.used_before)


class _Batch(Generic[R]):
    """Readings one after the other, in a thread of their own."""

    def __init__(self, turns: Turns, account: Account, read: Callable[[_Reading], R | Unavailable]) -> None:
        self.results: dict[int, R | Unavailable] = {}
        self._turns, self._account, self._read = turns, account, read
        self._changed = threading.Condition()
        self._present: _Reading | None = None
        self._ended = self._abandoned = False

    def run(self) -> None:
        """What the thread does."""
        while True:
            with self._changed:
                if self._abandoned:
                    return
                pid = self._turns.take(self._account.taken_seconds)
                if pid is None:
                    self._ended = True
                    self._changed.notify()
                    return
                reading = self._present = _Reading(pid, self._account)
            result = self._read(reading)
            with self._changed:
                if self._abandoned:
                    return
                self.results[pid] = result
                reading.charge()

    def wait(self, seconds_each: Callable[[User], float]) -> _Reading | None:
        """Wait for the end. Returns the reading that took too long; then the thread is abandoned, and `results` has what came
        before."""
        with self._changed:
            if self._changed.wait_for(lambda: self._ended, _QUICK_SECONDS):
                return None
            self._turns.share_out(self._account.user)
            while not self._ended:
                reading = self._present
                left = _LEAST_SECONDS
                if reading is not None:
                    left = seconds_each(reading.user) + reading.extra_seconds - reading.seconds()
                    if left <= 0:
                        self._abandoned = True
                        reading.charge()
                        return reading
                self._changed.wait(max(0.001, left))
        return None


class _Crew(Generic[R]):
    """Readings of the processes of one user, in several threads."""

    def __init__(
        self,
        user: User,
        pids: list[int],
        account: Account,
        read: Callable[[_Reading], R | Unavailable],
        changed: threading.Condition,
    ) -> None:
        self.user, self.waiting = user, pids
        self.present: set[_Reading] = set()
        self.results: dict[int, R | Unavailable] = {}
        self.closed = False
        self._account, self._read, self._changed = account, read, changed

    def begin(self, threads: int) -> None:
        """Start the readings."""
        for _ in range(min(threads, len(self.waiting))):
            with contextlib.suppress(TooMany):  # the end of the look then comes without them
                _threads.begin(None, self._run)

    def ended(self) -> bool:
        """Whether there is nothing left to read. The caller holds the condition."""
        return self.closed or not (self.waiting or self.present)

    def _run(self) -> None:
        while True:
            with self._changed:
                if self.closed or not self.waiting:
                    return
                reading = _Reading(self.waiting.pop(0), self._account)
                self.present.add(reading)
            result = self._read(reading)
            with self._changed:
                if self.closed:
                    return
                self.present.remove(reading)
                self.results[reading.pid] = result
                if self.ended():
                    self._changed.notify()


def _wait_for(crews: "list[_Crew[Any]]", account: Account, changed: threading.Condition) -> "list[_Crew[Any]]":
    """Wait until all processes were read. Returns the crews that were stopped before: those of users who have taken their share,
    and at the end of the look all."""
    stopped = []
    now = time.monotonic()
    with changed:
        while at_work := [crew for crew in crews if not crew.ended()]:
            changed.wait(_QUICK_SECONDS)
            now, before = time.monotonic(), now
            users = [crew.user for crew in at_work]
            over = account.overtime() > _END_SECONDS
            for crew in at_work:
                account.charge_user(crew.user, now - before)
                if over or (account.remaining() > 0 and account.seconds_left(crew.user, users) <= 0):
                    crew.closed = True
                    stopped.append(crew)
    return stopped


@contextlib.contextmanager
def searching() -> Iterator[Deadline]:
    """The time for a search through the processes of the host, on behalf of the process that this thread reads. It does not count
    as time for reading that process. When it is used up, the report says so, and only what was searched for is unknown."""
    reading: _Reading | None = getattr(_here, "reading", None)
    if reading is None:
        yield Deadline(_SEARCH_SECONDS * _load())
        return
    searched, user = reading.account.searched_seconds, reading.user
    limit = Deadline(max(0.0, min(_SEARCH_SECONDS, _SEARCHES_SECONDS - searched[user]) * _load()))
    reading.extra_seconds += limit.seconds
    try:
        yield limit
    finally:
        took = limit.elapsed()
        reading.extra_seconds += min(took, limit.seconds) - limit.seconds
        searched[user] += took
        if limit.remaining() <= 0:
            reading.problems[f"pid {reading.pid}: who holds what it waits for could not be searched in time"] = None


def charge_bytes(size: int) -> None:
    """Charge memory for what is kept of the process that this thread reads."""
    reading: _Reading | None = getattr(_here, "reading", None)
    if reading is not None:
        reading.account.taken_bytes[reading.user] += size


def guarded(read: Callable[[int], R | Unavailable], pid: int) -> R | Unavailable:
    """`read` of a process; `Unavailable` with the reason for whatever it raises."""
    try:
        return read(pid)
    except ProcError as error:
        return Unavailable(reason=str(error))
    except OSError as error:
        return Unavailable(reason=error.strerror or str(error))
    except Exception as error:  # RecursionError, MemoryError and UnicodeError included
        return Unavailable(reason=f"reading it failed ({type(error).__name__}: {str(error)[:200]})")


def _load() -> float:
    """How much longer everything may take on this machine now."""
    return min(_MAX_LOAD, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


_threads: Threads[None] = Threads("readings", _MOST_THREADS)
shared = Isolation(ProcFS())
"""For all observations of this hangdoc: what took too long once is not tried again soon."""
searches = Isolation(ProcFS(), shared.accounts, "who holds what it waits for could not be searched")
"""For what is searched on behalf of a process: if that takes too long, the evidence of the process itself is still read."""
