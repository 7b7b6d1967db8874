"""What the processes of each user may take of a look: time and memory.

Any user may have any number of processes, and make each of them slow and large. So users take turns: next comes a process of the
user who has taken least. What is read of a process is charged to its user. Nobody is refused while there is plenty: a run of 64
ranks takes more than a single rank beside it. Once a quarter of the look's time has passed, a user who has taken a share is not
read any further. The shares of all users who compete are equal and make up half of the time: the other half is for what follows.
Once half of the look's memory is in use, a user who has taken a share of the whole memory is not read any further either.
"""

import os
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from hangdoc.observe.access.deadline import Deadline
from hangdoc.procfs import ProcError, ProcFS

User = int | None
"""A uid; None for processes whose user can't be read."""
_SHARE_TAKEN = "the processes of its user have taken their share"
SHARE_TAKEN = f"{_SHARE_TAKEN} of the time of this look"
_COMMON_TIME, _SHARED_TIME = 0.25, 0.5
"""The parts of a look's time that are there for those who come first, and for all users together."""
_COMMON_MEMORY = 0.5
"""The part of a look's memory that is there for those who come first."""
_COMPETES = 0.01
"""A user who has taken more than this part of the look's time competes for it, also without a process that waits to be read."""
_QUICK_SECONDS = 0.001
"""A reading that takes less is not charged."""
_CEILING_BYTES = 512 << 20
_CEILING_SHARE = 8
"""A look takes at most this fraction of the host's memory."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_HERE = ProcFS()


class Account:
    """What the users have taken of one look."""

    def __init__(self, proc: ProcFS, deadline: Deadline) -> None:
        self._proc = proc
        self._end, self._started, self.seconds = deadline.started + deadline.seconds, deadline.started, deadline.seconds
        self.ceiling = ceiling_bytes(proc)
        self._before = resident_bytes()
        """What this process used before: it may be a user's own program."""
        self._users: dict[int, User] = {}
        self.searched_seconds: defaultdict[User, float] = defaultdict(float)
        """What searches on behalf of each user's processes have taken."""
        self.taken_seconds: defaultdict[User, float] = defaultdict(float)
        self.taken_bytes: Counter[User] = Counter()
        self.targets: set[int] = set()
        """Processes that the look is about: their users compete, whether they wait to be read or not."""
        self.late: set[User] = set()
        """Users of processes that took too long."""

    def user(self, pid: int) -> User:
        """The user of a process, looked up once in a look."""
        if pid not in self._users:
            self._users[pid] = self._proc.user(pid)
        return self._users[pid]

    def remaining(self) -> float:
        """Seconds until the deadline of the look."""
        return max(0.0, self._end - time.monotonic())

    def overtime(self) -> float:
        """Seconds since the deadline of the look."""
        return max(0.0, time.monotonic() - self._end)

    def charge(self, pid: int, seconds: float, used_before: int) -> None:
        """Charge a process's user the time of a reading, and the memory by which this process has grown in it. `used_before`:
        `used_bytes` when it began."""
        if seconds < _QUICK_SECONDS:
            return
        user = self.user(pid)
        self.charge_user(user, seconds)
        self.taken_bytes[user] += max(0, self.used_bytes() - used_before)

    def charge_user(self, user: User, seconds: float) -> None:
        """Charge a user time."""
        self.taken_seconds[user] += seconds

    def is_short(self, used: int) -> bool:
        """Whether somebody may have to be refused, with so much memory in use."""
        return self.remaining() <= 0 or used > _COMMON_MEMORY * self.ceiling

    def used_bytes(self) -> int:
        """How much more memory this process has in use than before the look."""
        return resident_bytes() - self._before

    def seconds_left(self, user: User, waiting: Collection[User]) -> float:
        """How long the processes of a user may still be read. `waiting`: the users of processes that wait to be read."""
        remaining, competitors = self.remaining(), self._count_competitors(user, waiting)
        if competitors == 1:
            return remaining
        common = self._started + _COMMON_TIME * self.seconds - time.monotonic()
        return min(remaining, max(common, _SHARED_TIME * self.seconds / competitors - self.taken_seconds[user]))

    def refusal(self, user: User, waiting: Collection[User], used: int) -> str | None:
        """Why no further process of a user is read, as a clause; None if one may be. `used`: `used_bytes`."""
        if self.remaining() <= 0:
            return "no time was left, and other processes of its user took too long" if user in self.late else None
        if self.seconds_left(user, waiting) <= 0:
            return SHARE_TAKEN
        # Readings at the same time are charged for each other's memory: a user with less than the average may have taken nothing.
        if self.taken_bytes[user] * len(self.taken_bytes) < self.taken_bytes.total():
            return None
        if used > self.ceiling:
            return f"this look already takes {self.ceiling >> 20} MiB of memory, its limit"
        competitors = self._count_competitors(user, waiting)
        if (
            competitors > 1
            and used > _COMMON_MEMORY * self.ceiling
            and self.taken_bytes[user] > self.ceiling / competitors
        ):
            return f"{_SHARE_TAKEN} of the {self.ceiling >> 20} MiB of memory of a look"
        return None

    def _count_competitors(self, user: User, waiting: Collection[User]) -> int:
        least = _COMPETES * self.seconds
        busy = (other for other, seconds in list(self.taken_seconds.items()) if seconds > least)
        users = {*waiting, *busy, *map(self.user, list(self.targets))}
        return len({user, *(users - {None})})  # a process that has ended has no user, and nothing of it is left to read


class Accounts:
    """The accounts of the present looks, by their deadlines."""

    def __init__(self, proc: ProcFS) -> None:
        self._proc = proc
        self._by_deadline: weakref.WeakKeyDictionary[Deadline, Account] = weakref.WeakKeyDictionary()

    def of_look(self, deadline: Deadline) -> Account:
        """The account of a look, opened if there is none."""
        account = self._by_deadline.get(deadline)
        return account if account is not None else self._by_deadline.setdefault(deadline, Account(self._proc, deadline))


class Turns:
    """Processes that wait to be read: in their order or, once that matters, those of the user who has taken least first."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._waiting = list(pids)[::-1]
        self._by_user: dict[User, list[int]] | None = None

    def share_out(self, user_of: Callable[[int], User]) -> None:
        """From now on, users take turns."""
        if self._by_user is None:
            self._by_user = group(self._waiting, user_of)

    def take(self, taken: Mapping[User, float]) -> int | None:
        """The next process; None if there is none. `taken`: what each user has taken so far."""
        if self._by_user is None:
            return self._waiting.pop() if self._waiting else None
        if not self._by_user:
            return None
        user = min(self._by_user, key=lambda user: taken.get(user, 0.0))
        pid = self._by_user[user].pop()
        if not self._by_user[user]:
            del self._by_user[user]
        return pid

    def waiting(self) -> list[int]:
        """The processes that still wait."""
        return (
            self._waiting[::-1] if self._by_user is None else [pid for pids in self._by_user.values() for pid in pids]
        )

    def users(self) -> Collection[User]:
        """Whose processes wait, as far as that is known."""
        return self._by_user or ()

    def __len__(self) -> int:
        return len(self._waiting) if self._by_user is None else sum(map(len, self._by_user.values()))


def is_share_taken(reason: str) -> bool:
    """Whether a process was not read because of its user: the report says that once for all processes of the user."""
    return reason.startswith(_SHARE_TAKEN)


def group(pids: Iterable[int], user_of: Callable[[int], User]) -> dict[User, list[int]]:
    """Processes by their users, in the given order."""
    by_user: dict[User, list[int]] = {}
    for pid in pids:
        by_user.setdefault(user_of(pid), []).append(pid)
    return by_user


def ceiling_bytes(proc: ProcFS) -> int:
    """How much memory a look may take."""
    try:
        total = int(proc.text("meminfo").split("MemTotal:", 1)[1].split(None, 1)[0]) * 1024
    except (ProcError, ValueError, IndexError):
        return _CEILING_BYTES
    return min(_CEILING_BYTES, total // _CEILING_SHARE)


def resident_bytes() -> int:
    """The memory that this process has in use (proc_pid_statm(5)); 0 if it can't be read."""
    try:
        return int(_HERE.read("self/statm").split()[1]) * _PAGE_BYTES
    except (ProcError, ValueError, IndexError):
        return 0
