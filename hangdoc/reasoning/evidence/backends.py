"""Which backend the collectives of a job and of a group use: `gloo`, `nccl`, or one for each device (`cpu:gloo,cuda:nccl`).

torch keeps that text for each group. If it could not be read, the names of the backends' threads show it, or the record of
calls.
"""

from collections.abc import Iterable
from functools import lru_cache

from hangdoc.reasoning.evidence import known
from hangdoc.reasoning.evidence.records import recorded_groups
from hangdoc.snapshot import Group, Process
from hangdoc.torch_facts import thread_names

_DEVICES = {"gloo": "cpu", "nccl": "cuda"}
"""Where each is at home: torch also lists Gloo for GPUs (`cpu:gloo,cuda:gloo`), through copies to the host."""


def parts(backend: str | None) -> frozenset[str]:
    """The backends in such a text, without the devices."""
    return frozenset(pair.rpartition(":")[2] for pair in (backend or "").split(",") if pair)


def of_run(processes: Iterable[Process]) -> str | None:
    """Of all groups together; None where nothing tells."""
    processes = list(processes)
    configured = {group.backend: None for process in processes for group in known.groups(process)}
    configured.pop(None, None)
    named = configured or {name: None for process in processes for name in _by_threads(process)}
    return _joined(tuple(named or {name: None for process in processes for name in _by_record(process)}))


def of_group(groups: Iterable[Group], name: str | None) -> str | None:
    """Of one of a rank's `groups`; `name` is None for the default group. None where it is unknown."""
    for group in groups:
        if group.name == name if name is not None else group.default:
            return _joined((group.backend,)) if group.backend is not None else None
    return None


def _by_threads(process: Process) -> Iterable[str]:
    names = known.thread_names(process)
    if names & thread_names.GLOO_THREADS:
        yield "cpu:gloo"
    if any(thread_names.uses_card(name) for name in names):
        yield "cuda:nccl"


def _by_record(process: Process) -> Iterable[str]:
    for group in recorded_groups(process):
        yield "cuda:nccl" if group.on_card else "cpu:gloo"


@lru_cache(1024)
def _joined(configurations: tuple[str, ...]) -> str | None:
    devices: dict[str, str] = {}
    for pair in ",".join(configurations).split(","):
        device, _, name = pair.rpartition(":")
        if name:
            devices.setdefault(name, _DEVICES.get(name, device))
    if len(devices) < 2:
        return next(iter(devices), None)
    return ",".join(sorted(f"{device}:{name}".lstrip(":") for name, device in devices.items()))
