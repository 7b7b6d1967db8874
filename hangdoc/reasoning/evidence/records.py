"""What torch's own records in a process say: its groups and their backends, and its last calls."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from hangdoc.diagnosis import Where
from hangdoc.program import is_entry
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import name_operation, short
from hangdoc.reasoning.model.holds import SHORTEST_TIMEOUT
from hangdoc.snapshot import CallForm, CallHistory, FlightRecorder, Frame, Group, Process, Recorded, RecordedGroup
from hangdoc.torch_facts import file_names, thread_names


def recorded_groups(process: Process) -> tuple[RecordedGroup, ...]:
    """The groups in the record of a process; none if it was read before the process last made progress."""
    recorder = process.recorder
    if not isinstance(recorder, FlightRecorder):
        return ()
    if recorder.age_seconds > 0:
        beacon = observed.beacon(process)
        if beacon is None or beacon.age_seconds < recorder.age_seconds:
            return ()
    return recorder.groups


def label_group(process: Process, name: str | None) -> str | None:
    """What people call a group of a process that torch calls `name`: the serving engine's name, or torch's with the description
    that the program gave (`2 (dp)`), which several groups may have. None for neither."""
    if name is None:
        return None
    engine = next((group.label for group in observed.groups(process) if group.label and group.name == name), None)
    recorded = (group for group in recorded_groups(process) if group.name == name and group.description)
    described = next((f"{name} ({group.description})" for group in recorded), None)
    return engine or described


def shortest_timeout(process: Process) -> float:
    """Seconds that other ranks wait for a process at least before torch ends the run: the shortest timeout in its record of
    calls, or without one torch's shortest default."""
    calls = (call for group in recorded_groups(process) for call in (group.completed, *group.pending))
    timeouts = (call.timeout_seconds for call in calls if call is not None and call.timeout_seconds)
    return min(timeouts, default=SHORTEST_TIMEOUT)


def unfinished_transfers(process: Process) -> Iterator[tuple[int, Recorded]]:
    """The oldest send to each peer, and the oldest receive from each, that are not complete."""
    for group in recorded_groups(process):
        for transfers in group.transfers:
            for call in transfers.pending[:1]:
                yield transfers.peer, call


def newest_call(record: FlightRecorder, history: CallHistory | None) -> tuple[int, CallForm] | None:
    """When the last call of a history was made, in microseconds since 1970, and its form; None without one, or for a history that
    is damaged: its columns come from a file or another host."""
    columns = () if history is None else (history.made_us, history.forms)
    if history is None or not all(columns) or not 0 <= history.forms[-1] < len(record.forms):
        return None
    return history.made_us[-1], record.forms[history.forms[-1]]


# --- the last call ----------------------------------------------------------------------------------------------------


class LastCall(NamedTuple):
    """The collective that a rank called last, in any of its groups: where it was a moment ago, if it moves and its
    stack is not read."""

    op: str
    """By its name in the record."""
    age_seconds: float
    """Since it was called, when the record was read."""
    frames: tuple[Frame, ...]
    """Python frames that called it, innermost first, without source lines; empty if unknown."""

    @property
    def name(self) -> str:
        """The function of torch.distributed that made it; without frames, by the record: Gloo records a reduce_scatter_single as
        all_reduce."""
        return name_operation(self.frames) or self.op

    @property
    def where(self) -> Where | None:
        """The line that called it."""
        return place_of_call(self.frames)


def place_of_call(frames: tuple[Frame, ...]) -> Where | None:
    """The innermost line of the user's code among the frames of a call; without one, of a package other than torch."""
    own = [frame for frame in frames if not frame.library and not is_entry(frame)]
    own = own or [frame for frame in frames if file_names.TORCH not in frame.file]
    return Where(file=short(own[0].file), line=own[0].line, function=own[0].function) if own else None


def last_call(process: Process, wall_us: int | None) -> LastCall | None:
    """The last call of a rank; None if its record was not read from its memory. `wall_us` is the clock of its host at the look,
    in microseconds since 1970."""
    record = process.recorder
    if not isinstance(record, FlightRecorder) or record.age_seconds > 0:
        return None
    calls: list[LastCall] = []
    for group in record.groups:
        newest = newest_call(record, group.history)
        if newest is not None and wall_us is not None:
            made_us, form = newest
            calls.append(LastCall(form.op, max(0.0, (wall_us - made_us) / 1e6), form.frames))
        else:  # the listed ones are the first few that are not complete
            listed = (call for call in (group.completed, *group.pending) if call is not None)
            calls += [LastCall(c.op, c.age_seconds, c.frames) for c in listed if c.age_seconds is not None]
    return min(calls, key=lambda call: call.age_seconds, default=None)


# --- backends ---------------------------------------------------------------------------------------------------------


_HOME_DEVICES = {"gloo": "cpu", "nccl": "cuda"}
"""Where each is at home: torch also lists Gloo for GPUs (`cpu:gloo,cuda:gloo`), through copies to the host."""


def backend_names(backend: str | None) -> frozenset[str]:
    """The backends in such a text, without the devices."""
    return frozenset(pair.rpartition(":")[2] for pair in (backend or "").split(",") if pair)


def backend_of_run(processes: Iterable[Process]) -> str | None:
    """The backends of all groups together: `gloo`, `nccl`, or one for each device (`cpu:gloo,cuda:nccl`). torch keeps
    that text for each group. If it could not be read, the names of the backends' threads show it, or the record of
    calls. None where nothing tells."""
    processes = list(processes)
    configured = {group.backend: None for process in processes for group in observed.groups(process)}
    configured.pop(None, None)
    named = configured or {name: None for process in processes for name in _backends_by_threads(process)}
    return _join_backends(
        tuple(named or {name: None for process in processes for name in _backends_by_record(process)})
    )


def backend_of_group(groups: Iterable[Group], name: str | None) -> str | None:
    """Of one of a rank's `groups`; `name` is None for the default group. None where it is unknown."""
    for group in groups:
        if group.name == name if name is not None else group.default:
            return _join_backends((group.backend,)) if group.backend is not None else None
    return None


def _backends_by_threads(process: Process) -> Iterable[str]:
    names = observed.thread_names(process)
    if names & thread_names.GLOO_THREADS:
        yield "cpu:gloo"
    if any(thread_names.uses_card(name) for name in names):
        yield "cuda:nccl"


def _backends_by_record(process: Process) -> Iterable[str]:
    for group in recorded_groups(process):
        yield "cuda:nccl" if group.on_card else "cpu:gloo"


@lru_cache(1024)
def _join_backends(configurations: tuple[str, ...]) -> str | None:
    devices: dict[str, str] = {}
    for pair in ",".join(configurations).split(","):
        device, _, name = pair.rpartition(":")
        if name:
            devices.setdefault(name, _HOME_DEVICES.get(name, device))
    if len(devices) < 2:
        return next(iter(devices), None)
    return ",".join(sorted(f"{device}:{name}".lstrip(":") for name, device in devices.items()))
