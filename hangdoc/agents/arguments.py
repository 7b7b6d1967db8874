"""The arguments of each tool. The JSON Schemas that agents see are made from these structs. An invalid argument raises an error
that names its field."""

import math
from typing import Annotated, Any, TypeVar, get_origin

import msgspec
from msgspec import Meta

from hangdoc import schema
from hangdoc.agents.bounds import clip
from hangdoc.commands.errors import USAGE, CommandError

MAX_PID = (1 << 22) - 1
"""The highest pid of Linux (PID_MAX_LIMIT of 64-bit kernels, proc_sys_kernel(5))."""
MAX_RANK = (1 << 20) - 1
_NAME = 300

Hosts = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2000,
        description="Diagnose the ranks of these hosts over ssh: names and ranges, as `node[0-63],login`. Groups and Slurm jobs "
        "only as the server was started with. hangdoc must be installed there. Leave it out for this host.",
    ),
]
Job = Annotated[
    str,
    Meta(min_length=1, max_length=_NAME, description="The `job` of a run, exactly as an answer of `diagnose` or `list_runs` has "
         "it, for example `none@127.0.0.1:29500`. Needed only if there are several runs."),
]  # fmt: skip
LookNumber = Annotated[
    int,
    Meta(
        ge=1,
        le=1 << 31,
        description="`look` of an earlier answer of `diagnose` or `open_bundle`. Leave it out for the latest.",
    ),
]
RankNumber = Annotated[int, Meta(ge=0, le=MAX_RANK, description="Global rank.")]
Patience = Annotated[
    float,
    Meta(ge=0, le=86400, description="Seconds. A wait for a rank that is alive but makes no progress is a hang after this time. "
         "With a low value, a rank that is only slow is reported as hung. A deadlock, a dead rank and a stopped rank are hangs "
         "at once, whatever the value."),
]  # fmt: skip
Pids = Annotated[
    tuple[Annotated[int, Meta(ge=1, le=MAX_PID)], ...],
    Meta(max_length=64, description="Only these processes of this host and their descendants. The pid of a launcher (torchrun, "
         "`launcher_pids` of `list_runs`) covers all its ranks."),
]  # fmt: skip


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all arguments. Field order is the order in the schema."""


class ListRuns(Arguments, frozen=True, kw_only=True):
    """Arguments of `list_runs`."""

    hosts: Hosts | None = None


class Diagnose(Arguments, frozen=True, kw_only=True):
    """Arguments of `diagnose`."""

    job: Job | None = None
    pids: Pids = ()
    hosts: Hosts | None = None
    window: Annotated[float, Meta(ge=0.1, le=60, description="Seconds to observe. 1 is enough for a hang; 5 to 10 distinguish "
                                  "a slow run from a frozen one more reliably.")] = 1.0  # fmt: skip
    patience: Patience = 30.0


class RankDetail(Arguments, frozen=True, kw_only=True):
    """Arguments of `rank_detail`."""

    rank: RankNumber
    job: Job | None = None
    look: LookNumber | None = None


class CompareRanks(Arguments, frozen=True, kw_only=True):
    """Arguments of `compare_ranks`."""

    rank: RankNumber
    other: RankNumber
    job: Job | None = None
    look: LookNumber | None = None


class ExplainFinding(Arguments, frozen=True, kw_only=True):
    """Arguments of `explain_finding`."""

    finding: Annotated[str, Meta(min_length=1, max_length=100, description="A code (`HD101`), a name (`shard-mismatch`), or "
                                 "the `id` of a finding in an earlier answer.")]  # fmt: skip


class NotSeen(Arguments, frozen=True, kw_only=True):
    """Arguments of `what_was_not_seen`."""

    look: LookNumber | None = None


class OpenBundle(Arguments, frozen=True, kw_only=True):
    """Arguments of `open_bundle`."""

    path: Annotated[str, Meta(min_length=1, max_length=4096, description="A bundle (*.hangdoc), or a directory of bundles of "
                              "one run (one per host), below a directory that the server was started with.")]  # fmt: skip
    job: Job | None = None
    patience: Patience = 30.0


class Preflight(Arguments, frozen=True, kw_only=True):
    """Arguments of `preflight`."""

    hosts: Hosts | None = None
    master: Annotated[str, Meta(max_length=300, description="Master address of the run, as ADDR:PORT. Default: MASTER_ADDR and "
                                "MASTER_PORT of the server's environment.")] | None = None  # fmt: skip
    ranks_per_node: Annotated[int, Meta(ge=1, le=4096, description="As torchrun's --nproc-per-node.")] = 1
    parameters: (
        Annotated[
            str, Meta(max_length=30, description="Number of model parameters, for example 25M, 1.3B or 124439808.")
        ]
        | None
    ) = None
    dtype: (
        Annotated[str, Meta(max_length=30, description="Data type of the training, for example bfloat16.")] | None
    ) = None


class CompareLaunchLines(Arguments, frozen=True, kw_only=True):
    """Arguments of `compare_launch_lines`."""

    lines: Annotated[
        tuple[Annotated[str, Meta(max_length=20_000)], ...],
        Meta(min_length=1, max_length=64, description="The launch commands or the texts of the launch scripts, one per node. "
             "Texts, not file names. They are parsed, never executed."),
    ]  # fmt: skip


A = TypeVar("A", bound=Arguments)


def read(kind: type[A], values: dict[str, Any]) -> A:
    """The arguments of a call. Raises CommandError if they do not match the schema. Numbers and lists may be in strings, and a
    list of one may be its only item, as some clients send them. Null stands for the default."""
    lists = {
        field.name for field in msgspec.structs.fields(kind) if get_origin(_strip_constraints(field.type)) is tuple
    }
    try:
        request = msgspec.convert(
            {
                name: _as_list(_decode_list(value)) if name in lists else _decode_list(value)
                for name, value in values.items()
                if value is not None
            },
            kind,
            strict=False,
        )
    except msgspec.ValidationError as error:
        names = ", ".join(kind.__struct_fields__)
        raise CommandError(f"{clip(str(error))}. Arguments of this tool: {names}.", USAGE) from None
    for name in kind.__struct_fields__:
        if isinstance(value := getattr(request, name), float) and not math.isfinite(value):
            raise CommandError(f"`{name}` must be a finite number.", USAGE)
    return request


def schema_of(kind: type[Arguments]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments. It does not say that an optional argument may be null, because some clients cannot
    read `anyOf`. `read` accepts null."""
    document = schema.struct_schema(kind)
    for name, described in document["properties"].items():
        choices = [choice for choice in described.get("anyOf", ()) if choice != {"type": "null"}]
        if len(choices) == 1:
            document["properties"][name] = choices[0]
    return document


def _strip_constraints(kind: Any) -> Any:
    """A type without its constraints."""
    return kind.__origin__ if hasattr(kind, "__metadata__") else kind


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, (int, str)) else value


def _decode_list(value: Any) -> Any:
    """Decode a list that a client sent as a string."""
    if isinstance(value, str) and value[:1] == "[" and len(value) < 1 << 20:
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value
    return value
