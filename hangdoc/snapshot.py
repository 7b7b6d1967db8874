"""The evidence: what was observed on one or many hosts, as frozen values.

A snapshot can be saved, sent, merged and replayed (`hangdoc.codec`), and a diagnosis is a pure function of it
(`hangdoc.reasoning`). A source that could not be read is an `Unavailable` with the reason, and a missing number is `None`: a
missing reading never looks like 0.

Units are in the names: `_seconds`, `_ms`, `_ns`, `_bytes`. Times are local to their host; only ages and differences are
compared.
"""

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

SCHEMA = "hangdoc.snapshot/4"
_UNUSED_SHOWN = 3
MOST_AWAITED_FILES = 16
"""So many of the files that a system call waits for are read: of as many, there may be more."""
MOST_P2P_OPS = 64
"""So many elements of a list for batch_isend_irecv are read."""

WindowSeconds = Annotated[float, Meta(ge=0, le=86_400)]
"""Rules divide by it and multiply with it, so a bundle with another value is refused."""
Microseconds = Annotated[int, Meta(ge=0, le=2**62)]
"""A clock that fits into a float. A bundle with another value is refused."""


class Value(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A plain frozen value. No value refers to itself, so the garbage collector does not need to track it."""


class Reading(Value, frozen=True, kw_only=True, tag_field="kind", tag=str.lower):
    """A value of a source that may also be an `Unavailable`. The JSON has the kind of both."""


class Unavailable(Reading, frozen=True, kw_only=True):
    """A source that could not be read. `reason` is one clause for the report."""

    reason: str

    @property
    def was_tried(self) -> bool:
        """Whether it was tried to read the source. A poll leaves out what may be read in the next one."""
        return not self.reason.startswith(_NOT_TRIED)


_NOT_TRIED = ("not looked at", "not needed", "it has run since")
NOT_LOOKED_AT = Unavailable(reason="not looked at")
"""Of a source that is not there, like a card."""
OF_ANOTHER_USER = Unavailable(reason="permission denied (another user's process)")
"""Of the environment of a process that belongs to another user than hangdoc's, who is not root; and so of all that needs
the same rights."""


# --- stacks --------------------------------------------------------------------------------------------------------


class Local(Value, frozen=True, kw_only=True):
    """One local or global variable as a short text (py-spy's repr, redacted)."""

    name: str
    text: str
    argument: bool = False
    address: int | None = None
    """Address of the object in its process. It identifies a process group among those of the interpreter probe."""
    length: int | None = None
    """`len()` of a list, tuple, dict or set, if its memory could be read."""


MOST_OF_CONDITION = 200
"""Characters. A test that has so many may be cut."""


class Exit(Value, frozen=True, kw_only=True):
    """What may leave a loop before its end."""

    line: int
    statement: str
    """`break`, `return`, or `except`: a handler of a `try` around the loop. Of `Loop.skips`, `continue`."""
    conditions: tuple[str, ...] = ()
    """Tests of the `if`s around it inside the loop, outermost first, and the `except` around it or of the handler."""


class Transfer(Value, frozen=True, kw_only=True):
    """A call in the source that sends to another rank or receives from one."""

    line: int
    call: str
    """Its name in torch.distributed: `send`, `irecv`."""
    conditions: tuple[str, ...] = ()
    """As `Exit.conditions`."""


MOST_EXITS = 6
"""That a loop has here."""


class Loop(Value, frozen=True, kw_only=True):
    """A `for` or `while` statement in the function of a frame, found in its source (Python `ast`)."""

    line: int
    end_line: int
    header: str
    counters: tuple[str, ...] = ()
    """Names of integers that count the iterations: targets of enumerate or range, or `n += 1` in the body."""
    every: int = 0
    """How many of `counters`, the first ones, change in every iteration. The others change in some of them."""
    start: int | None = None
    """First value of the counter, if the header shows it (1 for `enumerate(x, 1)`)."""
    begin: str | None = None
    """The variable that holds this value, if the header names one (`self.start` of `range(self.start, n)`)."""
    bound: str | None = None
    """A number or a name that ends the counter, exclusive (`range(n)`, `while i < n`)."""
    bound_of_module: bool = False
    """Whether that name is one of the module: neither the function nor one around it has a variable of that name."""
    advances: tuple[str, ...] = ()
    """Names that the loop changes in any way: targets of a `for`, `+=` by any amount, `i = i + k`."""
    exits: tuple[Exit, ...] = ()
    """The first `MOST_EXITS` of them, in source order."""
    skips: tuple[Exit, ...] = ()
    """Its `continue` statements: the first few of them, in source order."""
    counted_at: tuple[int, ...] = ()
    """For each of the first `every` counters, the line of the body that increments it; empty if the header sets them."""
    settings: tuple[str, ...] = ()
    """Names in the tests of `exits` to which the function assigns nothing."""


CONTEXT_LINES = 30
"""That `Frame.context` has before the line of the frame, or fewer at the beginning of a file."""


class Frame(Value, frozen=True, kw_only=True):
    """One stack frame."""

    function: str
    file: str
    """The path as the interpreter has it, which is relative for some code (`runpy`); for a native frame the name of the shared
    object."""
    line: int
    source: str | None = None
    """The source line, stripped; None if the file could not be read or is newer than the process. A relative path is that of the
    process's working directory."""
    context: str | None = None
    """Source lines around the innermost user frame, for rules that read calls (`work = dist.all_reduce(...)`)."""
    locals: tuple[Local, ...] = ()
    loops: tuple[Loop, ...] = ()
    conditions: tuple[str, ...] = ()
    """Conditions that are true at the line, outermost first: tests of the `if`s around it (negated in an else branch or after a
    guard that returns), and the `except` around it."""
    reassigned: tuple[str, ...] = ()
    """For each of `conditions`, those of its names that the function may have assigned between the test and the line, as source:
    `self.best, val`. Their values are not those of the test. Empty if there are none at all."""
    repeated: int = 0
    """How many of `conditions`, the last ones, are inside the innermost loop around the line: each iteration tests them again."""
    contexts: tuple[str, ...] = ()
    """Context managers of the `with` statements around the line, outermost first: `torch.autocast('cpu', dtype=...)`."""
    transfers: tuple[Transfer, ...] = ()
    """Sends and receives in the outermost loop around the line, or in the function if it is in none. Only of the user's code."""
    leaves: int | None = None
    """The last line of the `with` block that it leaves, in the `__exit__` of its context manager; `line` is the first one."""
    caught: tuple[str, ...] | None = None
    """The `except` clauses around the line that continue after an exception; None if unknown."""
    native: bool = False
    library: bool = False
    """True for the standard library and site-packages, which are not the user's code."""


class PythonThread(Value, frozen=True, kw_only=True):
    """A Python thread and its frames, innermost first."""

    tid: int | None
    name: str | None
    active: bool
    owns_gil: bool
    frames: tuple[Frame, ...] = ()
    stack: int | None = None
    """Only in a bundle, instead of `frames`: the position of this stack in the bundle's table (`hangdoc.shared_frames`)."""
    locals: tuple[int, ...] = ()
    """Only in a bundle: for each frame, the position of its locals in the bundle's `locals`; -1 if it has none."""


class Stack(Reading, frozen=True, kw_only=True):
    """All Python threads of a process at one moment: `at_seconds` after the beginning of the observation."""

    at_seconds: float
    threads: tuple[PythonThread, ...] = ()
    as_later: bool = False
    """Only in a bundle, for the first of two looks, instead of `threads`: they are those of the second."""


# --- clocks --------------------------------------------------------------------------------------------------------


class Receiver(Value, frozen=True, kw_only=True):
    """A process to which another one is blocked in sending data."""

    pid: int
    name: str
    state: str
    """The kernel's letter (proc_pid_stat(5))."""


class Holder(Value, frozen=True, kw_only=True):
    """A process that has a file open, has a lock on it, or has the same memory mapped."""

    pid: int
    name: str
    state: str
    """The kernel's letter (proc_pid_stat(5))."""
    works: bool = False
    """It or a descendant used a processor, read or wrote, or a process with which it is connected did. Only for what a rank waits
    for outside of torch.distributed."""
    replies: bool = False
    """It replies to the waiting thread several times a second: the thread polls it, and then `works` means more than to reply."""
    of_run: bool = False
    """It belongs to another run: a launcher started it, or it waits for the end of one."""
    behind: int | None = None
    """The connected process that is at work, if it is not the process itself."""
    through: int | None = None
    """The process between this one and the one that waits, if the two are not connected themselves. Only of `others_stopped`."""
    sleeps: tuple[float, ...] = ()
    """If it is not at work: the seconds that each sleep of its threads and descendants takes, from its beginning to its end; also
    a wait with a timeout that began when the thread began to wait for the process."""
    waits_for_events: bool = False
    """If it is not at work: its main thread sleeps, or waits for any of several files or for a connection, and so for the
    outside."""
    accepts: bool = False
    """If it is not at work: its main thread waits for somebody to connect."""
    sends_to: tuple[Receiver, ...] = ()
    """If it is not at work, but blocked in sending data: the process that would have to read them, the one to which that process
    itself sends, and so on. The last one sends nothing, and does not read."""


class RayTask(Value, frozen=True, kw_only=True):
    """A worker of Ray outside of the run that executes a task."""

    pid: int
    title: str
    """`ray::Rollout.play`: the class of the actor and the method. In a task of a function, a worker has a title like an idle
    one."""
    idle_seconds: float | None = None
    """For how long its main thread, which executes the task, has not run; None if that is not known."""


IN_THE_WAY = "in-the-way"
"""The kind of an awaited file that is a path whose end a process polls for."""


class AwaitedFile(Value, frozen=True, kw_only=True):
    """A file that a system call waits for."""

    kind: str
    """`path` if the call has a path as argument; `file`, `device` (a character device), `pipe` (also a FIFO or a message
    queue), `socket` or `other` for an open file; `lock` for a lock file for which the process polls, and `locked` for an open
    file that another process has locked; `in-the-way` for a path that must be gone before the process continues;
    `shared-memory` for a lock or semaphore in memory that processes share."""
    name: str
    """The path, or what /proc/PID/fd shows: `pipe:[7]`, `anon_inode:[eventfd]`."""
    descriptor: int | None = None
    mount: str | None = None
    """`nfs4 (server:/x)` for a file on anything but a local file system."""
    full: bool = False
    """It is on a local file system without free space."""
    inode: int | None = None
    """For a socket, which a `Connection` with the same inode describes, and for shared memory."""
    writes: bool = False
    """Whether this is the write end of a pipe."""
    listens: bool = False
    """Whether it is a Unix socket at which the process waits for connections, or for datagrams of anybody. Of a socket of TCP,
    its `Connection` says that."""
    accepted: bool = False
    """Whether it is the server's end of a connection at a Unix socket. Of a socket of TCP, its `Connection` says that."""
    holders: tuple[Holder, ...] | None = None
    """The first few holders of the other end of a pipe or a connection on this host, or of the lock that the call waits
    for; those at work come first. None if not searched, or if none was found and some processes could not be seen."""
    changed_seconds_ago: float | None = None
    """When a path that is `in-the-way`, or the link there, was made, changed or renamed (`st_mtime`, `st_ctime`)."""


class Arrival(Value, frozen=True, kw_only=True):
    """A file appeared in a directory, or was renamed or removed (`st_mtime` of the directory). Or a path itself changed."""

    folder: str
    seconds_ago: float


class KernelThread(Value, frozen=True, kw_only=True):
    """One kernel thread across the window (proc_pid_task(5), Documentation/scheduler/sched-stats.rst)."""

    tid: int
    name: str
    state: str
    cpu_ns: int
    """CPU time in the window, in nanoseconds."""
    voluntary_switches: int | None
    involuntary_switches: int | None
    delayed_ns: int | None = None
    """For how long it was ready to run in the window and waited for a core, in nanoseconds; None if the kernel does not count
    that."""
    wchan: str | None = None
    syscall: str | None = None
    """Name of the system call that the thread is in (`hangdoc.observe.kernel.system_calls`); empty if it is in none, None if
    it could not be read or the thread was running."""
    files: tuple[AwaitedFile, ...] = ()
    """What the call waits for."""
    sleep_seconds: float | None = None
    """For a sleep (nanosleep(2), clock_nanosleep(2), a read of a timer), the longest time until it ends."""
    whole_sleep_seconds: float | None = None
    """For a sleep, how long it takes from its beginning to its end; None in older bundles."""
    timeout_seconds: float | None = None
    """For another call with a timeout, how long it waits at most, from its beginning; None if that is not known."""
    timed: bool | None = None
    """Whether the call also ends after some time. If not, only what it waits for wakes the thread, or an observer."""
    idle_seconds: float | None = None
    """For how long it had not run when the window began (`hangdoc.observe.kernel.last_run`); None if unknown. Its wait is at
    least as old: another observer that stops the process, like `py-spy dump`, makes the thread run for a moment."""


class Clocks(Reading, frozen=True, kw_only=True):
    """CPU time and context switches of every thread in the window."""

    window_seconds: WindowSeconds
    resolution_ns: int
    """1 with schedstat; one clock tick if only utime/stime could be read."""
    threads: tuple[KernelThread, ...]
    children_cpu_ns: int = 0
    """Of the children that ended in the window: the CPU time of their whole lives, in clock ticks of 10 ms."""


# --- identity -----------------------------------------------------------------------------------------------------


class RankIdentity(Value, frozen=True, kw_only=True):
    """The rank and run of a process. `source` says where this was found."""

    rank: int
    source: str
    local_rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    node_rank: int | None = None
    master_address: str | None = None
    master_port: int | None = None
    run_id: str | None = None
    """TORCHELASTIC_RUN_ID."""
    run: str | None = None
    """The name of the run (`hangdoc.run_identity.name`): the same for all of its ranks."""
    run_digest: str | None = None
    """Digest of that name, if only the digest is known (from a beacon)."""
    restart_count: int | None = None


class Launch(Value, frozen=True, kw_only=True):
    """The options of a launcher, by torchrun's names; None for options that are not given."""

    tool: str
    nnodes: str | None = None
    nproc_per_node: str | None = None
    node_rank: int | None = None
    endpoint: str | None = None
    """`host:port`, where it meets the other nodes."""
    default_endpoint: bool = False
    """`endpoint` was not given: it is the launcher's default. Port 0 is a free port that no other node knows."""
    run_id: str | None = None


class Group(Value, frozen=True, kw_only=True):
    """A process group, from the registry in the rank's memory (torch.distributed.distributed_c10d's `_world`)."""

    address: int
    name: str | None
    label: str | None = None
    """What the serving engine calls it: `tp:0`, and `tp:0 (cpu)` for the second group of the same ranks, with Gloo."""
    ranks: tuple[int, ...]
    default: bool = False
    backend: str | None = None
    """torch's configuration by device: `cpu:gloo,cuda:nccl`."""


class Environment(Reading, frozen=True, kw_only=True):
    """The environment variables with which a process was started, with secrets redacted."""

    variables: dict[str, str]


class OpenCalls(Value, frozen=True, kw_only=True):
    """Calls of torch.distributed.rpc that a process has sent and that are not answered."""

    worker: str
    """The name of the worker that has to answer."""
    count: int


class Interpreter(Reading, frozen=True, kw_only=True):
    """The state of the rank's interpreter, read from its memory without a pause."""

    environment: dict[str, str]
    """Variables in `os.environ` that the process has set or changed since its start."""
    globals: tuple[Local, ...]
    """Numbers, short strings and lengths of containers in the `__main__` module, at the end of the window."""
    globals_before: tuple[Local, ...] = ()
    """The same at the beginning of the window; only the integers."""
    groups: tuple[Group, ...] = ()
    rpc_name: str | None = None
    """The name under which the process has called `torch.distributed.rpc.init_rpc`."""
    rpc_calls: tuple[OpenCalls, ...] = ()
    """Its open calls at the end of the window, by worker; empty if there are none, or if they can't be read."""
    keeps_alive: tuple[str, ...] = ()
    """If the main thread is over: names of the threads that are no daemons. Python waits for their ends."""


# --- progress and data ---------------------------------------------------------------------------------------------


class Counter(Value, frozen=True, kw_only=True):
    """An integer variable of the user's code, at both ends of the window."""

    name: str
    function: str
    file: str
    before: int
    after: int
    looped: bool = False
    """Whether the source shows that a loop counts its iterations in it."""
    advances: bool = False
    """Whether the source shows that a loop changes it, by any amount."""


class BeaconReading(Value, frozen=True, kw_only=True):
    """What a trainer publishes in its beacon (`hangdoc.beacon`); None for what it does not know."""

    step: int | None
    batches_done: int | None
    batches_total: int | None
    epoch: int | None
    phase: str
    shards: int | None
    shards_digest: str | None
    age_seconds: float
    """Seconds since its last beat, on the host's monotonic clock."""
    moved: bool
    """Whether there was a beat in the window."""
    patience_seconds: float | None = None
    """The time that its phase may take without a beat, if the trainer gives one."""
    stages: tuple[float, ...] = ()
    """Smoothed seconds of data, forward, backward and optimizer, if the trainer measures them."""


class Progress(Reading, frozen=True, kw_only=True):
    """The counters of a process: integers of its code, and its beacon."""

    counters: tuple[Counter, ...]
    beacon: BeaconReading | None = None


class DataSource(Value, frozen=True, kw_only=True):
    """A directory of training data that the process names, or from which it has a file open."""

    path: str
    origin: str
    """Where the path was found: the name of an environment variable or option, `argument`, or `open file`."""
    files: int
    bytes: int
    suffixes: tuple[str, ...]
    digest: str
    """Digest of the sorted names and sizes (SHA-256, 16 digits): equal for equal sets of files."""


class DataSources(Reading, frozen=True, kw_only=True):
    """All data directories of one process."""

    sources: tuple[DataSource, ...]


class Runtime(Reading, frozen=True, kw_only=True):
    """The software of a rank, read from its files."""

    python: str | None
    executable: str | None
    torch: str | None
    cpus_allowed: int | None = None
    gpu: bool = False
    """Whether it has the device file of a GPU open."""
    nccl: str | None = None
    """The version of NCCL that it has loaded: `2.28.9`; None if it has loaded none, as with AMD's RCCL, or if that could not be
    read."""


class FileProgress(Value, frozen=True, kw_only=True):
    """A process got on in an open file (`pos` of proc_pid_fdinfo(5))."""

    path: str
    bytes: int
    writes: bool = False
    """Whether the file is open for writing."""
    seconds_ago: float = 0.0
    """Of a window before this one: when it ended."""


class FileBytes(Reading, frozen=True, kw_only=True):
    """Bytes that a process read from and wrote to storage in the window (/proc/PID/io), without sockets and pipes."""

    read_bytes: int
    written_bytes: int
    progress: tuple[FileProgress, ...] = ()
    """The files in which it got on most in the window, from the page cache too. None of a rank that makes calls, and of a process
    with more than 1,024 open files."""


# --- torch's flight recorder -----------------------------------------------------------------------------------------


class CallForm(Value, frozen=True, kw_only=True):
    """What was called, and where. Equal calls of a rank share one, because a loop makes few different calls."""

    op: str
    inputs: tuple[str, ...] = ()
    """Each tensor as `float32[64, 8]`."""
    outputs: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    """Python frames that made the call, innermost first, without source lines; empty if they are unknown."""


class CallHistory(Value, frozen=True, kw_only=True):
    """The last calls of a rank in one process group, in the order of their numbers, as columns of equal length."""

    numbers: tuple[int, ...]
    """Sequence numbers in the group, from 1. Some may be missing: torch gives numbers to calls that it does not record."""
    forms: tuple[int, ...]
    """Positions in `FlightRecorder.forms`."""
    made_us: tuple[int, ...]
    """When each call was made: microseconds since 1970 on the host's wall clock. Not when the card began it."""
    finished_us: tuple[int | None, ...] = ()
    """When torch's watchdog thread noticed that each call had finished, and None if that is not recorded. Empty with Gloo, which
    records none."""


class Recorded(Value, frozen=True, kw_only=True):
    """One collective that a rank issued."""

    seq: int
    """Sequence number in its group, from 1."""
    op: str
    inputs: tuple[str, ...] = ()
    """Each tensor as `float32[64, 8]`."""
    outputs: tuple[str, ...] = ()
    age_seconds: float | None = None
    """Seconds since it was issued."""
    timeout_seconds: float | None = None
    """After this time since it was issued, torch ends the process; None if the record has no timeout."""
    frames: tuple[Frame, ...] = ()
    """Python frames that issued it, innermost first; empty if they are unknown."""


class RecordedTransfers(Value, frozen=True, kw_only=True):
    """The sends of a rank to one other rank in a process group, or its receives from it (NCCL; Gloo records none)."""

    sends: bool
    peer: int
    """The other rank, by its global number if the record has the members of the group, else by its number in the group."""
    made: int
    """How many the record has: all that the rank ever made if `FlightRecorder.whole`."""
    pending: tuple[Recorded, ...] = ()
    """The first few that are not complete, oldest first. Their numbers count from 1 in these transfers."""


class RecordedGroup(Value, frozen=True, kw_only=True):
    """A rank's progress in the collectives of one process group."""

    name: str
    description: str = ""
    """The `group_desc` that the program gave to it, cut; empty where torch or nobody chose one."""
    default: bool = False
    generation: int = 1
    """How many groups of this name the record has seen: a process may destroy a group and make it again. Only the last one is
    here."""
    ranks: tuple[int, ...] = ()
    """Global ranks of its members; empty if the record has none, as with Gloo."""
    issued: int | None = None
    """Sequence number of the last issued collective."""
    issued_before: int | None = None
    """The same at the beginning of the window; None if the record was read once."""
    completed: Recorded | None = None
    """The last completed collective."""
    pending: tuple[Recorded, ...] = ()
    """The first few collectives that are not complete, oldest first."""
    history: CallHistory | None = None
    """Its last calls, complete or not; None if they were not read."""
    on_card: bool = False
    """Whether the calls are executed by a card (NCCL, RCCL). Then they return before they are complete, and the thread continues
    until it needs a result."""
    transfers: tuple[RecordedTransfers, ...] = ()


class FlightRecorder(Reading, frozen=True, kw_only=True):
    """torch's own record of collectives (torch/csrc/distributed/c10d/FlightRecorder.hpp). On Gloo, it has neither sends and
    receives nor `monitored_barrier`."""

    source: str
    """`memory`, or who wrote or sent the dump."""
    age_seconds: float
    """Seconds since the record was read or the dump was written; 0 if it was read in the window."""
    groups: tuple[RecordedGroup, ...]
    forms: tuple[CallForm, ...] = ()
    """The different calls of the histories of `groups`."""
    capacity: int | None = None
    """The calls that the record keeps; older ones are overwritten. None if unknown."""
    whole: bool = False
    """Whether all calls that the rank has ever made were read, sends and receives included."""
    entries_in_window: int | None = None
    """How many entries were added in the window, sends and receives included; None if the record was read once."""
    finished_seconds_ago: float | None = None
    """How long before the reading torch last noticed that a call of a card had finished; None if that is not recorded."""

    @property
    def made_in_window(self) -> int:
        """How many calls the rank issued in the window; 0 if the record was read once."""
        if self.entries_in_window is not None:
            return self.entries_in_window
        numbers = ((group.issued, group.issued_before) for group in self.groups)
        return sum(max(0, now - before) for now, before in numbers if now is not None and before is not None)


# --- NCCL's communicators --------------------------------------------------------------------------------------------


class Communicator(Value, frozen=True, kw_only=True):
    """One of a rank's NCCL communicators, which connect its card with those of the other ranks of a group
    (NVIDIA/nccl src/include/comm.h, `ncclComm`)."""

    hash: int
    """The same for all of its ranks: 64 bits, which RAS prints in hexadecimal."""
    rank: int | None
    """In the communicator. None in a summary of a large run, as `cuda_device` and `bus`."""
    size: int
    cuda_device: int | None
    """The number of the card among those that the process sees (CUDA_VISIBLE_DEVICES)."""
    bus: int | None
    """Where the card is on the PCI bus, as NCCL stores it; `pci_address` has it as text."""
    node: int
    """The number of the node among those of the communicator."""
    nodes: int
    """0 while the communicator is made."""
    counts: tuple[int, ...]
    """Collectives that the rank has launched, by kind, in the order of `hangdoc.torch_facts.nccl.COUNTED`. Neither sends and
    receives nor replays of CUDA graphs."""
    counts_before: tuple[int, ...] | None = None
    """The same at the beginning of the window; None if it was read once."""
    launches: int
    """Kernels that NCCL has launched, sends and receives included (`opCount`)."""
    launches_before: int | None = None
    async_result: int
    """An `ncclResult_t` (`hangdoc.torch_facts.nccl.RESULTS`): the error that NCCL's threads have noticed, 0 for none."""
    init_state: int
    """An `ncclResult_t`: 0 if the communicator was made, 7 while it is made."""
    destroyed: bool
    """`ncclCommDestroy` or `ncclCommAbort` has begun."""
    revoked: bool | None
    """None before NCCL 2.28.7."""
    finalized: bool
    """`ncclCommFinalize` was called."""
    graphs: int = 0
    """Plans of CUDA graphs that use the communicator: it can't be destroyed before them."""
    pxn: bool = False
    """It sends to other nodes through another card of its node, whose network card is nearer to the target (PXN)."""

    @property
    def pci_address(self) -> str | None:
        """As `lspci -D` and the kernel write it: `0000:1b:00.0`. (`int64ToBusId` in src/misc/utils.cc.)"""
        if self.bus is None:
            return None
        return f"{self.bus >> 20:04x}:{self.bus >> 12 & 0xFF:02x}:{self.bus >> 4 & 0xFF:02x}.{self.bus & 0xF:x}"


class Communicators(Reading, frozen=True, kw_only=True):
    """The NCCL communicators of a rank, from its memory, at the end of the window."""

    nccl_version: str
    """Of the library that it has loaded: `2.28.9`."""
    communicators: tuple[Communicator, ...] = ()
    """Empty if it has made none, and with NCCL_RAS_ENABLE=0."""
    unread: int = 0
    """How many more there are that were not read: of more than 256, or just made or freed."""


# --- torch's stores ----------------------------------------------------------------------------------------------------


class AwaitedKey(Value, frozen=True, kw_only=True):
    """A key for which clients of a store wait, and which the store does not have."""

    name: str
    """With all prefixes, as the server has it."""
    sockets: tuple[int, ...]
    """Inodes of the server's sockets to these clients, as in `Connection.inode`."""
    alike: tuple[str, ...] = ()
    """The first few keys that the store has and that differ from this one behind the last `/`."""
    alike_count: int = 0
    """How many those are."""


class StoreServer(Value, frozen=True, kw_only=True):
    """A server of a TCPStore, at the end of the window (torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp)."""

    port: int
    keys: int
    """How many keys it has. Their values are not read."""
    clients: int
    awaited: tuple[AwaitedKey, ...] = ()


class StoreServers(Reading, frozen=True, kw_only=True):
    """The stores that a process serves, from its memory."""

    servers: tuple[StoreServer, ...]


# --- NCCL's RAS ---------------------------------------------------------------------------------------------------------


class RasRank(Value, frozen=True, kw_only=True):
    """A rank of a communicator that answered (NCCL's src/ras/client_support.cc)."""

    rank: int
    """In the communicator, not in the run."""
    host: str | None = None
    """An address of its host. None, like all else, if the answer does not have it: a text answer names only ranks that differ
    from most others."""
    pid: int | None = None
    """In its own pid namespace."""
    process: int | None = None
    """The pid of the observed process that this is; None for one of another host, and for one that was not observed."""
    cuda_device: int | None = None
    nvml_device: int | None = None
    counts: tuple[int | None, ...] = ()
    """The collectives that it has launched, in the order of `hangdoc.torch_facts.nccl.COUNTED`. None for those that the answer
    does not have: a text answer has only those of which the ranks launched different numbers. Empty if it has none."""
    counts_before: tuple[int | None, ...] = ()
    """The same in the reading before; empty if it was read once."""
    launched: int | None = None
    """Collectives of all kinds together, which is what NCCL 2.24 and 2.25 report instead."""
    launched_before: int | None = None
    init_state: int | None = None
    """As `hangdoc.torch_facts.nccl.RESULTS`: 0 if its communicator is complete, 7 while it is made, otherwise an error; -1 for an
    error without a name."""
    async_error: int | None = None
    """In the same numbers: what ncclCommGetAsyncError would return."""
    finalizing: bool = False
    """It has called ncclCommFinalize or ncclCommDestroy."""
    aborted: bool = False


class RasMissingRank(Value, frozen=True, kw_only=True):
    """A rank of a communicator of which the answer has no counts."""

    rank: int
    host: str | None = None
    """Host, pid and process as in `RasRank`."""
    pid: int | None = None
    process: int | None = None
    cuda_device: int | None = None
    nvml_device: int | None = None
    unresponsive: bool = False
    """Its process did not answer the one that was asked. If not, it did, and has left the communicator or not joined it yet."""
    dead: bool = False
    """NCCL has not reached its process for a minute and does not try any more."""


class RasCommunicator(Value, frozen=True, kw_only=True):
    """A communicator of NCCL."""

    hash: str
    """16 hexadecimal digits, as in NCCL's log."""
    size: int
    """How many ranks it was made for; 0 if unknown."""
    ranks: tuple[RasRank, ...] = ()
    missing: tuple[RasMissingRank, ...] = ()


class RasAnswer(Reading, frozen=True, kw_only=True):
    """What NCCL reports about the communicators of a job."""

    nccl_version: str
    form: str
    """`json`, or `text` (before NCCL 2.28.7), which has less."""
    communicators: tuple[RasCommunicator, ...] = ()
    """Those of observed processes, and those in which something differs or is missing."""
    left_out: int = 0
    """How many other communicators the answer had, in which nothing differs."""
    timeouts: int = 0
    """How often a process did not answer the one that was asked."""
    seconds_between: float | None = None
    """From the reading of the counts `before` to this one; None if it was read once."""
    age_seconds: float = 0.0
    """Seconds from this reading to the end of the window; 0 if it was read in the window or after it."""
    problems: tuple[str, ...] = ()
    """One clause each."""


class Ras(Value, frozen=True, kw_only=True):
    """NCCL's RAS service for some ranks of one user in one network namespace (NCCL's docs/userguide: RAS)."""

    namespace: str
    address: str
    """`NCCL_RAS_ADDR` of the ranks, or NCCL's default."""
    processes: tuple[int, ...]
    """Pids of these ranks."""
    answer: RasAnswer | Unavailable


# --- dataloaders and training loops -----------------------------------------------------------------------------------


class Loader(Value, frozen=True, kw_only=True):
    """An iterator over batches in the memory of a process, with its own count."""

    kind: str
    """The class of the iterator, as `_MultiProcessingDataLoaderIter`, `tqdm` or `generator`."""
    done: int | None
    """Batches that the loop has received from it in this epoch, the present one included. For an `enumerate` over something that
    does not count, its next index. None for a dataloader that a variable holds and no loop goes over: its loop has not begun, or
    has ended."""
    done_before: int | None = None
    """The same at the beginning of the window."""
    total: int | None = None
    """Batches in an epoch; None if the iterator does not know, as with an IterableDataset."""
    pass_id: int | None = None
    """Another number in each pass over the data; None if nothing shows it."""
    name: str | None = None
    """The variable of the loader in the loop (`loader` of `for x, y in loader`), if it has one."""
    function: str = ""
    file: str = ""
    line: int = 0
    """The frame of the loop that iterates, and its present line."""
    begins: int = 0
    """Line of the `for`; 0 if it is not known, or if no `for` goes over the iterator."""
    asked: bool | None = None
    """Whether that `for` waits for the next batch: the instruction that asks for it runs. None if it is not known."""
    depth: int = 0
    """How many loops of the same thread are around this one, as epochs around batches."""
    outstanding: int | None = None
    """Batches that were requested from workers and have not arrived."""
    workers: tuple[int, ...] = ()
    """Pids of its worker processes, in the namespace of the process."""
    dataset: str | None = None
    """The class of the dataset."""
    dataset_length: int | None = None
    sampler: str | None = None
    """The class of the sampler, which says how the data is split between ranks."""


class TrainerCount(Value, frozen=True, kw_only=True):
    """A number by which a framework counts its progress."""

    framework: str
    """`transformers`, `lightning`, `accelerate`, `deepspeed`, `torch`."""
    name: str
    """Attribute that counts: `TrainerState.global_step`."""
    done: int
    batches: bool = False
    """Whether it counts the batches of this pass over the data that are completed, in a loop that runs."""
    done_before: int | None = None
    """The same at the beginning of the window."""
    total: int | None = None
    """Also that of a stream without a length, once it has ended."""
    fetched: int | None = None
    """Batches of this pass that its iterator has given to the framework, which may read ahead of the loop."""
    pass_number: int | None = None
    """The number of this pass, from 1, if the framework keeps it beside a count of `batches`."""


class Loops(Reading, frozen=True, kw_only=True):
    """The iterators and trainers that the training thread of a rank uses, read from its memory without a pause."""

    loaders: tuple[Loader, ...] = ()
    """Those of the innermost frame first."""
    counts: tuple[TrainerCount, ...] = ()
    between_seconds: float | None = None
    """From the reading of the counts `before` to this one, which may be longer than the window."""
    seconds_ago: float = 0.0
    """Age of this reading when the last rank of the same poll was read; since its clocks were read, if these show that the rank
    had not run since the reading. 0 in a look, which reads all ranks at its end, unless a rank could then not be read again."""


# --- a process -----------------------------------------------------------------------------------------------------


class KernelState(Value, frozen=True, kw_only=True):
    """The kernel's state of a process at one moment (proc_pid_status(5))."""

    state: str
    """R S D T t Z X I; t while a tracer has stopped it."""
    tracer_pid: int = 0
    """Pid of the process that is attached with ptrace(2); 0 for none, and for a tracer outside of our pid namespace."""
    tracer: str = ""
    """The tracer's program."""
    frozen: bool = False
    """Its control group is frozen (cgroup.events)."""


class Process(Value, frozen=True, kw_only=True):
    """One observed process: a rank, a launcher, or a helper of a rank."""

    pid: int
    """0 if it is unknown, as in dumps."""
    ppid: int
    role: str
    """`rank`, `launcher` or `helper`."""
    name: str
    argv: tuple[str, ...]
    parent_argv: tuple[str, ...] = ()
    """For a launcher that has replaced its command line by a title, as an engine does: the command line of the process that
    started it, if both belong to one user. Empty for all others."""
    state: str
    """The kernel's letter: R S D T t Z X I (proc_pid_stat(5)). Read at the end of the window, like `tracer_pid` and `frozen`."""
    started_seconds_ago: float
    identity: RankIdentity | None = None
    launch: Launch | None = None
    owner: int | None = None
    """For a helper, the pid of its rank; for a rank, the pid of its launcher."""
    launcher_gone: bool = False
    """A launcher or a program started it, and none is among its ancestors any more. The pid of its parent proves nothing: with
    `nohup`, `setsid` or a container, a healthy run has the parent 1, and with a subreaper an orphan has another parent."""
    whole_tree: bool = True
    """For a launcher: all of its descendants were observed."""
    unreadable_below: int = 0
    """For a launcher: the number of processes below it that can't be read, which may be ranks."""
    uid: int | None = None
    cwd: str | None = None
    environment: Environment | Unavailable = Unavailable(reason="not looked at")
    exit_code: int | None = None
    """For a zombie, in the encoding of waitpid(2)."""
    tracer_pid: int = 0
    tracer: str = ""
    """The tracer's program."""
    frozen: bool = False
    """Its control group is frozen (cgroup.events)."""
    at_start: KernelState | None = None
    """State, tracer and freezer at the beginning of the window; None if not read then."""
    control_group: str | None = None
    namespaces: dict[str, str] = {}
    resident_bytes: int | None = None
    clocks: Clocks | Unavailable = Unavailable(reason="not looked at")
    stack: Stack | Unavailable = Unavailable(reason="not looked at")
    """At the end of the window."""
    stack_before: Stack | Unavailable = Unavailable(reason="not looked at")
    """At its beginning. A thread at the same lines as in `stack` has the frames of `stack`, locals included."""
    native: Stack | Unavailable = Unavailable(reason="not needed")
    interpreter: Interpreter | Unavailable = Unavailable(reason="not looked at")
    progress: Progress | Unavailable = Unavailable(reason="not looked at")
    data: DataSources | Unavailable = Unavailable(reason="not looked at")
    runtime: Runtime | Unavailable = Unavailable(reason="not looked at")
    files: FileBytes | Unavailable = Unavailable(reason="not looked at")
    recorder: FlightRecorder | Unavailable = Unavailable(reason="not looked at")
    loops: Loops | Unavailable = Unavailable(reason="not looked at")
    communicators: Communicators | Unavailable = Unavailable(reason="not looked at")
    stores: StoreServers | Unavailable = Unavailable(reason="not looked at")
    parts: tuple[int, ...] = ()
    """Only in a bundle, instead of values that many ranks have: their positions in the bundle's `parts`."""
    polled_lock: AwaitedFile | None = None
    """The lock file for which its main thread polls (filelock, torch.utils.cpp_extension), a path whose end it polls for, or an
    open file that another process has locked while it sleeps (SQLite)."""
    arrival: Arrival | None = None
    """If its main thread sleeps in a loop that tests files: the newest change of a directory below the one that it works in, or
    of one that its arguments name. Where it waits until a known path is gone, that of the path or its directory."""
    others_at_work: tuple[Holder, ...] = ()
    """The first few processes at work, on this host and outside of the run, that may end the wait of an idle rank although what
    it waits for does not show them. Where its main thread sleeps, they are of the same job as its launcher, otherwise they are
    connected with the rank or a descendant. Of a rank or launcher in a rendezvous, those of the same job."""
    others_asleep: tuple[Holder, ...] = ()
    """If none is at work and its main thread sleeps: the first few processes of its job and outside of the run that sleep."""
    others_stopped: tuple[Holder, ...] = ()
    """The first few processes outside of the run that started it by multiprocessing or are connected with it or a descendant, and
    that a signal has stopped; if there are none, such workers of Ray behind one that is connected. Of a rank, if none is at work
    and its main thread does not sleep; of a process that started ranks and is no launcher of torch."""
    ray_tasks: tuple[RayTask, ...] = ()
    """Of an idle worker of Ray: the first few workers in a task, on this host and outside of the run, that are connected with a
    process which may give tasks to both. That process may wait for their ends."""
    others_in_memory: tuple[Holder, ...] = ()
    """If its main thread sleeps, or often wakes: the first few processes outside of the run, and not below it, that have mapped a
    file or shared memory for writing that it has mapped too."""
    like: int | None = None
    """In a summary of a large run, the pid of a rank of this host about which the same was concluded. This process has its
    evidence, but for the numbers, the state, the CPU time, the command line, the environment and the connections."""
    deep_seconds_ago: float = 0.0
    """Age, at the end of the window, of the expensive evidence: both stacks, native, interpreter, the counters of progress, data
    and runtime. 0 if it was read in the window, or if the process has not run since the reading."""
    counted_seconds_ago: float | None = None
    """How long ago a poll last saw it make calls, for which its stack was not read. Only if it has made
    none in the window, has run in it and was not read twice since."""


class Alike(Value, frozen=True, kw_only=True):
    """Only in a bundle: a rank that is like another one of its host."""

    pid: int
    like: int
    """The pid of the other rank."""
    state: str
    rank: int
    local_rank: int | None
    started_seconds_ago: float
    cpu_ns: int
    """CPU time of all its threads in the window."""
    idle_seconds: float | None = None
    """As in `KernelThread`, of its training thread."""
    resident_bytes: int | None = None
    argv: tuple[str, ...] | None = None
    """None if it is that of the other rank."""
    variables: dict[str, str] = {}
    """The environment variables whose values differ from those of the other rank."""


# --- a host --------------------------------------------------------------------------------------------------------


class Connection(Value, frozen=True, kw_only=True):
    """One TCP socket of an observed process, at the end of the window (tcp(7), linux/tcp.h `tcp_info`)."""

    pid: int
    namespace: str
    """Its network namespace."""
    state: str
    local_address: str
    local_port: int
    remote_address: str
    remote_port: int
    receive_queue_bytes: int
    send_queue_bytes: int
    bytes_moved: int | None
    """Payload in both directions in the window; None without a first reading."""
    last_sent_ms: int | None
    """Milliseconds since the last byte was sent."""
    last_received_ms: int | None
    """Milliseconds since the last byte was received."""
    retransmits: int | None = None
    backoff: int | None = None
    unacked: int | None = None
    rtt_us: int | None = None
    busy_ms: int | None = None
    """Time in the window during which data was in flight or waited to be sent; None without a first reading."""
    inode: int | None = None
    """Inode of the socket, as in `AwaitedFile.inode`."""
    delivery_rate_bytes: int | None = None
    """Bytes per second that the connection recently delivered (`tcpi_delivery_rate`)."""
    nothing_sent: bool = False
    """Whether data has come and none was ever sent. Then `last_sent_ms` counts from the start of the connection."""


class Listener(Value, frozen=True, kw_only=True):
    """The process that listens on a job's master port."""

    port: int
    namespace: str
    pid: int | None
    """None if the process could not be found (of another user or container)."""
    name: str = ""
    argv: tuple[str, ...] = ()
    orphan: bool = False
    """Its launcher is gone (`Process.launcher_gone`)."""
    started_seconds_ago: float | None = None


class Connections(Reading, frozen=True, kw_only=True, gc=True, dict=True):
    """All TCP sockets of the observed processes. The reasoning keeps an index of them with it (`dict`)."""

    connections: tuple[Connection, ...]
    listeners: tuple[Listener, ...] = ()
    window_seconds: WindowSeconds | None = None
    """The time in which `bytes_moved` and `busy_ms` were counted; None if that is the window of the host."""


class ControlGroup(Value, frozen=True, kw_only=True):
    """A control group with ranks, across the window."""

    path: str
    frozen: bool | None
    throttled_us: int | None
    """Microseconds for which its CPU quota throttled it in the window."""
    oom_kills: int | None
    """Processes that the OOM killer has ended since the group was created."""


class Interface(Value, frozen=True, kw_only=True):
    """A network interface."""

    name: str
    up: bool
    addresses: tuple[str, ...]
    networks: tuple[str, ...] = ()
    """Its networks, as `10.0.0.0/24`; only IPv4."""


class Card(Value, frozen=True, kw_only=True):
    """One GPU, by NVML (nvml.h). What the driver or the card does not answer is None."""

    index: int
    """NVML's number: in the order of the PCI addresses, whatever CUDA_VISIBLE_DEVICES says."""
    uuid: str | None = None
    name: str | None = None
    bus_id: str | None = None
    """The PCI address, as `0000:c1:00.0`."""
    utilisation: int | None = None
    """Percent of the time, in the last sample of 1/6 to 1 second, in which a kernel ran. A kernel that only waits counts."""
    memory_activity: int | None = None
    """Percent of that time in which the card's memory was read or written."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    """Since Ampere, an average over a second."""
    power_limit_watts: float | None = None
    """The enforced one."""
    sm_clock_mhz: int | None = None
    temperature_celsius: int | None = None
    throttle: tuple[str, ...] | None = None
    """What holds the clocks down: `sw_power_cap`, `hw_slowdown`, `sw_thermal`, `hw_thermal`, `hw_power_brake`, ..."""
    uncorrected_errors: int | None = None
    """Uncorrected ECC errors of its memories since the driver was loaded."""
    remapping_pending: bool | None = None
    """A row of its memory is replaced at the next reset."""
    remapping_failed: bool | None = None
    """A row could not be replaced."""
    links_active: int | None = None
    """NVLinks in use; None without NVLink."""
    links_inactive: tuple[int, ...] = ()
    """The numbers of the others, if any is in use."""
    lost: bool = False
    """It has fallen off the bus, or answers nothing until it is reset (NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED)."""
    pids: tuple[int, ...] | None = None
    """Processes that compute on it, in hangdoc's pid namespace. In most containers the driver names none."""


class Cards(Reading, frozen=True, kw_only=True):
    """The GPUs of the host, by NVML, which a child process asks."""

    cards: tuple[Card, ...]
    """What the driver last reported; empty if it has never answered."""
    driver: str | None = None
    age_seconds: float = 0.0
    """Seconds since the driver answered, at the end of the window."""
    unanswered_seconds: float | None = None
    """For how long it has not answered a question now, if that is more than it may take."""
    problem: str | None = None
    """One clause: why some of `cards` are incomplete."""


class CardEvent(Value, frozen=True, kw_only=True):
    """An error that the driver wrote to the kernel log: an Xid of a GPU, or an SXid of an NVSwitch
    (https://docs.nvidia.com/deploy/xid-errors/). Equal ones are counted together."""

    kind: str
    """`Xid` or `SXid`."""
    number: int
    bus_id: str
    """The PCI address of the device, as in `Card.bus_id`."""
    pid: int | None = None
    """The process that had the failing channel. None if the message names none, or if hangdoc is not in the first pid namespace,
    to which the driver's numbers belong."""
    count: int = 1
    seconds_ago: float
    """Of the first one. The kernel log has a clock of its own, which drifts by seconds in a day."""
    text: str = ""
    """The rest of the first message, without the name of the process."""


class CardEvents(Reading, frozen=True, kw_only=True):
    """Errors in the kernel log since the oldest observed process began, the oldest first."""

    events: tuple[CardEvent, ...]


class LinkPort(Value, frozen=True, kw_only=True):
    """A port of an InfiniBand or RoCE device (/sys/class/infiniband, Documentation/ABI/stable/sysfs-class-infiniband)."""

    device: str
    port: int
    layer: str | None = None
    """`InfiniBand` or `Ethernet`."""
    state: str | None = None
    """`ACTIVE`, `DOWN`, `INIT`, `ARMED`."""
    physical_state: str | None = None
    """`LinkUp`, `Disabled`, `Polling`."""
    pids: tuple[int, ...] = ()
    """Observed processes that have the device open."""
    grown: dict[str, int] = {}
    """By how much counters of errors and congestion grew in the window; without those that did not."""
    received_bytes: int | None = None
    sent_bytes: int | None = None
    """In the window."""


class Links(Reading, frozen=True, kw_only=True):
    """The InfiniBand and RoCE ports of the host, across the window."""

    ports: tuple[LinkPort, ...]


class Machine(Reading, frozen=True, kw_only=True):
    """The host."""

    cpu_model: str | None
    cpu_flags: tuple[str, ...]
    """Only those that matter for dtypes: avx512_bf16, amx_bf16, ..."""
    cores: int
    gpus: int = 0
    """NVIDIA devices present."""
    memory_total_bytes: int
    memory_available_bytes: int
    shared_total_bytes: int | None = None
    shared_free_bytes: int | None = None
    """Free space of /dev/shm, through which dataloader workers pass their batches."""
    swap_total_bytes: int
    swap_used_bytes: int
    swapped_bytes: int | None
    """Bytes swapped in and out in the window."""
    load_1m: float
    kernel: str
    architecture: str = ""
    """`x86_64`, `aarch64` (uname(2)); empty in older bundles."""
    interfaces: tuple[Interface, ...]
    net_namespace: str | None = None
    """The network namespace of `interfaces`. A rank in another one (a container) has other interfaces."""
    hostname_addresses: tuple[str, ...] | Unavailable


class Host(Value, frozen=True, kw_only=True):
    """The evidence of one host in one window."""

    name: str
    taken_at: str
    """When the window ended: ISO 8601, UTC. All ages are from then."""
    window_seconds: WindowSeconds
    elapsed_seconds: float
    """From the beginning of the window, which polls share, or of the observation, to the end."""
    processes: tuple[Process, ...]
    alike: tuple[Alike, ...] = ()
    """Only in a bundle: ranks that are like others (`hangdoc.shared_ranks`)."""
    connections: Connections | Unavailable = Unavailable(reason="not looked at")
    connections_seconds_ago: float | None = None
    """How long before the end of the window they were read; None if that was at its end. A poll keeps those of an earlier one if
    all ranks make calls."""
    control_groups: tuple[ControlGroup, ...] = ()
    ras: tuple[Ras, ...] = ()
    """Empty if no rank uses NCCL, or if torch's record of each rank has its calls."""
    machine: Machine | Unavailable = Unavailable(reason="not looked at")
    cards: Cards | Unavailable = NOT_LOOKED_AT
    card_events: CardEvents | Unavailable = NOT_LOOKED_AT
    links: Links | Unavailable = NOT_LOOKED_AT
    problems: tuple[str, ...] = ()
    """One sentence each: what could not be observed, and how to fix it."""
    late: tuple[str, ...] = ()
    """As `problems`: what could not be read in time. In older bundles these are among `problems`."""
    wall_us: Microseconds | None = None
    """The host's wall clock at the end of the window: microseconds since 1970, as the times of a `CallHistory`."""
    monotonic_us: Microseconds | None = None
    """Its monotonic clock then, in microseconds (clock_gettime(2)): that of `time.monotonic` and `time.perf_counter`."""
    machine_id: str | None = None
    """The kernel's boot id and the pid namespace: the same for one machine under two names."""
    restricted: bool = False
    """Only the trees of named processes were searched. Ranks outside of them may be alive on this host."""
    unread: tuple[int, ...] = ()
    """Pids of processes that are there and could not be read at all, at most 4,096: their ranks have not ended."""
    asked_as: str | None = None
    """The name by which a fleet session reached it."""
    clock_ahead_seconds: float | None = None
    """Seconds by which its clock is at least ahead of the gathering machine's clock; None if not compared."""
    dumps: str | None = None
    """The directory from which the ranks' dumps of torch's recorder were read, after the fact: no host was observed, and nothing
    else of the ranks. `wall_us` is when torch wrote them. If that is not known, `taken_at` is the newest time in them, and the
    ages in a record, which are from the newest time in its dump, only tell in which order calls were made."""


class Unreached(Value, frozen=True, kw_only=True):
    """A host of a fleet session that sent no evidence."""

    host: str
    why: str
    """One clause."""


class Brought(Value, frozen=True, kw_only=True):
    """A host to which the look brought hangdoc."""

    host: str
    python: str | None = None
    """The interpreter that ran it there."""
    removed: bool | None = None
    """Whether the host says that it has removed it; None if it stays for further looks."""


class Snapshot(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The evidence of one observation, over one or many hosts."""

    hangdoc: str
    hosts: tuple[Host, ...]
    unreached: tuple[Unreached, ...] = ()
    brought: tuple[Brought, ...] = ()
    gathered_seconds: float | None = None
    """Seconds that the fleet session took for all hosts."""
    unused: tuple[str, ...] = ()
    """One sentence for each host of which only the newest of several observations is used."""
    schema: str = SCHEMA


def merge(snapshots: tuple[Snapshot, ...], names: tuple[str, ...] = ()) -> Snapshot:
    """Merge snapshots into one with all hosts, ordered by name. If a machine occurs twice, its newest observation is used, and
    `unused` names the others, by `names`, one for each snapshot. Machines with the same name (often containers) get a number.

    Raises ValueError if `snapshots` is empty.
    """
    if not snapshots:
        raise ValueError("nothing to merge")
    observations: dict[tuple[str, str], list[tuple[Host, str]]] = {}
    for snapshot, file in zip(snapshots, names or [""] * len(snapshots), strict=True):
        for host in snapshot.hosts:
            observations.setdefault((host.name, host.machine_id or ""), []).append((host, file))
    alike: dict[str, list[Host]] = {}
    unused = dict.fromkeys(text for snapshot in snapshots for text in snapshot.unused)
    for (name, _), seen in sorted(observations.items(), key=lambda item: item[0]):
        (host, _), *older = ordered = sorted(seen, key=lambda one: one[0].taken_at, reverse=True)
        if older:
            unused[_describe_unused(name, [(one.taken_at, file) for one, file in ordered])] = None
        alike.setdefault(name, []).append(host)
    hosts = [
        replace(host, name=f"{name}#{number}") if len(group) > 1 else host
        for name, group in alike.items()
        for number, host in enumerate(group, 1)
    ]
    reached = {host.asked_as for host in hosts} | {host.name for host in hosts}
    unreached = {gone.host: gone for snapshot in snapshots for gone in snapshot.unreached if gone.host not in reached}
    return Snapshot(
        hangdoc=snapshots[0].hangdoc,
        hosts=tuple(hosts),
        unreached=tuple(unreached[name] for name in sorted(unreached)),
        brought=tuple(dict.fromkeys(brought for snapshot in snapshots for brought in snapshot.brought)),
        gathered_seconds=max((s.gathered_seconds for s in snapshots if s.gathered_seconds is not None), default=None),
        unused=tuple(unused),
    )


def _describe_unused(host: str, seen: list[tuple[str, str]]) -> str:
    """`seen`: when each observation was taken, and its file, the newest first."""
    newest, *older = [" of ".join([*[file] * bool(file), f"{at[:19].replace('T', ' ')} UTC"]) for at, file in seen]
    shown = ", ".join(older[:_UNUSED_SHOWN]) + f" and {len(older) - _UNUSED_SHOWN} more" * (len(older) > _UNUSED_SHOWN)
    used = f"not used: {shown}, because {newest} observed the same host later ({host})"
    return f"{used}. Diagnose the bundles of different runs one at a time"
