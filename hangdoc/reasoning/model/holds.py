"""What blocks a rank on its own, so that no other rank could end it. Exactly one for each rank that others may wait for."""

import math
from collections.abc import Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from msgspec import Struct

from hangdoc.phrases import duration, timeout
from hangdoc.snapshot import AwaitedFile, Holder, Process, PythonThread

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing since 3.11

SHORTEST_TIMEOUT = 600.0
"""Seconds. The ranks that wait survive a wait up to this: it is torch's shortest default timeout of a process group (NCCL's)."""
LONGEST_DEFAULT = 1800.0
"""Seconds. Torch's longest default timeout (Gloo's): who waits longer was told to."""
RPC_DEFAULT = (2**31 - 1) / 1000
"""Seconds. What `torch.distributed.rpc.constants` gives the groups of RPC: as good as none, and nobody's choice."""
Ends = Literal["never", "unknown", "by-itself"]
"""Whether it can end without help."""


class Hold(Struct, frozen=True, kw_only=True):
    """Base class of everything that blocks a rank or a run."""

    NAME: ClassVar[str]
    PLACED: ClassVar[bool] = True
    """Whether the place in the program matters: ranks at different lines are then blocked by different things."""
    BLAMES_RANKS: ClassVar[bool] = True
    """Whether the ranks that are blocked so are to blame, and not a process outside of the run."""
    NAMES_ITS_CHILD: ClassVar[bool] = False
    """Whether its text always names a child process."""
    ends: Ends = "unknown"
    """Whether it can end without help, regardless of the patience."""
    period: float | None = None
    """Seconds between two attempts, if it is a series of attempts or waits for one; None if unknown."""
    period_of_others: float | None = None
    """Seconds that another process of the job sleeps. It may then end the wait."""
    bystanders: str = ""
    """If it ends by itself only because processes at work may end it that may as well have nothing to do with it: these, in
    words."""
    thread: PythonThread | None = None
    """Another thread of the process, if that is what waits so, and the rank's own one waits for it."""

    @property
    def alike(self) -> Hashable:
        """Equal for ranks that are blocked in the same way."""
        return self.NAME

    @property
    def names_its_child(self) -> bool:
        """Whether its text names a child process, so that another rank that is blocked in the same way has another one."""
        return self.NAMES_ITS_CHILD

    @property
    def is_from_anybody(self) -> bool:
        """Whether it waits for data, and nothing else shows from whom."""
        return False

    @property
    def gives(self) -> bool:
        """Whether it waits until others take what it gives: no request and no other data ends that."""
        return False

    @property
    def seconds_left(self) -> float | None:
        """Seconds until it ends by itself; None if it does not, or if nothing shows when."""
        return None

    @property
    def next_request(self) -> str | None:
        """The wait in words, if it is one for the next request of whoever sends them; None for any other wait."""
        return None


_SHOWN_HOLDERS = 4


def describe_holders(holders: Iterable[Holder]) -> str:
    """`pid 7 (python, at work), pid 9 (bash, stopped)`; of more than four, the first three and how many there are."""
    names = [f"pid {holder.pid} ({holder.name}{_state(holder)})" for holder in holders]
    if len(names) <= _SHOWN_HOLDERS:
        return ", ".join(names)
    return f"{', '.join(names[: _SHOWN_HOLDERS - 1])} and {len(names) - _SHOWN_HOLDERS + 1} other processes"


def replies_to_polls(files: Iterable[AwaitedFile]) -> bool:
    """Whether a process at the other end of a connection replies to each poll: a reply is not what the thread waits for."""
    return any(holder.replies for file in files for holder in file.holders or ())


def _state(holder: Holder) -> str:
    if holder.behind is not None:
        return f", connected with pid {holder.behind}, which is at work"
    run = ", of another run" if holder.of_run else ""
    return f"{run}, at work" if holder.works else ", stopped" if holder.state in "Tt" else run


class Dead(Hold, frozen=True, kw_only=True):
    """Its process has ended. If nothing shows that it was ever started, it may still be."""

    NAME = "dead"
    ends: Ends = "never"
    traced: bool
    """Whether its zombie was found; otherwise its process is missing from its host."""


class Stopped(Hold, frozen=True, kw_only=True):
    """The kernel does not run it."""

    NAME = "stopped"
    PLACED = False
    ends: Ends = "never"
    by: Literal["freezer", "tracer", "signal"]
    why: str
    """It follows `is` in a sentence."""

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.by


class WaitsForInput(Hold, frozen=True, kw_only=True):
    """It waits for user input: a prompt, a debugger."""

    NAME = "waiting-input"
    ends: Ends = "never"


class ForOthers(Hold, frozen=True, kw_only=True):
    """It waits for processes outside of the run. It ends by itself if one is at work."""

    holders: tuple[Holder, ...] | None = None
    """The first few of them; None if unknown."""
    of_child: bool = False
    """Whether these are child processes of the rank, which another rank that is blocked in the same way does not have."""

    @property
    def names_its_child(self) -> bool:
        return self.of_child

    @classmethod
    def ended_by(cls, holders: tuple[Holder, ...] | None, ends: Ends = "unknown", **fields: Any) -> "Self":
        """A wait that some processes can end. `ends` is what shows without them; `fields` are the others of the class."""
        if ends == "unknown" and any(holder.works for holder in holders or ()):
            ends = "by-itself"
        if ends == "unknown" and are_stopped(holders):
            ends = "never"
        sleeps = (seconds for holder in holders or () for seconds in holder.sleeps)
        return cls(holders=holders, ends=ends, period=max(sleeps, default=None), **fields)


def are_stopped(holders: Collection[Holder] | None) -> bool:
    """Whether a signal has stopped all of some processes: nothing continues them."""
    return bool(holders) and all(holder.state == "T" for holder in holders or ())


def is_held_only_by(waited_for: AwaitedFile | ForOthers, pid: int) -> bool:
    """Whether a process is the only one that can end a wait; False where those that can are not known."""
    return {holder.pid for holder in waited_for.holders or ()} == {pid}


class ReadsPipe(ForOthers, frozen=True, kw_only=True):
    """It reads from an empty pipe, such as that of a queue: it waits for what another process writes. It never ends if no other
    process holds the write end."""

    NAME = "reading-pipe"
    fifo: str | None = None
    """The path of a FIFO."""
    from_outside: bool = False
    """What comes are requests: all that can write wait for the outside themselves, a child or the parent for connections."""

    @property
    def is_from_anybody(self) -> bool:
        return True

    @property
    def next_request(self) -> str | None:
        return f"waiting for requests from {describe_holders(self.holders or ())}" if self.from_outside else None


class AtSharedLock(ForOthers, frozen=True, kw_only=True):
    """It waits for a lock or a semaphore in memory that processes share, such as that of `multiprocessing.Queue`, until one of
    them releases it. It never ends if no other process has that memory."""

    NAME = "at-shared-lock"
    in_queue: bool = False
    """Whether it is the semaphore that counts the free places of a queue: all are taken."""
    of: Literal["lock", "condition", "barrier"] = "lock"
    """What it belongs to in `multiprocessing`: a lock or semaphore of the program, an event or condition, or a barrier, for which
    every other party has to come."""
    file: str = ""
    """The memory, equal for all that share it."""

    @property
    def gives(self) -> bool:
        return self.in_queue

    def __str__(self) -> str:
        what = "room in a full queue" if self.in_queue else f"a {self.of} in shared memory"
        start = f"waiting at {what}" if self.of == "barrier" else f"waiting for {what}"
        if self.holders is None:
            return start
        who = describe_holders(self.holders) or "no other process"
        can = (
            "take from" if self.in_queue else {"lock": "release", "condition": "notify", "barrier": "come to"}[self.of]
        )
        return f"{start} that {who} can {can}"


class ChildStopped(Hold, frozen=True, kw_only=True):
    """It waits for a child process that the kernel does not run."""

    NAME = "child-stopped"
    NAMES_ITS_CHILD = True
    ends: Ends = "never"
    pid: int
    name: str
    how: str
    """It follows `is` in a sentence."""
    by: Literal["freezer", "tracer", "signal"] = "signal"

    def __str__(self) -> str:
        return f"waiting for its child process (pid {self.pid}, {self.name}), which is {self.how}"


class BlocksItsChild(Hold, frozen=True, kw_only=True):
    """It waits for a child process, which waits for what no other process can do: read a full pipe, take from a full queue, or
    write to an empty pipe. Neither continues."""

    NAME = "blocks-its-child"
    NAMES_ITS_CHILD = True
    ends: Ends = "never"
    pid: int
    """Of the child process."""
    at: Literal["output", "input", "queue", "full-queue"] = "output"
    """What the child waits at: its full output, its empty input, the full pipe of a queue of `multiprocessing`, or the semaphore
    that counts the free places of one."""
    replies: bool = False
    """The rank waits for its next output or reply, and not for its end: it may serve requests for as long as the rank runs."""


class ChildAtLock(Hold, frozen=True, kw_only=True):
    """It waits for a child process whose line takes a lock of its own memory, and has no other thread that could release it."""

    NAME = "child-at-lock"
    NAMES_ITS_CHILD = True
    ends: Ends = "never"
    pid: int
    name: str
    forked: bool
    """The child runs the program of the rank: the lock was held when `os.fork` made it."""

    def __str__(self) -> str:
        lock = "a lock that was held when it was forked" if self.forked else "a lock that no thread of it can release"
        return f"waiting for its child process (pid {self.pid}, {self.name}), which is waiting for {lock}"


class InFile(Hold, frozen=True, kw_only=True):
    """In a system call on a file, or in a write to a full pipe. It never ends if no other process holds the other end."""

    NAME = "in-file"
    wchan: str = ""
    file: AwaitedFile | None = None


Fault = Literal[
    "gil", "again", "handler", "crosswise", "joined", "importing", "unreleased", "inside", "outside", "own-file"
]
"""Why a lock is not released: a C call keeps the GIL, the thread holds it itself, or a handler of a signal
interrupted it there, each holds what the other needs, its holder
waits for the end of a thread that needs it (in the code of a module that it imports), a thread goes on without releasing it, a
thread may be inside of its `with` block, its holder waits for another process, or this process has locked the file through
another open file."""


class AtLock(Hold, frozen=True, kw_only=True):
    """At a lock of its own process, or waiting for the GIL. It never ends if threads wait for each other's locks."""

    NAME = "at-lock"
    what: str
    """Which thread holds it, as text."""
    fault: Fault
    certainty: float
    threads: tuple[str, ...]
    """What each thread involved is doing."""
    holder: PythonThread | None = None
    """The thread that has it, if that waits for no lock itself."""
    inferred: bool = False
    """Whether only the name of a lock says that this thread has it. What the thread waits for may then not matter."""


class WaitsForLoader(Hold, frozen=True, kw_only=True):
    """In torch's DataLoader, for a batch. It never ends if the worker is gone or stopped."""

    NAME = "waiting-data"
    about: str
    """Text about the worker, or about the loader if no single worker is to blame."""
    certainty: float
    by_rank: bool = False
    """The rank has no worker: it loads data itself (`num_workers=0`)."""
    fault: Literal["dead", "gone", "forked", "inherited", "starved", "ending", "waits"] = "waits"
    """What is wrong with the workers: one has ended, all have, one is still in os.fork, one waits for a lock that was held when
    it was forked, one gets no CPU, the rank ends them itself, or one waits for something else."""
    worker: Process | None = None
    shown: tuple[Process, ...] = ()
    """Workers to list as evidence."""
    holders: tuple[Holder, ...] = ()
    """The processes that can end what the worker waits for, as far as they are known."""

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.about, self.worker is None

    def __str__(self) -> str:
        return f"its worker (pid {self.worker.pid}) {self.about}" if self.worker is not None else self.about


class Asleep(Hold, frozen=True, kw_only=True):
    """In a sleep: a single one, or one of many between two checks of a condition."""

    NAME = "asleep"
    polls: bool = False
    seconds: float | None = None
    """How much longer at most. `period` is the whole sleep, if it is known when the thread ran before."""
    of_child: int | None = None
    """The child process that sleeps, and for which the rank waits."""
    asks_nothing: bool = False
    """Whether nothing but the sleeps is in its loop, and so nothing that another process does ends it."""

    @property
    def is_from_anybody(self) -> bool:
        return self.polls

    @property
    def seconds_left(self) -> float | None:
        return self.seconds if self.ends == "by-itself" and not self.polls else None

    def __str__(self) -> str:
        who = f"waiting for its child process (pid {self.of_child}), which is " if self.of_child is not None else ""
        return who + self._describe_sleep()

    def _describe_sleep(self) -> str:
        if self.polls:
            # The time slept is read a moment before the time left, so their sum is a little short.
            period = self.period if self.period is None or self.period < 10 else math.ceil(self.period)
            # The next sleep may be longer, as in a retry that waits twice as long each time.
            now = f" for {duration(period)}" if period is not None and period >= 1 else ""
            return f"polling (asleep{now} between attempts)"
        left = f" for another {duration(self.seconds)}" if self.seconds is not None and self.seconds >= 0.1 else ""
        return f"sleeping{left}"


class OnNetwork(ForOthers, frozen=True, kw_only=True):
    """It waits for a reply from outside the run, or until the other side takes what it sends."""

    NAME = "on-network"
    peer: str | None = None
    """Address and port, if known."""
    silent_seconds: float | None = None
    """Since the last byte on that connection."""
    sends: bool = False
    serves: bool = False
    """It has accepted the connection: the other side is a client."""
    timeout_seconds: float | None = None
    """After which the rank itself gives up, from the beginning of its wait; None if it never does, or if nothing shows when."""

    @property
    def is_from_anybody(self) -> bool:
        return self.peer is None and not self.holders

    @property
    def gives(self) -> bool:
        return self.sends

    @property
    def next_request(self) -> str | None:
        return str(self) if self.serves and not self.sends else None

    @property
    def other_end(self) -> str:
        """`pid 7 (server) on 127.0.0.1:80`, as far as it is known."""
        return " on ".join(part for part in (describe_holders(self.holders or ()), self.peer) if part)

    def __str__(self) -> str:
        if self.peer is None and not self.holders:
            return "waiting on the network"
        who = self.other_end
        if self.timeout_seconds is not None and self.timeout_seconds >= 1:
            who = f"{who} (timeout {timeout(self.timeout_seconds)})"
        if self.sends:
            return f"sending data to {who}"
        if self.serves:
            return f"waiting for the next request of {who}"
        polled = any(holder.replies for holder in self.holders or ())
        return f"{'polling' if polled else 'waiting for a reply from'} {who}"


class AtFileLock(ForOthers, frozen=True, kw_only=True):
    """It waits for a lock on a file that another process holds. It never ends if no process holds it."""

    NAME = "at-file-lock"
    path: str


class ServersLock(NamedTuple):
    """A lock for which a thread of a process waits that takes requests. Its other threads may still serve, and a consumer may
    hold one while it waits for work."""

    pid: int
    what: str
    """Why it is not released."""
    sure: bool
    """Whether it never is."""


class Unanswered(NamedTuple):
    """Connections that have sent data to a server after its last answer to them. The kernel does not know whether these are
    requests."""

    connections: int
    longest: float
    """Seconds since the oldest of these data came."""
    shortest: float

    @classmethod
    def of_all(cls, servers: Iterable["Unanswered | None"]) -> "Unanswered | None":
        """Those of several servers; None if there are none."""
        each = list(filter(None, servers))
        if not each:
            return None
        return cls(
            sum(one.connections for one in each), max(one.longest for one in each), min(one.shortest for one in each)
        )

    def __str__(self) -> str:
        """`4 connections have sent data 40 s ago and got no answer since`."""
        ages = dict.fromkeys(map(duration, (self.shortest, self.longest)))
        who = f"{self.connections} connections have" if self.connections > 1 else "a connection has"
        return f"{who} sent data {' to '.join(ages)} ago and got no answer since"


class Serves(Hold, frozen=True, kw_only=True):
    """It waits for requests from outside the run."""

    NAME = "serving"
    ends: Ends = "by-itself"
    address: str
    what: str = "requests"
    unanswered: Unanswered | None = None
    lock: ServersLock | None = None
    ended: str | None = None
    """Where the thread was, in a loop without an end, that made the calls of the rank and has ended: `engine.py:69`."""

    @property
    def next_request(self) -> str | None:
        return str(self)

    def __str__(self) -> str:
        return f"waiting for {self.what} on {self.address}"


class GetsRequests(Hold, frozen=True, kw_only=True):
    """It waits for the next request of a process outside of the run: its engine, its driver. Idle ranks do, and also one that
    has left a request in which others wait for it."""

    NAME = "gets-requests"
    sender: str
    """`pid 7 (python)`."""
    owed: bool = False
    """The sender waits for the reply to an earlier request."""
    lock: ServersLock | None = None

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.sender

    @property
    def next_request(self) -> str | None:
        return None if self.owed else str(self)

    def __str__(self) -> str:
        return f"waiting for requests from {self.sender}{', which is waiting for a reply' * self.owed}"


class EngineStopped(Hold, frozen=True, kw_only=True):
    """It waits for requests of a process outside of the run, which the kernel does not run."""

    NAME = "engine-stopped"
    PLACED = False
    BLAMES_RANKS = False
    ends: Ends = "never"
    pid: int
    name: str
    stop: Stopped
    connected: bool = False
    """Nothing else shows that the requests come from this process than that it is connected with the rank."""
    through: int | None = None
    """The process by which the two are connected, if they are not connected themselves."""

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.pid

    @property
    def way(self) -> str:
        """` through pid 7`, or nothing."""
        return f" through pid {self.through}" if self.through is not None else ""

    def __str__(self) -> str:
        where = "for requests, connected with" if self.connected else "for requests from"
        return f"waiting {where} pid {self.pid} ({self.name}){self.way}, which is {self.stop.why}"


class EngineOrphaned(Hold, frozen=True, kw_only=True):
    """It waits for requests of a process outside of the run, whose own sender of requests is gone."""

    NAME = "engine-orphaned"
    PLACED = False
    BLAMES_RANKS = False
    ends: Ends = "never"
    pid: int
    name: str

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.pid

    def __str__(self) -> str:
        return f"waiting for requests from pid {self.pid} ({self.name}), which gets none itself any more"


class InStore(Hold, frozen=True, kw_only=True):
    """It waits for a key in the store. Who would set it is not known."""

    NAME = "in-store"


class Elsewhere(Hold, frozen=True, kw_only=True):
    """It waits for something else: a child process, an event, a queue."""

    NAME = "elsewhere"
    what: str | None = None
    """It follows `is` in a sentence. None if the rank's state says it."""
    at_full_queue: bool = False
    """Whether it waits for room in a queue of its own process."""

    @property
    def gives(self) -> bool:
        return self.at_full_queue


class AtOwnQueue(Elsewhere, frozen=True, kw_only=True):
    """It waits for an entry of a queue of its own process, or for room in it. The process has no other thread that runs Python
    code. Only a handler of signals, or a callback of a library, could add one or take one."""

    NAME = "at-own-queue"


class AtOwnTasks(Elsewhere, frozen=True, kw_only=True):
    """It waits for the result of a task, and so do all other Python threads of its process, which run tasks of pools themselves:
    none is left that could run another one. Only a handler of signals, or a callback of a library, could give a result."""

    NAME = "at-own-tasks"
    threads: tuple[str, ...]
    """The other threads, with their lines."""


class WaitsForSignal(Elsewhere, frozen=True, kw_only=True):
    """It waits for a signal, which another process sends."""

    NAME = "waits-for-signal"
    what: str | None = "waiting for a signal"

    @property
    def next_request(self) -> str | None:
        return f"{self.what} of another process"


class InEventLoop(Elsewhere, frozen=True, kw_only=True):
    """Its event loop waits, and only its own process or a signal can wake it: it has no connection and no timer."""

    NAME = "in-event-loop"
    what: str | None = "waiting in its event loop without a connection or timer"


class Unread(Elsewhere, frozen=True, kw_only=True):
    """Its stack could not be read. The kernel and torch's record show that it waits in its own process, unless it is in a call
    that no record has: then another rank that works may end its wait."""

    NAME = "unread"


class ProgramOver(Elsewhere, frozen=True, kw_only=True):
    """Its main thread is over, by an exception or at the end of the program. The process waits for other threads."""

    NAME = "program-over"
    PLACED = False


class BetweenCalls(Hold, frozen=True, kw_only=True):
    """All calls that it had made were complete when torch wrote its dump. What it did instead of the next one is not known."""

    NAME = "between-calls"


class Works(Hold, frozen=True, kw_only=True):
    """It is working."""

    NAME = "working"
    ends: Ends = "by-itself"
    what: str
    certain: bool = False
    """Whether a counter of its loops shows it."""

    @property
    def alike(self) -> Hashable:
        return self.NAME, self.what


class Starves(Hold, frozen=True, kw_only=True):
    """It tries to fetch its next batch all the time, but none arrives."""

    NAME = "starving"


class Busy(Hold, frozen=True, kw_only=True):
    """It uses CPU, but nothing shows progress. It may end by itself if integers of the user's code change nevertheless: that is
    work, or an endless search."""

    NAME = "busy"


class Unreadable(Hold, frozen=True, kw_only=True):
    """Alive, but its state could not be read."""

    NAME = "unreadable"


class Unseen(Hold, frozen=True, kw_only=True):
    """It was not observed."""

    NAME = "unseen"
