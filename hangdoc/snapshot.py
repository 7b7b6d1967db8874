"""The evidence: what was seen on one or many hosts, as frozen values.

Nothing here computes. A snapshot can be saved, sent, merged and replayed (`hangdoc.codec`), and a diagnosis is a pure
function of it (`hangdoc.diagnose`). What could not be read is an `Unavailable` with its reason where a whole source is
missing, and `None` where one number is: a missing reading never looks like 0.

Units are in the names: `_seconds`, `_ms`, `_ns`, `_bytes`. Times are host-local; only ages and differences are compared.
"""

from msgspec import Struct
from msgspec.structs import replace

SCHEMA = "hangdoc.snapshot/3"


class Value(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A plain frozen value. No value refers to itself, so the garbage collector need not look for cycles."""


class Reading(Value, frozen=True, kw_only=True, tag_field="kind", tag=str.lower):
    """A value that may stand where an `Unavailable` could: both carry their kind when written down."""


class Unavailable(Reading, frozen=True, kw_only=True):
    """A source that could not be read; `reason` is one sentence for a person."""

    reason: str


# --- stacks --------------------------------------------------------------------------------------------------------


class Local(Value, frozen=True, kw_only=True):
    """One local or global variable as a short text (py-spy's repr, redacted)."""

    name: str
    text: str
    argument: bool = False
    address: int | None = None
    """Address of the object in its process; ties a group or a tensor to what the interpreter probe found."""
    length: int | None = None
    """`len()` of a list, tuple, dict or set, where its memory could be read."""


class Exit(Value, frozen=True, kw_only=True):
    """A statement that leaves a loop before its end."""

    line: int
    statement: str
    """`break` or `return`."""
    conditions: tuple[str, ...] = ()
    """Tests of the `if`s around it inside the loop, outermost first, and the `except` it stands in."""


class Loop(Value, frozen=True, kw_only=True):
    """A `for` or `while` statement of the function a frame is in, found in its source (Python `ast`)."""

    line: int
    end_line: int
    header: str
    counters: tuple[str, ...] = ()
    """Names of integers that the loop itself advances: enumerate/range targets, or `+= n` under a `while`."""
    start: int | None = None
    """First value of the counter where the header says so (`enumerate(x, 1)` is 1)."""
    bound: str | None = None
    """A number or a name the counter runs up to, exclusive (`range(n)`, `while i < n`)."""
    advances: tuple[str, ...] = ()
    """Names that the loop moves on in any way: targets of a `for`, `+=` by whatever amount, `i = i + k`."""
    exits: tuple[Exit, ...] = ()
    """The first few `break`s and `return`s in it, in the order of the source."""


class Frame(Value, frozen=True, kw_only=True):
    """One stack frame."""

    function: str
    file: str
    """Full path as the interpreter knows it; for a native frame the shared object's name."""
    line: int
    source: str | None = None
    """The source line, stripped; None where the file could not be read or is newer than the process."""
    context: str | None = None
    """Source of the innermost user frame's surroundings, for rules that read calls (`work = dist.all_reduce(...)`)."""
    locals: tuple[Local, ...] = ()
    loops: tuple[Loop, ...] = ()
    conditions: tuple[str, ...] = ()
    """What holds at the line, outermost first: tests of the `if`s around it (their opposite in an else branch or behind a
    guard that returns), and the `except` it stands in."""
    contexts: tuple[str, ...] = ()
    """What the `with` statements around the line enter, outermost first: `torch.autocast('cpu', dtype=torch.bfloat16)`."""
    native: bool = False
    library: bool = False
    """True for the standard library and site-packages: not the user's own code."""


class PythonThread(Value, frozen=True, kw_only=True):
    """A Python thread and its frames, innermost first."""

    tid: int | None
    name: str | None
    active: bool
    owns_gil: bool
    frames: tuple[Frame, ...] = ()
    stack: int | None = None
    """Only in a bundle, in place of `frames`: the number of this stack in the bundle's table (`hangdoc.shared_frames`)."""
    locals: tuple[int, ...] = ()
    """Only in a bundle: for each frame, the number of its locals among the bundle's; -1 for a frame without."""


class Stack(Reading, frozen=True, kw_only=True):
    """All Python threads of a process at one moment, `at_seconds` after the observation began."""

    at_seconds: float
    threads: tuple[PythonThread, ...]


# --- clocks --------------------------------------------------------------------------------------------------------


class Holder(Value, frozen=True, kw_only=True):
    """A process that holds a file open."""

    pid: int
    name: str
    state: str
    """The kernel's letter."""


class AwaitedFile(Value, frozen=True, kw_only=True):
    """A file that a system call concerns."""

    kind: str
    """`path` where the call was given one; `file`, `pipe`, `socket` or `other` for an open one."""
    name: str
    """The path, or what /proc/PID/fd shows: `pipe:[7]`, `anon_inode:[eventfd]`."""
    descriptor: int | None = None
    mount: str | None = None
    """`nfs4 (server:/x)` for a file on anything but a local file system."""
    full: bool = False
    """It lies on a local file system without any room left."""
    inode: int | None = None
    """Of a socket; `Connection.inode` says where it leads."""
    writes: bool = False
    """Whether this end of a pipe is the one that is written to."""
    holders: tuple[Holder, ...] | None = None
    """Who holds the other end of a pipe, or the lock on a file that the call waits for, at most a few; None where nobody
    looked, or not every process could be looked at."""


class KernelThread(Value, frozen=True, kw_only=True):
    """One kernel thread across the window (proc_pid_task(5), Documentation/scheduler/sched-stats.rst)."""

    tid: int
    name: str
    state: str
    cpu_ns: int
    """Nanoseconds on a CPU during the window."""
    voluntary_switches: int | None
    involuntary_switches: int | None
    wchan: str | None = None
    syscall: str | None = None
    """Name of the system call that the thread is in (`hangdoc.observe.syscalls`); empty when in none, None when it could not be
    read or is running."""
    files: tuple[AwaitedFile, ...] = ()
    """What the call concerns."""
    sleep_seconds: float | None = None
    """Of a sleep (nanosleep(2), clock_nanosleep(2)), how much longer it lasts at the most."""


class Clocks(Reading, frozen=True, kw_only=True):
    """CPU time and switches of every thread between the two looks."""

    window_seconds: float
    resolution_ns: int
    """1 with schedstat; one clock tick where only utime/stime could be read."""
    threads: tuple[KernelThread, ...]


# --- who it is -----------------------------------------------------------------------------------------------------


class RankIdentity(Value, frozen=True, kw_only=True):
    """Which rank of which job a process is; `source` says how that is known."""

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
    """What the run is called (`hangdoc.run_identity.name`): the same for all of its ranks."""
    run_digest: str | None = None
    """Digest of that name, where only the digest is known (a beacon's)."""
    restart_count: int | None = None


class Launch(Value, frozen=True, kw_only=True):
    """What a launcher's command line asks for (torchrun's options; None where it does not say)."""

    tool: str
    nnodes: str | None = None
    nproc_per_node: str | None = None
    node_rank: int | None = None
    endpoint: str | None = None
    run_id: str | None = None


class Group(Value, frozen=True, kw_only=True):
    """A process group as the rank itself lists it (torch.distributed.distributed_c10d's `_world`)."""

    address: int
    name: str | None
    ranks: tuple[int, ...]
    default: bool = False
    backend: str | None = None
    """Its configuration by device as torch keeps it: `cpu:gloo,cuda:nccl`."""


class Environment(Reading, frozen=True, kw_only=True):
    """The variables a process was started with, secrets redacted."""

    variables: dict[str, str]


class Interpreter(Reading, frozen=True, kw_only=True):
    """What the rank's own interpreter holds, read from its memory without stopping it."""

    environment: dict[str, str]
    """Variables in `os.environ` that the process was not started with, or that it changed."""
    globals: tuple[Local, ...]
    """Numbers, short strings and lengths of containers in the `__main__` module, at the end of the window."""
    globals_before: tuple[Local, ...] = ()
    """The same at the window's start; only the numbers."""
    groups: tuple[Group, ...] = ()


# --- progress and data ---------------------------------------------------------------------------------------------


class Counter(Value, frozen=True, kw_only=True):
    """An integer variable of the user's code at both looks."""

    name: str
    function: str
    file: str
    before: int
    after: int
    looped: bool = False
    """True when the source shows that a loop counts its rounds in it."""
    advances: bool = False
    """True when the source shows that a loop moves it on, by rounds or by other amounts."""


class BeaconReading(Value, frozen=True, kw_only=True):
    """What a trainer publishes about itself (`hangdoc.beacon`); None for what it does not know."""

    step: int | None
    batches_done: int | None
    batches_total: int | None
    epoch: int | None
    phase: str
    shards: int | None
    shards_digest: str | None
    age_seconds: float
    """Since its last beat, on the host's monotonic clock."""
    moved: bool
    """Whether it beat during the window."""
    patience_seconds: float | None = None
    """How long its phase may take without a beat, where the trainer says so."""
    stages: tuple[float, ...] = ()
    """Smoothed seconds of data, forward, backward and optimizer, where the trainer measures them."""


class Progress(Reading, frozen=True, kw_only=True):
    """What counts in this process."""

    counters: tuple[Counter, ...]
    beacon: BeaconReading | None = None


class DataSource(Value, frozen=True, kw_only=True):
    """A directory of training data that the process names or holds open."""

    path: str
    origin: str
    """Where the path comes from: an environment variable, an option, an open file, a variable."""
    files: int
    bytes: int
    suffixes: tuple[str, ...]
    digest: str
    """SHA-256 over the sorted names and sizes: equal digests are equal sets."""


class DataSources(Reading, frozen=True, kw_only=True):
    """All data directories of one process."""

    sources: tuple[DataSource, ...]


class Runtime(Reading, frozen=True, kw_only=True):
    """The software a rank runs, from its own files (never imported)."""

    python: str | None
    executable: str | None
    torch: str | None
    cpus_allowed: int | None = None
    gpu: bool = False
    """Whether it has a GPU's device file open."""


class FileBytes(Reading, frozen=True, kw_only=True):
    """Storage that a process read and wrote during the window (/proc/PID/io), without what its sockets moved."""

    read_bytes: int
    written_bytes: int


# --- torch's flight recorder -----------------------------------------------------------------------------------------


class Recorded(Value, frozen=True, kw_only=True):
    """One collective that a rank issued."""

    seq: int
    """Counts the collectives of its group, from 1."""
    op: str
    inputs: tuple[str, ...] = ()
    """Each tensor given as `float32[64, 8]`."""
    outputs: tuple[str, ...] = ()
    age_seconds: float | None = None
    """Since it was issued."""
    frames: tuple[Frame, ...] = ()
    """Python frames that issued it, innermost first; empty where the recorder's form leaves them out."""


class RecordedGroup(Value, frozen=True, kw_only=True):
    """How far a rank has come with the collectives of one process group."""

    name: str
    default: bool = False
    issued: int | None = None
    """Number of the last collective that was issued."""
    completed: Recorded | None = None
    """The last that is complete."""
    pending: tuple[Recorded, ...] = ()
    """Those that are not, oldest first; at most a few."""


class FlightRecorder(Reading, frozen=True, kw_only=True):
    """What torch's own recorder of collectives knows (torch/csrc/distributed/c10d/FlightRecorder.hpp): neither sends and
    receives on Gloo, nor `monitored_barrier`."""

    source: str
    age_seconds: float
    """Since the recorder was read; 0 for one that was asked just now."""
    groups: tuple[RecordedGroup, ...]


# --- a process -----------------------------------------------------------------------------------------------------


class KernelState(Value, frozen=True, kw_only=True):
    """What the kernel shows of a process at one moment (proc_pid_status(5))."""

    state: str
    """R S D T t Z X I; t while a tracer holds it."""
    tracer_pid: int = 0
    """Who is attached with ptrace(2); 0 for nobody, and for a tracer outside of the observer's pid namespace."""
    tracer: str = ""
    """The tracer's program."""
    frozen: bool = False
    """Its control group is frozen (cgroup.events)."""


class Process(Value, frozen=True, kw_only=True):
    """One process of interest: a rank, a launcher, or a helper of a rank."""

    pid: int
    ppid: int
    role: str
    """`rank`, `launcher` or `helper`."""
    name: str
    argv: tuple[str, ...]
    state: str
    """The kernel's letter: R S D T t Z X I (proc_pid_stat(5)), at the end of the window, as `tracer_pid` and `frozen`."""
    started_seconds_ago: float
    identity: RankIdentity | None = None
    launch: Launch | None = None
    owner: int | None = None
    """For a helper, the pid of its rank; for a rank, the pid of its launcher."""
    launcher_gone: bool = False
    """A launcher started it, and no launcher is among its ancestors any more. Its parent's pid would not say so: `nohup`,
    `setsid` and containers give a healthy run the parent 1, and a subreaper gives an orphan another."""
    whole_tree: bool = True
    """For a launcher, that all of its descendants were looked at."""
    unreadable_below: int = 0
    """For a launcher, how many Python processes below it forbid to be read: ranks may be among them."""
    uid: int | None = None
    cwd: str | None = None
    environment: Environment | Unavailable = Unavailable(reason="not looked at")
    exit_code: int | None = None
    """Of a zombie, as waitpid(2) encodes it."""
    tracer_pid: int = 0
    tracer: str = ""
    """The tracer's program."""
    frozen: bool = False
    """Its control group is frozen (cgroup.events)."""
    at_start: KernelState | None = None
    """State, tracer and freezer at the beginning of the window; None where nobody read them then."""
    control_group: str | None = None
    namespaces: dict[str, str] = {}
    resident_bytes: int | None = None
    clocks: Clocks | Unavailable = Unavailable(reason="not looked at")
    stack: Stack | Unavailable = Unavailable(reason="not looked at")
    """At the end of the window."""
    stack_before: Stack | Unavailable = Unavailable(reason="not looked at")
    native: Stack | Unavailable = Unavailable(reason="not needed")
    interpreter: Interpreter | Unavailable = Unavailable(reason="not looked at")
    progress: Progress | Unavailable = Unavailable(reason="not looked at")
    data: DataSources | Unavailable = Unavailable(reason="not looked at")
    runtime: Runtime | Unavailable = Unavailable(reason="not looked at")
    files: FileBytes | Unavailable = Unavailable(reason="not looked at")
    recorder: FlightRecorder | Unavailable = Unavailable(reason="not looked at")
    deep_seconds_ago: float = 0.0
    """Age at the end of the window of what is costly to read: both stacks, native, interpreter, the counters of progress, data,
    runtime and recorder. 0 where they were read in the window, or where the process has not run since they were read: then
    they are as they would be read now."""


# --- a host --------------------------------------------------------------------------------------------------------


class Connection(Value, frozen=True, kw_only=True):
    """One TCP socket of a process of interest, at the end of the window (tcp(7), linux/tcp.h `tcp_info`)."""

    pid: int
    namespace: str
    """The network namespace it lives in."""
    state: str
    local_address: str
    local_port: int
    remote_address: str
    remote_port: int
    receive_queue_bytes: int
    send_queue_bytes: int
    bytes_moved: int | None
    """Payload in both directions during the window; None without a first reading."""
    last_sent_ms: int | None
    """Since the last byte was sent."""
    last_received_ms: int | None
    retransmits: int | None = None
    backoff: int | None = None
    unacked: int | None = None
    rtt_us: int | None = None
    busy_ms: int | None = None
    """How much of the window it had data under way or waiting to be sent; None without a first reading."""
    inode: int | None = None
    """Of the socket in its network namespace; ties it to `AwaitedFile.inode`."""
    delivery_rate_bytes: int | None = None
    """Bytes a second that the link lately delivered (`tcpi_delivery_rate`)."""


class Listener(Value, frozen=True, kw_only=True):
    """Who listens on a job's master port."""

    port: int
    namespace: str
    pid: int | None
    """None where its process could not be found (another user's, another container's)."""
    name: str = ""
    argv: tuple[str, ...] = ()
    orphan: bool = False
    """Its launcher is gone (`Process.launcher_gone`)."""
    started_seconds_ago: float | None = None


class Connections(Reading, frozen=True, kw_only=True):
    """All TCP sockets of the processes of interest."""

    connections: tuple[Connection, ...]
    listeners: tuple[Listener, ...] = ()


class ControlGroup(Value, frozen=True, kw_only=True):
    """A control group that holds ranks, across the window."""

    path: str
    frozen: bool | None
    throttled_us: int | None
    """Microseconds throttled by its CPU quota during the window."""
    oom_kills: int | None
    """Processes killed for memory since the group was made."""


class Interface(Value, frozen=True, kw_only=True):
    """A network interface."""

    name: str
    up: bool
    addresses: tuple[str, ...]
    networks: tuple[str, ...] = ()
    """What lies directly behind it, as `10.0.0.0/24`; IPv4 alone."""


class Machine(Reading, frozen=True, kw_only=True):
    """The host."""

    cpu_model: str | None
    cpu_flags: tuple[str, ...]
    """Only those that decide about dtypes: avx512_bf16, amx_bf16, ..."""
    cores: int
    gpus: int = 0
    """NVIDIA devices present."""
    memory_total_bytes: int
    memory_available_bytes: int
    shared_total_bytes: int | None = None
    shared_free_bytes: int | None = None
    """Of /dev/shm, through which dataloader workers hand over their batches."""
    swap_total_bytes: int
    swap_used_bytes: int
    swapped_bytes: int | None
    """Swapped in and out during the window."""
    load_1m: float
    kernel: str
    interfaces: tuple[Interface, ...]
    net_namespace: str | None = None
    """Where the interfaces were read: those of a rank in another network namespace (a container) are others."""
    hostname_addresses: tuple[str, ...] | Unavailable


class Host(Value, frozen=True, kw_only=True):
    """Everything seen on one host in one window."""

    name: str
    taken_at: str
    """ISO 8601, UTC."""
    window_seconds: float
    elapsed_seconds: float
    processes: tuple[Process, ...]
    connections: Connections | Unavailable = Unavailable(reason="not looked at")
    control_groups: tuple[ControlGroup, ...] = ()
    machine: Machine | Unavailable = Unavailable(reason="not looked at")
    problems: tuple[str, ...] = ()
    """One sentence each: what could not be seen, and how to fix it."""
    machine_id: str | None = None
    """The kernel's boot id and the namespace of processes: the same for one machine under two names."""
    restricted: bool = False
    """Only the trees of named processes were looked at: a rank that is not among them may be alive elsewhere on the host."""
    asked_as: str | None = None
    """The name under which a fleet reached it."""
    clock_ahead_seconds: float | None = None
    """How far its clock is before that of the machine that gathered, at the least; None where nobody compared."""


class Unreached(Value, frozen=True, kw_only=True):
    """A host that was asked and sent no evidence."""

    host: str
    why: str
    """One clause."""


class Snapshot(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The evidence of one observation, over one or many hosts."""

    hangdoc: str
    hosts: tuple[Host, ...]
    unreached: tuple[Unreached, ...] = ()
    gathered_seconds: float | None = None
    """How long a fleet took for all hosts."""
    schema: str = SCHEMA


def merge(snapshots: tuple[Snapshot, ...]) -> Snapshot:
    """One snapshot with all the hosts, in the order of their names; the newest look at a machine wins. Machines that call
    themselves alike (containers often do) are distinguished by a number.

    Raises ValueError for no snapshot at all.
    """
    if not snapshots:
        raise ValueError("nothing to merge")
    newest: dict[tuple[str, str], Host] = {}
    for snapshot in snapshots:
        for host in snapshot.hosts:
            key = (host.name, host.machine_id or "")
            known = newest.get(key)
            if known is None or host.taken_at > known.taken_at:
                newest[key] = host
    alike: dict[str, list[Host]] = {}
    for (name, _), host in sorted(newest.items(), key=lambda one: one[0]):
        alike.setdefault(name, []).append(host)
    hosts = [
        replace(host, name=f"{name}#{number}") if len(group) > 1 else host
        for name, group in alike.items()
        for number, host in enumerate(group, 1)
    ]
    reached = {host.asked_as for host in hosts} | {host.name for host in hosts}
    unreached = {one.host: one for snapshot in snapshots for one in snapshot.unreached if one.host not in reached}
    return Snapshot(
        hangdoc=snapshots[0].hangdoc,
        hosts=tuple(hosts),
        unreached=tuple(unreached[name] for name in sorted(unreached)),
        gathered_seconds=max((s.gathered_seconds for s in snapshots if s.gathered_seconds is not None), default=None),
    )
