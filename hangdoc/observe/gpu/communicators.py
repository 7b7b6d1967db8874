"""Reads the communicators of an NCCL library from the memory of a process.

NCCL keeps an array of pointers to them for its RAS thread (`ncclComms` in src/ras/ras.cc; empty with NCCL_RAS_ENABLE=0). Where
the members are depends on the version (`nccl_layouts`), so nothing is believed without both magic numbers around a communicator
and plausible numbers in it. The process runs meanwhile: what changes between two reads is read again.
"""

import struct
from typing import NamedTuple

from hangdoc.observe.gpu.nccl_library import NcclLibrary
from hangdoc.observe.memory.memory import Memory, Overspent, Unreadable
from hangdoc.snapshot import Communicator
from hangdoc.torch_facts.nccl import COMMUNICATOR_SLOTS, COMMUNICATORS, COUNTED, MAGIC, RESULTS
from hangdoc.torch_facts.nccl_layouts import CommLayout

MOST_COMMUNICATORS = 256
"""Of a library. A rank of a run with tensor, pipeline, data, context and expert groups has about twenty."""
_MOST_SLOTS = 4_096
_PLAUSIBLE_SLOTS = 1 << 20
_TRIES = 3
_MAX_RANKS, _MAX_DEVICES = 1 << 22, 1 << 10
_MAX_COUNT = 1 << 56
_FORMS = {
    "comm_hash": "<Q", "rank": "<i", "n_ranks": "<i", "cuda_dev": "<i", "bus_id": "<q", "node": "<i", "n_nodes": "<i",
    "op_count": "<Q", "async_result": "<i", "destroy_flag": "<I", "revoked_flag": "<I", "graphs": "<i", "init_state": "<i",
    "finalize_called": "<B", "seq_number": f"<{len(COUNTED)}Q", "use_net_pxn": "<B", "end_magic": "<Q",
}  # fmt: skip
"""struct's format of each member of CommLayout."""


class LibraryReading(NamedTuple):
    """The communicators of a library at one moment."""

    communicators: dict[int, Communicator]
    """By address."""
    unread: int
    """How many more there are, which were not read or can't be communicators."""


def read_communicators(memory: Memory, library: NcclLibrary, layout: CommLayout) -> LibraryReading:
    """The communicators of a library. Raises Unreadable if there is no list of them, or none of those in it is one."""
    best: LibraryReading | None = None
    for _ in range(_TRIES):
        try:
            reading = _read_once(memory, library, layout)
        except _Changed:
            continue
        if best is None or reading.unread <= best.unread:
            best = reading
        if not reading.unread:
            break
    if best is None:
        raise Unreadable("its list of communicators is not where it was expected, or changes all the time")
    if best.unread and not best.communicators:
        raise Unreadable("its communicators are not of the form that they have in this version of NCCL")
    return best


class _Changed(Exception):
    """The list was changed while it was read."""


def _read_once(memory: Memory, library: NcclLibrary, layout: CommLayout) -> LibraryReading:
    """Raises _Changed, Overspent, and Unreadable for a list that is not readable."""
    before = _read_list(memory, library)
    addresses = _list_addresses(memory, *before)
    chosen = addresses[:MOST_COMMUNICATORS]
    communicators = {}
    for address in chosen:
        communicator = _read_one(memory, address, layout)
        if communicator is not None:
            communicators[address] = communicator
    if _read_list(memory, library) != before:
        raise _Changed
    return LibraryReading(communicators, len(addresses) - len(communicators))


def _read_list(memory: Memory, library: NcclLibrary) -> tuple[int, int]:
    """Number of slots, and address of the first one. Unused slots hold null."""
    (slots,) = struct.unpack("<i", memory.read(library.variables[COMMUNICATOR_SLOTS], 4))
    first = memory.word(library.variables[COMMUNICATORS])
    if not 0 <= slots <= _PLAUSIBLE_SLOTS or (slots > 0) != (first > 0):
        raise _Changed
    return slots, first


def _list_addresses(memory: Memory, slots: int, first: int) -> list[int]:
    """Those of the communicators, without null and each once. Raises Unreadable and _Changed."""
    if not slots:
        return []
    read = min(slots, _MOST_SLOTS)
    try:
        raw = memory.read(first, read * 8)
    except Overspent:
        raise
    except Unreadable:
        raise _Changed from None  # the list has just moved, or was never there
    return [address for address in dict.fromkeys(struct.unpack(f"<{read}Q", raw)) if address]


def _read_one(memory: Memory, address: int, layout: CommLayout) -> Communicator | None:
    """The communicator at an address; None if there is none."""
    ranges = {name: (address + at, struct.calcsize(_FORMS[name])) for name, at in layout._asdict().items() if at}
    # `read_many` reads by ascending address, so the last magic number is read after everything else.
    blocks = memory.read_many([(address, 8), *ranges.values()])
    if len(blocks) < len({(address, 8), *ranges.values()}):
        return None
    values = {name: struct.unpack(_FORMS[name], blocks[place]) for name, place in ranges.items()}
    (start,) = struct.unpack("<Q", blocks[address, 8])
    if start != MAGIC or values["end_magic"] != (MAGIC,):
        return None
    return _make_communicator(values)


def _make_communicator(values: dict[str, tuple[int, ...]]) -> Communicator | None:
    """The communicator with these members; None if no communicator has them."""
    fields = {name: value[0] for name, value in values.items()}
    rank, size, node, nodes = fields["rank"], fields["n_ranks"], fields["node"], fields["n_nodes"]
    counts = values["seq_number"]
    # A communicator that is being made does not know its nodes yet.
    if not (0 <= rank < size <= _MAX_RANKS and 0 <= nodes <= size and (0 <= node < nodes or node == nodes == 0)):
        return None
    if not (
        -1 <= fields["cuda_dev"] < _MAX_DEVICES and 0 <= fields["graphs"] < 1 << 30 and 0 <= fields["bus_id"] < 1 << 40
    ):
        return None
    if not max(*counts, fields["op_count"]) < _MAX_COUNT:
        return None
    results = range(len(RESULTS) + 8)  # and those that later versions add
    if fields["async_result"] not in results or fields["init_state"] not in results:
        return None
    return Communicator(
        hash=fields["comm_hash"],
        rank=rank,
        size=size,
        cuda_device=fields["cuda_dev"],
        bus=fields["bus_id"],
        node=node,
        nodes=nodes,
        counts=counts,
        launches=fields["op_count"],
        async_result=fields["async_result"],
        init_state=fields["init_state"],
        destroyed=bool(fields["destroy_flag"]),
        revoked=bool(fields["revoked_flag"]) if "revoked_flag" in fields else None,
        finalized=bool(fields["finalize_called"]),
        graphs=fields["graphs"],
        pxn=bool(fields["use_net_pxn"]),
    )
