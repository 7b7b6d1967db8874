"""Reads the flight recorders of one process from its memory, look after look."""

import contextlib
import time
from typing import NamedTuple

from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.memory.memory import Memory, Overspent, Unreadable
from hangdoc.observe.memory.object_layout import Layout
from hangdoc.observe.torch.libraries import torch_libraries
from hangdoc.observe.torch.recorded_calls import Calls, Decoder
from hangdoc.observe.torch.recorded_frames import Codes
from hangdoc.observe.torch.recorded_members import read_members
from hangdoc.observe.torch.recorder_history import Record
from hangdoc.observe.torch.recorder_instance import find_instance, read_header
from hangdoc.observe.torch.recorder_ring import MOST_ENTRIES, Copy, copy_ring
from hangdoc.procfs import ProcError
from hangdoc.torch_facts.thread_names import may_have_record

FEW = 64
"""Entries that are read in every look."""
_AGAIN_SECONDS, _SEARCH_SHARE = 0.5, 0.02
"""Searches for a record that is not there take at most this share of a core."""
_ALL_NS = 5 * 10**9
"""For so long, all entries are not read again if the last ones have not changed."""
_OFF = "torch's flight recorder is off: TORCH_FR_BUFFER_SIZE=2000 turns it on"
_NONE = "torch has no flight recorder in this process, or has not begun it yet"


class _Place(NamedTuple):
    kind: str
    address: int


class MemoryReader:
    """The flight recorders of one process."""

    def __init__(self) -> None:
        self._places: tuple[_Place, ...] = ()
        self._next_search = 0.0
        """When records are searched again (monotonic): a library without one may have one later."""
        self._codes: Codes | None = None
        self._last: dict[tuple[int, int], tuple[Copy, Calls, Decoder]] = {}
        """The last copy by address and number of entries, what it holds, and who has decoded it."""

    def count(self, observation: Observation, target: Target) -> dict[str, int]:
        """How many calls each kind of record ever had. It takes a system call for each. Raises Unreadable."""
        with _open_plain_memory(observation, target) as memory:
            return {
                place.kind: read_header(memory, place.address).made
                for place in self._locate(observation, target, memory)
            }

    def read(self, observation: Observation, target: Target, entries: int | None = FEW) -> list[Record]:
        """The last calls of each record; None for all. Raises Unreadable with the reason."""
        newest = MOST_ENTRIES if entries is None else entries
        records: list[Record] = []
        off = False
        with _open_memory(observation, target) as memory:
            for place in self._locate(observation, target, memory):
                header = read_header(memory, place.address)
                if not header.enabled:
                    off = True
                    continue
                copied, calls = self._read_calls(observation, target, memory, place, newest)
                members: dict[tuple[str, str], tuple[int, ...]] = {}
                if copied.layout is not None:
                    with contextlib.suppress(Unreadable):
                        members = read_members(memory, header.members, copied.layout.copied_strings)
                records.append(Record(place.kind, calls, copied.header.made, header.limit, members, copied.read_ns))
        if not records:
            raise Unreadable(_OFF if off else _NONE)
        return records

    def _read_calls(
        self, observation: Observation, target: Target, memory: Memory, place: _Place, newest: int
    ) -> tuple[Copy, Calls]:
        if self._codes is None:
            try:
                self._codes = Codes(observation.image(target.pid))
            except Overspent:
                raise
            except Unreadable:
                self._codes = Codes(None)
        key = place.address, newest
        copied, calls, decoder = self._last.get(key, (None, None, None))
        if decoder is None or decoder.full:
            copied, calls, decoder = None, None, Decoder(self._codes)
        few = self._last.get((place.address, FEW))
        if copied is not None and calls is not None and few is not None and self._is_recent(copied, few[0]):
            return copied._replace(read_ns=few[0].read_ns), calls
        copied = copy_ring(memory, place.address, newest, self._codes, copied)
        if calls is None or copied.fresh or len(calls.calls) != len(copied.entries):
            calls = decoder.decode(copied, calls)
        self._last[key] = copied._replace(blocks={}), calls, decoder
        return copied, calls

    def _is_recent(self, copied: Copy, few: Copy) -> bool:
        """Whether a copy of all entries is still good, because the last ones are as they were: of older ones, at most a flag has
        changed since then."""
        young = 0 <= few.read_ns - copied.read_ns < _ALL_NS and few is not copied
        return young and few.header == copied.header and len(few.raw) < len(copied.raw) and copied.raw.endswith(few.raw)

    def _locate(self, observation: Observation, target: Target, memory: Memory) -> tuple[_Place, ...]:
        """Where the records are, as long as they are there."""
        for place in self._places:
            try:
                read_header(memory, place.address)
            except Overspent:
                raise
            except Unreadable:
                self._places, self._next_search = (), 0.0
                break
        if self._next_search <= time.monotonic():
            began = time.thread_time()
            loaded = torch_libraries(observation.proc, target.pid)
            threads = _read_thread_names(observation, target)
            known = {place.kind for place in self._places}  # its group may have ended since
            libraries = [each for each in loaded.libraries if each.kind in known or may_have_record(each.kind, threads)]
            instances = ((each.kind, find_instance(memory, each, loaded.heaps)) for each in libraries)
            self._places = tuple(_Place(kind, address) for kind, address in instances if address is not None)
            whole = 0 < len(loaded.libraries) == len(self._places)
            took = time.thread_time() - began
            self._next_search = float("inf") if whole else time.monotonic() + max(_AGAIN_SECONDS, took / _SEARCH_SHARE)
        return self._places


def _read_thread_names(observation: Observation, target: Target) -> list[str]:
    """The names of its threads; none if one of them has just ended."""
    try:
        return observation.proc.thread_names(target.pid)
    except ProcError:
        return []


def _open_memory(observation: Observation, target: Target) -> Memory:
    """The memory of a process, with the layout of its Python objects as far as it is known."""
    try:
        return observation.memory(target.pid)
    except Overspent:
        raise
    except Unreadable:  # an interpreter that hangdoc does not support: only the frames stay unknown
        return _open_plain_memory(observation, target)


def _open_plain_memory(observation: Observation, target: Target) -> Memory:
    return Memory(target.pid, Layout(), str(observation.proc.root), observation.budget(target.pid))
