"""The probe of NCCL's communicators: how many collectives of each kind a rank has launched in each.

It is read from the memory of the rank, without a pause, also if the rank is stopped or holds the GIL. RAS, NCCL's own server,
shows the same numbers, but asking it can crash a job (NVIDIA/nccl#1762, #2346). It works with torch's flight recorder off, and
for libraries that call NCCL themselves.
"""

import time
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from hangdoc.observe.access.observation import Observation, ProbeResult, Target
from hangdoc.observe.gpu.communicators import LibraryReading, read_communicators
from hangdoc.observe.gpu.nccl_library import NcclLibrary, find_nccl
from hangdoc.observe.memory.elf_file import build_id_of
from hangdoc.observe.memory.memory import Memory, Overspent, Unreadable
from hangdoc.observe.memory.object_layout import Layout
from hangdoc.procfs import age
from hangdoc.snapshot import Communicator, Communicators, Unavailable
from hangdoc.torch_facts.nccl import version_text
from hangdoc.torch_facts.nccl_layouts import CommLayout, known_versions, layout_of

_AGAIN_SECONDS, _LATEST_SECONDS, _AGAIN_SHARE = 5.0, 60.0, 0.1
"""A process without NCCL is looked at again after this share of its age, between these times: it may load it later. That takes 1
ms."""
_NOTE_BYTES = 64
_NONE = "it has not loaded NCCL"


class _Loaded(NamedTuple):
    """A library whose communicators can be read."""

    library: NcclLibrary
    layout: CommLayout


class _Place(NamedTuple):
    """Where the communicators of a process are."""

    started: int
    """When the process started, in clock ticks."""
    next_search: float
    """When libraries are searched again (monotonic)."""
    loaded: tuple[_Loaded, ...]
    why: str
    """Why `loaded` is empty: one clause."""


_Reading = dict[tuple[int, int, int], Communicator]
"""Communicators by library, address and hash."""


class _Read(NamedTuple):
    """What was read of a process at one moment."""

    version: str
    reading: _Reading
    unread: int


class NcclMemory:
    """The probe."""

    name = "NCCL memory"

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        """By pid."""
        self._before: dict[int, _Reading] = {}
        self._last: dict[int, _Reading] = {}
        self._found: dict[int, Communicators | Unavailable] = {}

    def open(self, observation: Observation) -> None:
        """Read the counts at the beginning of the window."""
        for pid, read in self._read_all(observation).items():
            if not isinstance(read, Unavailable):
                self._before[pid] = read.reading

    def during(self, observation: Observation) -> None:
        """Nothing."""

    def close(self, observation: Observation) -> None:
        """Read the communicators at its end."""
        self._found, self._last = {}, {}
        for pid, read in self._read_all(observation).items():
            if isinstance(read, Unavailable):
                self._found[pid] = read
            else:
                self._last[pid] = read.reading
                self._found[pid] = _with_earlier_counts(read, self._before.get(pid, {}))

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The communicators of each rank."""
        for pid, communicators in list(self._found.items()):
            yield pid, "communicators", communicators

    def start_next_window(self, observation: Observation) -> None:
        """What was read last is the beginning of the next window."""
        self._before = self._last
        for pid in [pid for pid in self._places if pid not in observation.targets]:
            del self._places[pid]

    def _read_all(self, observation: Observation) -> dict[int, _Read | Unavailable]:
        living = [target for target in observation.ranks() if target.state not in "ZX"]
        return observation.read_each(living, lambda target: self._try_to_read(observation, target))

    def _try_to_read(self, observation: Observation, target: Target) -> _Read | Unavailable:
        """Raises ProcError."""
        try:
            return self._read(observation, target)
        except Unreadable as error:
            return Unavailable(reason=str(error))

    def _read(self, observation: Observation, target: Target) -> _Read:
        """Raises Unreadable and ProcError."""
        place = self._places.get(target.pid)
        outdated = place is None or place.started != target.start_ticks
        if place is None or outdated or (not place.loaded and place.next_search <= time.monotonic()):
            place = _find_libraries(observation, target)
            self._places[target.pid] = place
        if not place.loaded:
            raise Unreadable(place.why)
        reading: _Reading = {}
        versions: list[str] = []
        unread = 0
        with Memory(target.pid, Layout(), str(observation.proc.root), observation.budget(target.pid)) as memory:
            for library, layout in place.loaded:
                library_reading: LibraryReading = read_communicators(memory, library, layout)
                for address, communicator in library_reading.communicators.items():
                    reading[library.base, address, communicator.hash] = communicator
                unread += library_reading.unread
                if library.version is not None and (library_reading.communicators or not versions):
                    versions.insert(0, version_text(library.version))
        return _Read(versions[0], reading, unread)


def _find_libraries(observation: Observation, target: Target) -> _Place:
    """Find the libraries of a process, and check that they are those on disk. Raises Overspent and ProcError."""
    loaded: list[_Loaded] = []
    why = ""
    try:
        libraries = find_nccl(observation.proc, target.pid, target.start_ticks)
    except Overspent:
        raise
    except Unreadable as error:
        libraries, why = [], str(error)
    for library in libraries:
        layout, reason = _find_layout(library)
        if layout is not None and not _is_as_on_disk(observation, target, library):
            layout, reason = None, f"{library.path} is not the file that it has loaded"
        if layout is not None:
            loaded.append(_Loaded(library, layout))
        why = why or reason
    wait = max(_AGAIN_SECONDS, min(_LATEST_SECONDS, _AGAIN_SHARE * age(observation.proc, target.start_ticks)))
    return _Place(target.start_ticks, time.monotonic() + wait, tuple(loaded), why or _NONE)


def _find_layout(library: NcclLibrary) -> tuple[CommLayout | None, str]:
    """The layout of its communicators, or why they can't be read: one clause."""
    if library.name != "nccl":
        return None, "hangdoc can't read the communicators of RCCL"
    if library.version is None:
        return None, f"{library.path} does not tell its version"
    if not library.variables:
        return (
            None,
            f"the communicators of its NCCL {version_text(library.version)} can't be found: {library.no_variables}",
        )
    layout = layout_of(library.version, library.machine)
    if layout is None:
        first, last = map(version_text, known_versions())
        return None, (
            f"hangdoc does not know the communicators of NCCL {version_text(library.version)}, only those of {first} to {last}"
        )
    return layout, ""


def _is_as_on_disk(observation: Observation, target: Target, library: NcclLibrary) -> bool:
    """Whether the build id in memory is that of the file. Raises Unreadable."""
    if not library.build_id_at:
        return True
    with Memory(target.pid, Layout(), str(observation.proc.root), observation.budget(target.pid)) as memory:
        return build_id_of(memory.read(library.build_id_at, _NOTE_BYTES)) == library.build_id


def _with_earlier_counts(read: _Read, before: _Reading) -> Communicators:
    """What was read, with the counts of the earlier reading."""
    merged = []
    for key, now in read.reading.items():
        earlier = before.get(key)
        if earlier is not None:
            now = replace(now, counts_before=earlier.counts, launches_before=earlier.launches)
        merged.append(now)
    merged.sort(key=lambda communicator: (communicator.hash, communicator.rank or 0))
    return Communicators(nccl_version=read.version, communicators=tuple(merged), unread=read.unread)
