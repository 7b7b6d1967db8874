"""The answer, as frozen values. Its JSON is fixed by the contract page (docs/json.md): fields may be added, none
renamed, retyped or dropped."""

from typing import Literal

from msgspec import Struct

SCHEMA = "hangdoc.diagnosis/1"

Verdict = Literal["healthy", "waiting", "hung", "unknown"]
Label = Literal["computing", "blocked", "dead"]
Severity = Literal["info", "warning", "error"]


class DocumentPart(Struct, frozen=True, kw_only=True, gc=False):
    """Base of all values here."""


class Operation(DocumentPart, frozen=True, kw_only=True):
    """What a rank waits in, in torch.distributed's own names.

    `group` is None for the default group; `peer` is the rank a point-to-point call names; `seq` is the collective's
    sequence number where a flight recorder gave it; `backend` is the group's (`gloo`, `cpu:gloo,cuda:nccl`), where known.
    """

    op: str
    origin: str | None = None
    group: str | None = None
    peer: int | None = None
    seq: int | None = None
    backend: str | None = None


class Where(DocumentPart, frozen=True, kw_only=True):
    """The innermost frame of the user's own code."""

    file: str
    line: int
    function: str
    source: str | None = None


class RankView(DocumentPart, frozen=True, kw_only=True):
    """One rank as it was seen. A rank that was not observed has no label."""

    rank: int
    local_rank: int | None
    host: str
    pid: int | None
    label: Label | None
    state: str
    operation: Operation | None
    where: Where | None
    cpu_percent: float | None
    """Of one core, main thread and all others together, over the window."""
    batches_done: int | None
    batches_total: int | None
    silent_seconds: float | None
    """Since the last byte to or from any other rank."""
    stack_seconds_ago: float | None = None
    """Age of what `operation` and `where` were read from; 0 for a stack that is as it would be read now, None without a stack."""


class Evidence(DocumentPart, frozen=True, kw_only=True):
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
    """What to type next, each a whole command line."""
    explained_by: str | None = None
    """Always None: each blockage has one finding, and none is the consequence of another."""
    cause: str | None = None
    """What explains the blockage, where something does (`fewer-data`); None where the finding is about the blockage itself."""
    id: str = ""
    """The same for the same hang in every look, live or replayed; another run or another blockage has another one. The same
    blockage at the same ranks has it again after the run went on in between."""


class Blocked(DocumentPart, frozen=True, kw_only=True):
    """One thing that holds up ranks. A job's verdict and its first findings follow from these."""

    kind: str
    """`stopped`, `left-loop`, `rendezvous`, ..."""
    cause: str | None
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    ends_by_itself: bool | None
    """Whether it can end without anybody's help; None where nobody can tell."""


class Unseen(DocumentPart, frozen=True, kw_only=True):
    """A rank of the job that was not observed."""

    rank: int
    why: str


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
    """The gravest first."""
    script: str | None = None
    """The script or module that the ranks run, without its directory."""


class Diagnosis(DocumentPart, frozen=True, kw_only=True):
    """The whole answer."""

    hangdoc: str
    taken_at: str
    window_seconds: float
    elapsed_seconds: float
    verdict: Verdict
    jobs: tuple[Job, ...]
    problems: tuple[str, ...]
    schema: str = SCHEMA


def exit_code(diagnosis: Diagnosis) -> int:
    """The contract's exit code of a diagnosis: 0, 1, 3 or 4."""
    if not diagnosis.jobs:
        return 3
    findings = [finding for job in diagnosis.jobs for finding in job.findings]
    if any(finding.severity == "error" for finding in findings):
        return 1
    return 4 if diagnosis.verdict == "unknown" else 0
