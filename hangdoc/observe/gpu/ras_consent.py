"""Decides whether NCCL's RAS may be asked, which can end a job.

- With NCCL 2.26.2 to 2.28.9, a query writes past the end of memory if a rank is missing and there are two communicators
  (NVIDIA/nccl#1762, fixed in 2.29.2). So all ranks must have 2.29.2 or newer.
- With every version up to 2.31, a query while a communicator is made can crash (NVIDIA/nccl#2346). So no rank may be in a call
  that makes one, and what a rank is in must be known.
- Where torch's record has the calls of all ranks, or NCCL's memory their counts, RAS adds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hangdoc.observe.access.observation import Target
from hangdoc.observe.gpu.nccl_library import NcclLibrary
from hangdoc.snapshot import FlightRecorder, Frame, Stack, Unavailable
from hangdoc.torch_facts import file_names
from hangdoc.torch_facts.cpp_names import CREATES_COMMUNICATOR
from hangdoc.torch_facts.nccl import IN_PROGRESS, Version, version_text

Gathered = Mapping[int | None, Mapping[str, Any]]
"""The results of the probes: by pid (None for the host), then by field of the snapshot."""
_SAFE: Version = (2, 29, 2)
_RISK = "--ras always takes the risk"


def is_needed(targets: Iterable[Target], gathered: Gathered, *, whole: bool) -> bool:
    """Whether the calls of a rank are not known by other means: of one of these, or, with `whole`, of any other rank of their
    runs."""
    recorded: dict[str, set[int]] = {}
    sizes: dict[str, int | None] = {}
    for target in targets:
        if not _has_calls(gathered.get(target.pid, {})):
            return True
        identity = target.identity
        sizes[target.run] = identity.world_size if identity is not None else None
        if identity is not None:
            recorded.setdefault(target.run, set()).add(identity.rank)
    return whole and any(size is None or len(recorded.get(run, ())) < size for run, size in sizes.items())


def _has_calls(fields: Mapping[str, Any]) -> bool:
    recorder = fields.get("recorder")
    return (isinstance(recorder, FlightRecorder) and bool(recorder.groups)) or bool(_list_init_states(fields))


def _list_init_states(fields: Mapping[str, Any]) -> list[int]:
    """The states of the communicators in the memory of a rank; IN_PROGRESS for those just made or freed. Empty if unknown."""
    communicators = fields.get("communicators")
    if communicators is None or isinstance(communicators, Unavailable):
        return []
    return [
        *(communicator.init_state for communicator in communicators.communicators),
        *[IN_PROGRESS] * communicators.unread,
    ]


def find_objection(
    targets: Sequence[Target], gathered: Gathered, libraries: Mapping[int, list[NcclLibrary] | Unavailable]
) -> str | None:
    """Why these ranks may not be asked, as a clause; None if they may. `libraries` has the NCCLs of each by pid."""
    for target in targets:
        why = _version_objection(target.pid, libraries[target.pid]) or _creation_objection(
            target.pid, gathered.get(target.pid, {})
        )
        if why is not None:
            return f"not asked: {why}; {_RISK}"
    return None


def find_stranger(inodes: frozenset[int], observed: frozenset[int]) -> str | None:
    """Why a service may not be asked if some of its listening sockets belong to no observed rank. None if all do."""
    if inodes <= observed:
        return None
    return f"not asked: a process that was not observed may answer, and its NCCL is not known; {_RISK}"


def _version_objection(pid: int, libraries: list[NcclLibrary] | Unavailable) -> str | None:
    if isinstance(libraries, Unavailable):
        return f"the NCCL of pid {pid} is not known ({libraries.reason})"
    for library in libraries:
        if library.version is None or library.name != "nccl":
            return f"the version of the {library.name.upper()} of pid {pid} is not known to be safe"
        if library.version < _SAFE:
            return f"NCCL {version_text(library.version)} can be damaged by a query"
    return None


def _creation_objection(pid: int, fields: Mapping[str, Any]) -> str | None:
    stack, native = fields.get("stack"), fields.get("native")
    if not isinstance(stack, Stack):
        return f"pid {pid} may be making a communicator, because its stack could not be read"
    if any(
        CREATES_COMMUNICATOR.search(frame.function)
        for dump in (stack, native)
        if isinstance(dump, Stack)
        for frame in _frames(dump)
    ):
        return f"pid {pid} makes a communicator, and a query then can crash it"
    if IN_PROGRESS in _list_init_states(fields):
        return f"pid {pid} makes a communicator, and a query then can crash it"
    # The first call in a group makes its communicator, before torch records the call.
    in_call = any(not frame.native and file_names.DISTRIBUTED in frame.file for frame in _frames(stack))
    if in_call and not _shows_c_frames(native) and not _is_recorded(stack, fields.get("recorder")):
        return f"pid {pid} may be making a communicator in its call of torch.distributed"
    return None


def _frames(stack: Stack) -> Iterator[Frame]:
    for thread in stack.threads:
        yield from thread.frames


def _shows_c_frames(native: object) -> bool:
    return isinstance(native, Stack) and any(frame.native for frame in _frames(native))


def _is_recorded(stack: Stack, recorder: object) -> bool:
    """Whether each thread in a call of torch.distributed is at a line from which a pending call was made: torch has recorded it,
    and so its communicator is complete."""
    groups = recorder.groups if isinstance(recorder, FlightRecorder) else ()
    sites = {_site(call.frames) for group in groups for call in group.pending} - {None}
    calling = [
        thread.frames
        for thread in stack.threads
        if any(file_names.DISTRIBUTED in frame.file for frame in thread.frames)
    ]
    return all(_site(frames) in sites for frames in calling)


def _site(frames: Sequence[Frame]) -> tuple[str, int] | None:
    """The innermost line that is not torch's."""
    return next(
        (
            (frame.file, frame.line)
            for frame in frames
            if not frame.native and not any(t in frame.file for t in file_names.ON_THE_WAY)
        ),
        None,
    )
