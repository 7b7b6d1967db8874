"""Checks of what the nodes have room for: cores, memory, disk space, CPU instructions. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hangdoc.parse import natural
from hangdoc.phrases import amount
from hangdoc.preflight.node_checks import count_ranks, judge_refused
from hangdoc.preflight.plan import Check, Link, MissingPath, NodeReport, Plan
from hangdoc.snapshot import Machine
from hangdoc.torch_facts.dtypes import BYTES
from hangdoc.torch_facts.launchers import AGENTS

_NUMBERS_PER_PARAMETER = 4
"""Weight, gradient and Adam's two moments."""
_NUMBERS_KEPT = 3
"""In a checkpoint per parameter: weight and moments."""
_SHARE, _SMALLER = "the ranks share the model's state", " or keep it in a smaller type"
"""When memory suffices all the same: as with FSDP, or in bfloat16."""
_LEAVE_OUT, _SMALLER_FILE = "checkpoints leave out the state of Adam", " or keep a smaller type"
"""The same of disk space."""
_BF16 = ("avx512_bf16", "amx_bf16", "bf16")


def room(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """Cores, memory, disk space and CPU instructions are sufficient."""
    for report in reports:
        machine = report.machine
        if not isinstance(machine, Machine):
            continue
        number = count_ranks(report, plan)
        if number is not None:
            yield _cores(report, machine, plan, number)
        yield from (_judge_missing_checkpoint(missing, report) for missing in report.missing_checkpoints)
        if report.lacks_checkpoints:
            yield Check(name="checkpoints", status="warn", nodes=(report.node,),
                        text=f"{report.node}: directory {plan.checkpoints} (--checkpoints) does not exist",
                        remedy="Create it, unless the script does so: torch.save does not.")  # fmt: skip
        if plan.parameters and number is not None:
            yield _memory(report, machine, plan, number)
            if report.free_bytes is not None:
                yield _disk(report, plan, report.free_bytes)
        if plan.dtype == "bfloat16" and not machine.gpus and not set(_BF16) & set(machine.cpu_flags):
            yield Check(name="dtype", status="warn", nodes=(report.node,),
                        text=f"{report.node} has no CPU instructions for bf16",
                        remedy="Use float32, which is faster there (HD504).")  # fmt: skip


class _State(NamedTuple):
    """The size of what is kept for each parameter of a model."""

    type: str
    size: int
    smaller: int | None
    """If the model itself is in the half-precision type of the training. With autocast, it stays in float32."""

    def describe(self, dtype: str | None) -> str:
        """`800 MB in float32 (400 MB if the model itself is in bfloat16)`."""
        less = f" ({_size(self.smaller)} if the model itself is in {dtype})" if self.smaller is not None else ""
        return f"{_size(self.size)} in {self.type}{less}"

    def name_condition(self, available: int, dtype: str | None, other: str, smaller_type: str) -> str:
        """When this size is enough; empty if it is. `other`: when less is kept."""
        if self.size < available:
            return ""
        if self.smaller is None:
            return f"{other}{smaller_type}"
        return f"the model itself is in {dtype} or {other}" if self.smaller < available else other


def _measure_state(plan: Plan, numbers: int) -> _State:
    kept = "float64" if plan.dtype == "float64" else "float32"
    half, count = BYTES.get(plan.dtype or kept, BYTES[kept]), (plan.parameters or 0) * numbers
    return _State(kept, count * BYTES[kept], count * half if half < BYTES[kept] else None)


def _memory(report: NodeReport, machine: Machine, plan: Plan, number: int) -> Check:
    """Whether the state of this number of ranks has room in memory."""
    state, available = _measure_state(plan, _NUMBERS_PER_PARAMETER * number), machine.memory_available_bytes
    unless = state.name_condition(available, plan.dtype, _SHARE, _SMALLER)
    text = (
        f"{report.node}: weights, gradients and Adam of {amount(number, 'rank')} take {state.describe(plan.dtype)}, "
        f"{_size(available)} are available"
    )
    if not unless:
        return Check(name="memory", status="pass", text=text)
    return Check(name="memory", status="fail", nodes=(report.node,), unless=unless, text=f"{text}: too little, unless {unless}",
                 remedy="Use fewer ranks or a smaller model. Activations need more memory.")  # fmt: skip


def _disk(report: NodeReport, plan: Plan, free: int) -> Check:
    """Whether a checkpoint has room on the disk, and some more of them."""
    state = _measure_state(plan, _NUMBERS_KEPT)
    unless = state.name_condition(free, plan.dtype, _LEAVE_OUT, _SMALLER_FILE)
    text = (
        f"{report.node}: a checkpoint with the state of Adam takes {state.describe(plan.dtype)}, {_size(free)} are free"
    )
    if not unless and 3 * state.size <= free:
        return Check(name="disk", status="pass", text=text)
    return Check(name="disk", status="fail" if unless else "warn", nodes=(report.node,), unless=unless,
                 text=text + (f": too little, unless {unless}" if unless else ""),
                 remedy="Free disk space, or keep fewer checkpoints.")  # fmt: skip


def _judge_missing_checkpoint(missing: MissingPath, report: NodeReport) -> Check:
    if missing.refused:
        return judge_refused("checkpoints", missing, report)
    return Check(name="checkpoints", status="warn", nodes=(report.node,),
                 text=f"{report.node}: the checkpoint {missing.path} ({missing.origin}) does not exist",
                 remedy="Copy it there, or correct the path: the script may fail, or begin anew.")  # fmt: skip


def _cores(report: NodeReport, machine: Machine, plan: Plan, number: int) -> Check:
    """Whether the threads of this number of ranks have cores of their own."""
    given, several = natural(report.environment.get("OMP_NUM_THREADS")), number > 1
    ranks, cores = amount(number, "rank"), amount(machine.cores, "core")
    share = f"Set OMP_NUM_THREADS={max(1, machine.cores // number)}."
    if given is None and several and plan.launcher is not None and plan.launcher not in AGENTS:
        text = f"{report.node}: {ranks} on {cores}; {plan.launcher} does not limit their threads as torchrun does"
        return Check(name="cores", status="unknown", text=text, remedy=share)
    threads = given or (1 if several else machine.cores)
    text = f"{report.node}: {ranks} × {amount(threads, 'thread')} on {cores}"
    if threads * number <= machine.cores:
        return Check(name="cores", status="pass", text=text)
    remedy = share if number <= machine.cores else "Start fewer ranks on this node."
    return Check(name="cores", status="warn", nodes=(report.node,), text=f"{text} (HD505)", remedy=remedy)


def _size(amount_of_bytes: float) -> str:
    """`3.1 GB`, `16 MB`."""
    return f"{amount_of_bytes / 1e9:.1f} GB" if amount_of_bytes >= 1e9 else f"{amount_of_bytes / 1e6:.0f} MB"
