"""Finds the flight recorder among the variables of one of torch's libraries.

`FlightRecorder<EventType>::get()` keeps a pointer to the only instance in a static variable. Its name is a local symbol: the file
has it unless somebody stripped it, but it is not mapped, and to look it up takes 90 MB of reading. The instance itself is
unmistakable (two std::map that point at themselves, a vector between its bounds). So the pointer is found among the variables, in
a fifth of the time, also if the file is stripped, deleted or replaced. What was found in one process is tried first in others
with the same file, and believed only as far as it points to an instance there.
"""

import contextlib
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.torch.libraries import Library

HEADER_BYTES = 256
_MAX_LIMIT = 10_000_000
_MAX_NODES = 1 << 20
_LOWEST, _HIGHEST = 1 << 16, 1 << 47
_LOAD_FACTOR = 0x3F800000
"""1.0f: the default of a std::unordered_map."""
_MAX_CACHED = 64
_PART_BYTES, _AT_ONCE = 1 << 22, 4096
"""Of the variables, and pointers, that are looked at together."""
_PAGE_BYTES = 4096
_ZEROS = bytes(_PAGE_BYTES)


class Header(NamedTuple):
    """The members of an instance that lead to its entries (torch/csrc/distributed/c10d/FlightRecorder.hpp)."""

    address: int
    enabled: bool
    begin: int
    end: int
    allocated: int
    """End of the memory of the vector `entries_`."""
    limit: int
    """`max_entries_`; 0 if the recorder is off."""
    next: int
    """The slot that is written next."""
    made: int
    """`id_`: entries that were ever made."""
    epoch: int | None
    """`reset_epoch_`, since torch 2.10; None before."""
    members: int
    """Address of `pg_name_to_ranks_`, a std::map."""


def parse_header(raw: bytes, address: int) -> Header | None:
    """The header of the instance at `address`; None if `raw`, its first `HEADER_BYTES`, can't be one."""
    begin, end, allocated, limit, following, made = struct.unpack_from("<6Q", raw, 48)
    enabled = raw[0] == 1
    if raw[0] > 1 or raw[1] > 1 or limit > _MAX_LIMIT or enabled != (limit > 0) or following > limit:
        return None
    if begin:
        if not _LOWEST <= begin <= end <= allocated < _HIGHEST or begin % 8 or not limit:
            return None
    elif end or allocated or following or made:
        return None
    for with_epoch, at in ((True, 160), (False, 96)):
        if with_epoch and struct.unpack_from("<I", raw, 136)[0] != _LOAD_FACTOR:
            continue
        if _is_map(raw, at, address) and _is_map(raw, at + 48, address):
            epoch = int.from_bytes(raw[96:104], "little") if with_epoch else None
            return Header(address, enabled, begin, end, allocated, limit, following, made, epoch, address + at + 48)
    return None


def read_header(memory: Memory, address: int) -> Header:
    """The header now. Raises Unreadable."""
    header = parse_header(memory.read(address, HEADER_BYTES), address)
    if header is None:
        raise Unreadable("torch's flight recorder is not where it was")
    return header


def _is_map(raw: bytes, at: int, address: int) -> bool:
    """Whether a std::map may be at this offset: its header node is red, and an empty one points at itself (libstdc++'s
    bits/stl_tree.h)."""
    color, root, first, last, count = struct.unpack_from("<I4x4Q", raw, at + 8)
    if color != 0 or count > _MAX_NODES:
        return False
    if not count:
        return bool(root == 0 and first == last == address + at + 8)
    return all(_LOWEST <= node < _HIGHEST and not node % 8 for node in (root, first, last))


# By device and inode of a library: where in its variables the pointer was, in some process.
_offsets: dict[tuple[str, int], int] = {}


def find_instance(memory: Memory, library: Library, heaps: Sequence[tuple[int, int]]) -> int | None:
    """The address of the instance, which is in one of the `heaps`; None if the library has none, or not yet. Raises
    Unreadable."""
    key = library.device, library.inode
    if key in _offsets:
        with contextlib.suppress(Unreadable):
            address = memory.word(library.start + _offsets[key])
            if parse_header(memory.read(address, HEADER_BYTES), address) is not None:
                return address
    for start in range(library.start, library.end, _PART_BYTES):
        raw = memory.read(start, min(library.end, start + _PART_BYTES) - start)
        raw = raw[: len(raw) // 8 * 8]
        words = memoryview(_without_zeros(raw)).cast("Q")
        instance = _find_first_instance(memory, _pick_addresses(words, heaps))
        if instance is not None:
            while len(_offsets) >= _MAX_CACHED:
                _offsets.pop(next(iter(_offsets)), None)
            _offsets[key] = start - library.start + 8 * memoryview(raw).cast("Q").tolist().index(instance)
            return instance
    return None


def _without_zeros(raw: bytes) -> bytes:
    """The pages that are not all zero. libtorch_cuda has 14 MiB of variables, most of which nobody has written."""
    pages = (raw[at : at + _PAGE_BYTES] for at in range(0, len(raw), _PAGE_BYTES))
    return b"".join(page for page in pages if page != _ZEROS[: len(page)])


def _pick_addresses(words: Iterable[int], heaps: Sequence[tuple[int, int]]) -> list[int]:
    """The words that may be addresses in one of the `heaps`."""
    distinct = sorted(set(words))
    candidates: list[int] = []
    for start, end in heaps:
        first = bisect_left(distinct, start)
        candidates += [word for word in distinct[first : bisect_left(distinct, end, first)] if not word % 16]
    return candidates


def _find_first_instance(memory: Memory, addresses: list[int]) -> int | None:
    for at in range(0, len(addresses), _AT_ONCE):
        read = memory.read_many((address, HEADER_BYTES) for address in addresses[at : at + _AT_ONCE])
        for (address, _), raw in read.items():
            if raw[0] < 2 and raw[1] < 2 and parse_header(raw, address) is not None:
                return address
    return None
