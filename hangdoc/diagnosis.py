"""The diagnosis, as frozen values. docs/json.md fixes its JSON: fields may be added, but never renamed, retyped or removed."""

from typing import Literal

from msgspec import Struct

SCHEMA = "hangdoc.diagnosis/1"

Verdict = Literal["healthy", "waiting", "hung", "unknown"]
Label = Literal["computing", "blocked", "dead"]
Severity = Literal["info", "warning", "error"]
BatchesSource = Literal["beacon", "loader", "inferred"]
PlaceSource = Literal["stack", "recorder"]


class DocumentPart(Struct, frozen=True, kw_only=True, gc=False):
    """Base of all values here."""


class Operation(DocumentPart, frozen=True, kw_only=True):
    """What a rank waits in, in the names of torch.distributed.

    `group` is None for the default group. `peer` is the peer of a point-to-point call. `seq` is the collective's sequence number,
    if a flight recorder gives it. `backend` is the backend of the group (`gloo`, `cpu:gloo,cuda:nccl`), if known.
    """

    op: str
    origin: str | None = None
    """The part of torch that makes the call (`ddp-backward`, `fsdp`, `store`), or `user` if the program calls it, itself or in a
    library such as accelerate. None if unknown."""
    group: str | None = None
    peer: int | None = None
    seq: int | None = None
    backend: str | None = None
    group_label: str | None = None
    """What people call the group: the serving engine (`tp:0`), or the program by its `group_desc`, after the name (`2 (dp)`)."""

    @property
    def of_group(self) -> str:
        """` of group 2 (dp)`; empty for the default group."""
        return f" of group {self.group_label or self.group}" if self.group is not None else ""


class Where(DocumentPart, frozen=True, kw_only=True):
    """The innermost frame of the user's code."""

    file: str
    line: int
    function: str
    source: str | None = None


class CallView(DocumentPart, frozen=True, kw_only=True):
    """A collective, and the line of Python that called it."""

    op: str
    where: Where | None
    """None if the record has no traceback."""


class Calls(DocumentPart, frozen=True, kw_only=True):
    """The calls of a rank in one process group."""

    group: str | None
    """None for the default group."""
    made: int | None
    """The number of its last call, from 1, also if that is the one in which it waits. None if no record has it."""
    pending: int | None
    """The number of its first call that has not finished; None if there is none, or without a record."""
    last: CallView | None
    """Its last call, or the one that it waits in."""
    age_seconds: float | None
    """Seconds since it made the call of `pending`, or else the last one."""
    source: Literal["recorder", "ras", "inferred"]
    """`recorder`: torch's flight recorder. `inferred`: the rank's stack shows a call, and no record has it."""


class GpuView(DocumentPart, frozen=True, kw_only=True):
    """The GPU of a rank, by NVIDIA's driver; None for what it does not say."""

    index: int
    """The number that nvidia-smi shows."""
    utilisation: int | None
    """Percent of the time in which a kernel ran; a kernel that only waits counts."""
    memory_activity: int | None
    """Percent of the time in which its memory was read or written."""
    power_watts: float | None
    throttle: tuple[str, ...]
    """What holds its clocks down: `sw_power_cap`, `hw_thermal`, ..."""
    errors: tuple[str, ...]
    """`Xid 79`, `lost`, `2 ECC`, `remapping failed`; the Xids since the rank's run began."""
    power_limit_watts: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_celsius: int | None = None
    name: str | None = None
    """Its model."""


class RankView(DocumentPart, frozen=True, kw_only=True):
    """One rank as it was observed. A rank that was not observed has no label."""

    rank: int
    local_rank: int | None
    host: str
    pid: int | None
    label: Label | None
    state: str
    operation: Operation | None
    where: Where | None
    cpu_percent: float | None
    """Percent of one core, for all threads together, in the window."""
    batches_done: int | None
    batches_total: int | None
    silent_seconds: float | None
    """Seconds since the last byte to or from any other rank."""
    stack_seconds_ago: float | None = None
    """Age of the stack that `operation` and `where` come from. 0 if the stack is still the same. Of a rank that makes progress
    and whose stack was not read, the age of its last recorded call, which `where` comes from. None without both."""
    like: int | None = None
    """In a look at many hosts, the rank of the same host that is in the same state at the same lines. Its variables and threads
    were sent for both."""
    waited_share: float | None = None
    """Share of the window for which it waited for a later rank in its collectives, by its record. None if it neither made one nor
    came out of one, or if that is unknown."""
    calls: tuple[Calls, ...] = ()
    """For each of its process groups whose calls are known."""
    batches_source: BatchesSource | None = None
    """Who counts the batches: `beacon`, the trainer publishes them; `loader`, the rank's own iterator over its data counts them,
    or the framework that trains; `inferred`, variables of the program count them. None without a count."""
    batches_ended: bool = False
    """Whether it runs no further batch of this pass over the data: it has left the loop, has done all, or is dead."""
    where_source: PlaceSource | None = None
    """What shows `where`: `stack`, or `recorder`. Without `operation`, that is the line of the rank's last call, and the rank has
    moved on since; else the line of that operation. None without `where`."""
    role: str | None = None
    """What it is in a serving engine or in a job of Ray: `TP 1`, `actor 3`. None if the title of its process does not say it."""
    batches_seconds_ago: float | None = None
    """Age of `batches_done`. Polls read ranks that make progress in turns, and numbers of different moments can't be
    compared. None without a count."""
    made_by: str | None = None
    """The function of a package that makes the call of `operation`, where the line of `where` shows only what the package was
    asked for: `_run_train of lightning`."""
    progress: str | None = None
    """What shows that a rank makes progress, as a clause: `uses 98% of a core`, `its stack changed`."""
    gpu: GpuView | None = None
    """None without a GPU, and if the driver does not say which one the rank uses."""
    batches_pass: int | None = None
    """Not its number: a value that is another one in each pass over the data, by the iterator that runs. None without one."""
    batches_pass_number: int | None = None
    """The number of this pass over the data, from 1, by the loop around or the framework that trains. None if neither counts."""
    batches_round: int | None = None
    """The round of the loop over numbers around that of the batches, by its iterator, from 1: between two readings as many passes
    have ended as rounds, if each has one. None without such a loop."""
    batches_loop: Where | None = None
    """The first line of the loop whose rounds are the batches. None for what the trainer publishes, and if it was not seen."""


class Evidence(DocumentPart, frozen=True):
    """One observed fact; `rank` is None for a fact about the host or the job."""

    rank: int | None
    probe: str
    text: str


class FirstDifference(DocumentPart, frozen=True, kw_only=True):
    """Where the calls of some ranks and of the others first differed, long before the hang."""

    group: str | None
    """None for the default group."""
    number: int | None
    """Number of the first call that differs; None if it is older than the record."""
    ranks: tuple[int, ...]
    shift: int
    """By how many calls `ranks` are ahead of the others since then; negative if they are behind."""
    call: CallView
    """What `ranks` called."""
    others_call: CallView
    """What the others called under the same number."""
    calls_ago: int
    """How many calls were made since."""
    steps_ago: int | None
    """How many times the calls repeated since; None if they do not repeat."""


class Finding(DocumentPart, frozen=True, kw_only=True):
    """One known problem, with its culprits and victims."""

    code: str
    name: str
    severity: Severity
    confidence: float
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    summary: str
    evidence: tuple[Evidence, ...]
    remedy: str
    commands: tuple[str, ...] = ()
    """What to run next; each is a complete command line."""
    explained_by: str | None = None
    """Always None: each blockage has one finding, and none is the consequence of another."""
    cause: str | None = None
    """The cause of the blockage, if one is known (`fewer-data`); None if the finding describes the blockage itself."""
    id: str = ""
    """The same hang has the same id in every diagnosis, live or replayed; another run or blockage has another id. If the same
    ranks get into the same blockage again later, they have the same id again."""
    first_difference: FirstDifference | None = None
    """Only of HD207: where the calls first differed."""
    unread: str | None = None
    """Why the frames that would show the calls of its ranks were not read, if these calls were inferred from lines
    instead. Then the score may be lower."""

    @property
    def role(self) -> str:
        """What its culprits are called. Unless the run hangs because of them, they are only `awaited`, or `involved` if no rank
        waits for them."""
        if self.severity == "error":
            return "culprit"
        return "awaited" if self.victims else "involved"


class Blocked(DocumentPart, frozen=True, kw_only=True):
    """A blockage: one reason why ranks do not continue. A job's verdict and its first findings follow from its blockages."""

    kind: str
    """`stopped`, `left-loop`, `rendezvous`, ..."""
    cause: str | None
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    ends_by_itself: bool | None
    """Whether it can end without intervention; None if unknown."""


class Unseen(DocumentPart, frozen=True, kw_only=True):
    """A rank of the job that was not observed."""

    rank: int
    why: str
    unreadable: bool = False
    """Whether it may be a process that is alive and that hangdoc may not read."""


class GroupView(DocumentPart, frozen=True, kw_only=True):
    """A process group of a job."""

    name: str | None
    """None for the default group."""
    ranks: tuple[int, ...]
    """Its members; without torch's table of groups, the ranks whose calls in it are known."""
    backend: str | None
    label: str | None = None
    """What people call it, as `Operation.group_label`; `tp:0 (cpu)` for the second group of the same ranks."""


class PaceView(DocumentPart, frozen=True, kw_only=True):
    """How fast a job makes its calls, by the records of its ranks."""

    calls_per_second: float
    """Of a rank in all its groups: of the one that makes the most."""
    steps_per_second: float | None
    """By the counters of its loops; None without one that moved during the window."""
    waited_share: float
    """Share of the time that the ranks waited for a later rank in collectives: the median of all ranks. Without the
    `long_waits`."""
    slowest: int | None
    """The rank that is latest; None if none stands out."""
    late_seconds: float | None
    """By how much it is later than the median of the others."""
    last_share: float | None
    """In which share of `calls` it was the last."""
    least_calls_per_second: float | None = None
    """Of the rank that makes the fewest calls; None if all make about as many."""
    calls: int | None = None
    """How many of the last calls of its largest group this is about: those to which its ranks come the furthest apart."""
    of_calls: int | None = None
    """Of how many they were chosen."""
    operations: tuple[str, ...] = ()
    """Those of these calls."""
    long_wait_seconds: float | None = None
    """For how long the ranks once waited for a later rank, if that was for longer than in all other calls together; else None.
    The longest of a few such waits for the same ranks."""
    long_waits: int = 0
    """How many these are."""
    long_wait_ranks: tuple[int, ...] = ()
    """For whom: the ranks that came late to each of these calls; empty if more came late than waited."""
    tells_of_ranks: bool = True
    """Whether these are enough calls, over enough time, to tell whether a rank slows the others."""
    rate_seconds: float | None = None
    """Over how long `calls_per_second` was counted."""


class PastView(DocumentPart, frozen=True, kw_only=True):
    """What happened to a job before the look, by the records of its ranks."""

    seconds: float
    """How far back the records go."""
    calls_per_second: float
    """As in the pace, until the ranks stopped making calls."""
    stopped_us: int | None
    """When a rank made the last call of all: microseconds since 1970 on the clock of its host. None while calls are made."""
    stopped_seconds_ago: float | None
    first_stopped: tuple[int, ...]
    """The ranks whose last call is the oldest, if it is older than that of the others by a second or more."""
    first_stopped_seconds: float | None
    """How long before the last call of all they made theirs."""
    slowest: int | None
    """The rank that was the last in most calls, if the others waited much for it; None if none stands out."""
    last_share: float | None
    """In which share of `calls` it was the last."""
    late_seconds: float | None
    """By how much it was later than the median of the others."""
    others_waited_share: float | None
    """Share of the time that the other ranks waited for a later rank: their median."""
    calls: int
    """How many of the last calls of its largest group this is about: those to which its ranks came the furthest apart."""
    least_calls_per_second: float | None = None
    """As in the pace."""
    of_calls: int | None = None
    """Of how many they were chosen."""
    operations: tuple[str, ...] = ()
    """Those of these calls."""
    long_wait_seconds: float | None = None
    """As in the pace."""
    long_waits: int = 0
    """As in the pace."""
    long_wait_ranks: tuple[int, ...] = ()
    """As in the pace."""
    rate_seconds: float | None = None
    """As in the pace."""


class Starter(DocumentPart, frozen=True, kw_only=True):
    """The launcher of a run, or its first rank if no launcher was seen."""

    pid: int
    host: str
    uid: int | None
    """Of its user; no name, because looking it up may block on a network service."""
    directory: str | None
    """Its working directory."""
    pids: tuple[int, ...] = ()
    """Those of all launchers on its host that started ranks of the run, as of two nodes on one host. Empty for a single one."""


class Job(DocumentPart, frozen=True, kw_only=True):
    """One torch.distributed run."""

    id: str
    launcher: str | None
    backend: str | None
    world_size: int | None
    master: str | None
    verdict: Verdict
    hung_for_seconds: float | None
    ranks: tuple[RankView, ...]
    findings: tuple[Finding, ...]
    """Most likely cause first."""
    unseen: tuple[Unseen, ...]
    blockages: tuple[Blocked, ...] = ()
    """The most severe first."""
    name: str | None = None
    """What a person calls it: `train.py · torchrun · 2 ranks`, `vLLM · Qwen2.5-0.5B · tp 2`. Several jobs may have one name."""
    script: str | None = None
    """The script or module that the ranks run, without its directory."""
    started_by: Starter | None = None
    """The process that started it, to tell the runs of a shared host apart."""
    groups: tuple[GroupView, ...] = ()
    """Its process groups in which calls are known, the default group first."""
    ends_by_itself_in_seconds: float | None = None
    """When torch ends the run, at the earliest, because a call has a timeout; None if no record shows that, or if the job is
    healthy. With NCCL the end came up to 47 s later: torch notices the timeout, and first writes its record (2.11)."""
    pace: PaceView | None = None
    """Only of a job that makes progress and whose calls are recorded."""
    past: PastView | None = None
    """Only of a job whose calls are recorded."""


class Brought(DocumentPart, frozen=True, kw_only=True):
    """A host that had no hangdoc, and to which the look brought it."""

    host: str
    python: str | None
    """The interpreter that ran it there."""
    removed: bool | None
    """Whether the host says that it has removed it; None if it stays for further looks."""


class Diagnosis(DocumentPart, frozen=True, kw_only=True):
    """A complete diagnosis: the JSON document."""

    hangdoc: str
    taken_at: str
    window_seconds: float
    elapsed_seconds: float
    """From the beginning of the observation, or of the window if that began earlier, to its end."""
    verdict: Verdict
    jobs: tuple[Job, ...]
    problems: tuple[str, ...]
    """One sentence each: what could not be observed. Of an overloaded host, one sentence stands for all of `late`."""
    unused: tuple[str, ...] = ()
    """One sentence for each host of which only the newest of several observations was used. They are among `problems` too."""
    late: tuple[str, ...] = ()
    """What could not be read in time, one sentence each."""
    brought: tuple[Brought, ...] = ()
    dumps: str | None = None
    """The directory of torch's dumps, if it was made from these. Then `taken_at` is when torch wrote them, or the newest time in
    them, and the window is 0."""
    schema: str = SCHEMA


def exit_code(diagnosis: Diagnosis) -> int:
    """The exit code for a diagnosis: 3 without a job, 1 with an error, 4 if the verdict is unknown, else 0."""
    if not diagnosis.jobs:
        return 3
    findings = [finding for job in diagnosis.jobs for finding in job.findings]
    if any(finding.severity == "error" for finding in findings):
        return 1
    return 4 if diagnosis.verdict == "unknown" else 0
