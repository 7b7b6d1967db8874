"""The members of process groups, from the record's table `pg_name_to_ranks_`. NCCL fills it; with Gloo it names no group."""

import struct

from hangdoc.observe.memory.cpp_objects import SHARED_STRING_BYTES, STRING_BYTES, read_string
from hangdoc.observe.memory.memory import Memory, Unreadable

_MAX_NODES = 1_000
_MAX_RANKS = 1 << 17
"""Of all groups together."""
_MAX_TEXT = 1_000
_NODE_BYTES = 32


def read_members(memory: Memory, address: int, copied_strings: bool) -> dict[tuple[str, str], tuple[int, ...]]:
    """Global ranks by name and description of the group, from the std::map<tuple<string, string>, vector<uint64>> at `address`
    (libstdc++'s bits/stl_tree.h). `copied_strings` is that of the entries. Nodes that can't be read are left out. Raises
    Unreadable for the map itself."""
    size_of_text = SHARED_STRING_BYTES if copied_strings else STRING_BYTES
    vector = _NODE_BYTES + 2 * size_of_text
    root, count = struct.unpack("<Q16xQ", memory.read(address + 16, 32))
    members: dict[tuple[str, str], tuple[int, ...]] = {}
    seen: set[int] = set()
    todo = [root] if count else []
    left = _MAX_RANKS
    while todo and len(seen) < _MAX_NODES:
        node = todo.pop()
        if not node or node in seen:  # in memory that was made to be read, a tree may have circles
            continue
        seen.add(node)
        try:
            raw = memory.read(node, vector + 16)
            todo += struct.unpack_from("<2Q", raw, 16)
            description, name = (
                read_string(memory, raw, at, node, _MAX_TEXT, copied=copied_strings).decode("utf-8", "replace")
                for at in (_NODE_BYTES, _NODE_BYTES + size_of_text)
            )
            first, last = struct.unpack_from("<2Q", raw, vector)
            size = last - first
            if 0 < size <= 8 * left and not size % 8:
                left -= size // 8
                members[name, description] = struct.unpack(f"<{size // 8}Q", memory.read(first, size))
        except Unreadable:
            continue
    return members
