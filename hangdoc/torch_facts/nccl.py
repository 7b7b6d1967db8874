"""What is known about NCCL, in one table: what it counts, and how it marks its communicators.

Sources: NVIDIA/nccl src/include/nccl_common.h (`ncclFunc_t`, the same order in 2.24 to 2.32), src/include/comm.h (`NCCL_MAGIC`,
`ncclComm`), src/nccl.h.in (`ncclResult_t`), src/ras/client_support.cc (the names in a RAS answer). What of this a card has shown:
NCCL 2.28.9 with torch 2.11.0.
"""

from typing import NamedTuple

from hangdoc.regex import regex


class Collective(NamedTuple):
    """A collective that NCCL counts."""

    name: str
    """NCCL's name, also in the answer of RAS."""
    operation: str
    """The name in torch.distributed of what the calls have in common (`call_names.OPERATIONS`)."""
    also: tuple[str, ...] = ()
    """Other operations of torch.distributed that NCCL counts here."""


COUNTED = (
    Collective("Broadcast", "broadcast", ("broadcast_object_list",)),
    Collective("Reduce", "reduce"),
    Collective("AllGather", "all_gather", ("all_gather_into_tensor", "all_gather_object")),
    Collective("ReduceScatter", "reduce_scatter", ("reduce_scatter_tensor",)),
    Collective("AllReduce", "all_reduce", ("barrier",)),
)
"""In the order of `ncclComm.seqNumber` and of `collective_counts` in RAS. Each counts what the rank has launched.

The counts are equal on all ranks of a healthy communicator as soon as all have launched the same calls. Not counted: `send`,
`recv`, `all_to_all`, `gather` and `scatter`, which torch makes of sends and receives, and replays of CUDA graphs. torch makes one
AllGather of an `all_gather` of equal sizes, and Broadcasts of one of different sizes (c10d/ProcessGroupNCCL.cpp)."""

MAGIC = 0x0280028002800280
"""`startMagic` and `endMagic`, the first and the last word of a communicator. NCCL sets both to 0 before it frees the memory of a
communicator (`commPoison` in src/init.cc)."""

RESULTS = (
    "ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError", "ncclInvalidArgument", "ncclInvalidUsage",
    "ncclRemoteError", "ncclInProgress", "ncclTimeout",
)  # fmt: skip
"""`ncclResult_t` by number. `asyncResult` and `initState` of a communicator have these values: while it is made, `initState` is
ncclInProgress. ncclTimeout is new in 2.30."""

IN_PROGRESS = RESULTS.index("ncclInProgress")
KEEPS_ALIVE_BYTES = 4096
"""In a second. Processes with NCCL exchange 240 bytes a second on each connection of RAS while nothing happens (NCCL 2.28.9,
measured), and some more when they look for each other. Data of a collective come in larger parts."""

LIBRARY = regex(r"/lib(nccl|rccl)\.so[^/]*$")
VERSION_TEXT = regex(
    rb"[NR]CCL version(?: :)? (\d{1,3})\.(\d{1,3})\.(\d{1,3})[^\0]{0,64}?(?:\+(?:cuda|hip)(\d{1,3})\.(\d{1,3}))?\0"
)
"""NCCL keeps this text "so that running strings on the lib can quickly reveal the version" (`VERSION_STRING` in src/init.cc)."""
COMMUNICATORS, COMMUNICATOR_SLOTS = "ncclComms", "nNcclComms"
"""Variables of src/ras/ras.cc: the array of pointers to communicators, and how many it has room for; since 2.24."""
RAS_ADDRESS = "NCCL_RAS_ADDR"
"""The environment variable that says where RAS listens; since 2.24."""
VARIABLES = (COMMUNICATORS, COMMUNICATOR_SLOTS)

Version = tuple[int, int, int]
"""A version of NCCL: (2, 28, 9)."""


def version_text(version: Version) -> str:
    """`2.28.9`."""
    return ".".join(map(str, version))
