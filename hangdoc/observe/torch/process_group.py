"""A process's own rank, from torch's process group in its memory. Used if no variable, argument or frame names the rank."""

import struct

from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.snapshot import Group

_RANK_AT = (24, 32)
"""c10d::ProcessGroup: a vtable, one or two words of reference counts (they share a word since torch 2.10), `store_`, then `rank_`
and `size_`, two 32-bit numbers (torch/csrc/distributed/c10d/ProcessGroup.hpp)."""


def own_rank(memory: Memory, group: Group) -> int | None:
    """The global rank of the process. None if the memory next to it does not contain the known size of the group."""
    for offset in _RANK_AT:
        try:
            pair: tuple[int, int] = struct.unpack("<ii", memory.read(memory.cpp_object(group.address) + offset, 8))
        except Unreadable:
            return None
        rank, size = pair
        if size == len(group.ranks) and 0 <= rank < size:
            return group.ranks[rank]
    return None
