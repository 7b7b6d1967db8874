"""The diagnosis, as frozen values. docs/json.md fixes its JSON: fields may be added, but never renamed, retyped or removed."""

from typing import Literal

from msgspec import Struct

SCHEMA = "hangdoc.diagnosis/1"

Verdict = Literal["healthy", "waiting", "hung", "unknown"]
Label = Literal["computing", "blocked", "dead"]
Severity = Literal["info", "warning", "error"]


class DocumentPart(Struct, frozen=True, kw_only=True, gc=False):
    """Base of all values here."""


class Operation(DocumentPart, frozen=True, kw_only=True):
    """What a rank waits in, in the names of torch.distributed.

    `group` is None for the default group. `peer` is the peer of a point-to-point call. `seq` is the collective's sequence number,
    if a flight recorder gives it. `backend` is the backend of the group (`gloo`, `cpu:gloo,cuda:nccl`), if known.
    """

    op: str
    origin: str | None = None
    group: str | None = None
    peer: int | None = None
    seq: int | None = None
    backend: str | None = None


class Where(DocumentPart, frozen=True, kw_only=True):
    """The innermost frame of the user's code."""

    file: str
    line: int
    function: str
    source: str | None = None


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
    """Age of the stack that `operation` and `where` come from. 0 if the stack is still the same; None without a stack."""
    like: int | None = None
    """In a look at many hosts, the rank of the same host that is in the same state at the same lines. Its variables and threads
    were sent for both."""


class Evidence(DocumentPart, frozen=True):
    """One observed fact; `rank` is None for a fact about the host or the job."""

    rank: int | None
    probe: str
    text: str


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

    @property
    def role(self) -> str:
        """What its culprits are called. While they may do what they are meant to, they are only `awaited`, or `involved` if no
        rank waits for them."""
        if self.severity != "info":
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


class Starter(DocumentPart, frozen=True, kw_only=True):
    """The launcher of a run, or its first rank if no launcher was seen."""

    pid: int
    host: str
    uid: int | None
    """Of its user; no name, because looking it up may block on a network service."""
    directory: str | None
    """Its working directory."""


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
    script: str | None = None
    """The script or module that the ranks run, without its directory."""
    started_by: Starter | None = None
    """The process that started it, to tell the runs of a shared host apart."""


class Diagnosis(DocumentPart, frozen=True, kw_only=True):
    """A complete diagnosis: the JSON document."""

    hangdoc: str
    taken_at: str
    window_seconds: float
    elapsed_seconds: float
    verdict: Verdict
    jobs: tuple[Job, ...]
    problems: tuple[str, ...]
    schema: str = SCHEMA


def exit_code(diagnosis: Diagnosis) -> int:
    """The exit code for a diagnosis: 3 without a job, 1 with an error, 4 if the verdict is unknown, else 0."""
    if not diagnosis.jobs:
        return 3
    findings = [finding for job in diagnosis.jobs for finding in job.findings]
    if any(finding.severity == "error" for finding in findings):
        return 1
    return 4 if diagnosis.verdict == "unknown" else 0
