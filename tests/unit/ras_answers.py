"""What NCCL's RAS prints about a job, written after src/ras/client_support.cc of each version. For tests of the parser."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
ERRORS = {1: "Unhandled CUDA error", 2: "System error", 3: "Internal error", 4: "Invalid argument", 5: "Invalid usage",
          6: "Remote process error"}  # fmt: skip
Version = tuple[int, int, int]


class Member(NamedTuple):
    """A rank of a communicator."""

    rank: int
    pid: int
    counts: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    host: str = "127.0.0.1"
    gpu: int = 0
    nvml: int | None = None
    init_state: int = 0
    async_error: int = 0
    finalize: bool = False
    abort: bool = False
    missing: str = ""
    """`unresponsive`, `dead`, or `left` for one whose process answered without this communicator."""

    @property
    def status(self) -> str:
        if self.missing:
            return "NOCOMM"
        if self.abort:
            return "ABORT"
        return "FINALIZE" if self.finalize else "INIT" if self.init_state else "RUNNING"

    @property
    def card(self) -> str:
        return str(self.gpu) if self.nvml in (None, self.gpu) else f"{self.gpu} (NVML {self.nvml})"

    @property
    def place(self) -> str:
        return f"GPU {self.card} managed by process {self.pid} on node {self.host}"


class Communicator(NamedTuple):
    """Its members, which are all of its ranks."""

    hash: int
    members: tuple[Member, ...]

    @property
    def present(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if not member.missing)

    @property
    def absent(self) -> tuple[Member, ...]:
        """Those whose processes did not answer."""
        return tuple(member for member in self.members if member.missing in ("unresponsive", "dead"))

    @property
    def left(self) -> tuple[Member, ...]:
        """Those whose processes answered without it."""
        return tuple(member for member in self.members if member.missing == "left")


def json_answer(communicators: Sequence[Communicator], version: Version = (2, 29, 2)) -> bytes:
    """With the missing comma of 2.28.7 to 2.28.9."""
    text = json.dumps(
        {
            "nccl_version": ".".join(map(str, version)),
            "cuda_runtime_version": 13000,
            "cuda_driver_version": 13000,
            "timestamp": "2026-11-26 10:04:48",
            "communicators_count": len(communicators),
            "communicators": [_json(one) for one in communicators],
            "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
        },
        indent=2,
    )
    if version < (2, 29, 0):
        lines = text.split("\n")
        for at, line in enumerate(lines):
            if '"unresponsive"' in line:
                lines[at - 2] = lines[at - 2].removesuffix(",")
        text = "\n".join(lines)
    return f"{text}\n".encode()


def _json(communicator: Communicator) -> dict[str, object]:
    return {
        "hash": f"{communicator.hash:#x}",
        "secondary_hash": "0x13b62797af80ecac:0xd7258aafcae2ea0",
        "size": len(communicator.members),
        "ranks_count": len(communicator.present),
        "missing_ranks_count": len(communicator.members) - len(communicator.present),
        "ranks": [
            {
                **_json_place(member),
                "status": {
                    "init_state": member.init_state, "async_error": member.async_error, "finalize_called": member.finalize,
                    "destroy_flag": False, "abort_flag": member.abort,
                },
                "collective_counts": dict(zip(KINDS, member.counts, strict=True)),
            }
            for member in communicator.present
        ],
        "missing_ranks": [
            {
                **_json_place(member),
                "status": {"unresponsive": member.missing != "left", "considered_dead": member.missing == "dead"},
            }
            for member in communicator.members
            if member.missing
        ],
    }  # fmt: skip


def _json_place(member: Member) -> dict[str, object]:
    nvml = member.gpu if member.nvml is None else member.nvml
    return {"rank": member.rank, "host": member.host, "pid": member.pid, "cuda_dev": member.gpu, "nvml_dev": nvml}


def text_answer(communicators: Sequence[Communicator], version: Version = (2, 28, 3)) -> bytes:
    """The answer to VERBOSE STATUS. 2.24 and 2.25 count all collectives together, and number the ranks that are missing."""
    old = version < (2, 26, 0)
    text = ".".join(map(str, version))
    lines = [
        f"NCCL version {text} compiled with CUDA 12.8", "CUDA runtime version 12080, driver version 13000", "", "Job summary",
        "===========", "", "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        "      1          2            1          2        2", "", "Communicators... (0.00s)", "=============", "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
    ]  # fmt: skip
    for number, one in enumerate(communicators):
        size = len(one.members)
        lines.append(
            f"{number:5d}  {1:8d}  {1:8d}  {size:>8}  {size:8d}  {size:8d}  {'RUNNING':>8}  {_errors(one, old):>6}"
        )
    lines += ["", "Errors", "======", ""]
    for heading in ("INCOMPLETE", "DEAD"):
        gone = _processes(
            m for one in communicators for m in one.absent if (m.missing == "dead") == (heading == "DEAD")
        )
        if gone:
            lines += [heading, _job_line(heading, len(gone)), *gone, ""]
    for number, one in enumerate(communicators):
        lines += _error_blocks(f"#{number}-0 ({one.hash:016x})", one, old=old)
    lines += ["Warnings", "========", ""]
    for number, one in enumerate(communicators):
        if "MISMATCH" in _errors(one, old):
            lines += [f"#{number}-0 ({one.hash:016x}) MISMATCH", *_mismatch(one, old=old)]
    return "\n".join([*lines, ""]).encode()


def _errors(one: Communicator, old: bool) -> str:
    differ = len({_counts(member, old) for member in one.present}) > 1 or len(_statuses(one)) > 1
    named = (("INCOMPLETE", one.absent), ("ERROR", _failed(one)), ("MISMATCH", differ))
    return ",".join(name for name, is_so in named if is_so) or "OK"


def _counts(member: Member, old: bool) -> tuple[int, ...]:
    return (sum(member.counts),) if old else member.counts


def _statuses(one: Communicator) -> set[str]:
    return {member.status for member in (*one.present, *one.left)}


def _failed(one: Communicator) -> list[Member]:
    return [member for member in one.present if member.async_error not in (0, 7)]


def _plural(count: int, text: str = "s") -> str:
    return text if count > 1 else ""


def _job_line(heading: str, count: int) -> str:
    if heading == "INCOMPLETE":
        return f"  Missing communicator data from {count} job process{_plural(count, 'es')}"
    verb = "es are" if count > 1 else " is"
    return f"  {count} job process{verb} considered dead (unreachable via the RAS network)"


def _processes(members: Iterable[Member]) -> list[str]:
    return list(dict.fromkeys(f"  Process {m.pid} on node {m.host} managing GPU {m.card}" for m in members))


def _error_blocks(title: str, one: Communicator, *, old: bool) -> list[str]:
    lines: list[str] = []
    if one.absent:
        count = len(one.absent)
        lines += [f"{title} INCOMPLETE", f"  Missing communicator data from {count} rank{_plural(count)}"]
        if old:
            lines.append(f"  The missing rank{_plural(count)}: {','.join(str(member.rank) for member in one.absent)}")
        else:
            lines += [f"  Rank {member.rank} -- {member.place}" for member in one.absent]
        lines.append("")
    if failed := _failed(one):
        count = len(failed)
        lines += [f"{title} ERROR", f"  Asynchronous error{_plural(count)} on {count} rank{_plural(count)}"]
        for error in sorted({member.async_error for member in failed}):
            those = [member for member in failed if member.async_error == error]
            word = ERRORS.get(error, "Unexpected error")
            if len(those) > 1:
                lines += [f"  {len(those)} ranks reported {word}", *(f"  Rank {m.rank} -- {m.place}" for m in those)]
            else:
                lines.append(f"  Rank {those[0].rank} reported {word} -- {those[0].place}")
        lines.append("")
    return lines


def _mismatch(one: Communicator, *, old: bool) -> list[str]:
    size, lines = len(one.members), []
    if len(_statuses(one)) > 1:
        lines.append("  Communicator ranks have different status")
        groups: dict[str, list[Member]] = {}
        for member in (*one.present, *one.left):
            groups.setdefault(member.status, []).append(member)
        for status, those in sorted(groups.items(), key=lambda item: -len(item[1])):
            if old and status == "NOCOMM":
                numbers = ",".join(str(member.rank) for member in those)
                alone = f"  Rank {numbers} has status UNKNOWN"
                lines += [alone] if len(those) == 1 else [f"  {len(those)} ranks have status UNKNOWN"]
                if 1 < len(those) < size * 0.5:
                    lines.append(f"  The unknown ranks: {numbers}")
            else:
                lines += _group(those, size, f"have status {status}", f"has status {status}")
    for position, kind in enumerate(("collective",) if old else KINDS):
        values: dict[int, list[Member]] = {}
        for member in one.present:
            values.setdefault(_counts(member, old)[position], []).append(member)
        if len(values) > 1:
            lines.append(f"  Communicator ranks have different {kind} operation counts")
            for value, those in sorted(values.items(), key=lambda item: (-len(item[1]), -item[0])):
                launched = f"launched up to operation {value}"
                if value == 0 and not old:
                    launched = "not launched any operations"
                lines += _group(those, size, f"have {launched}", f"has {launched}")
            if not old:
                lines.append("")
    return [*lines, ""] if old else lines


def _group(those: Sequence[Member], size: int, all_of_them: str, one_alone: str) -> list[str]:
    if len(those) == 1:
        return [f"  Rank {those[0].rank} {one_alone} -- {those[0].place}"]
    lines = [f"  {len(those)} ranks {all_of_them}"]
    if len(those) < size * 0.5:
        lines += [f"  Rank {member.rank} -- {member.place}" for member in those]
    return lines
