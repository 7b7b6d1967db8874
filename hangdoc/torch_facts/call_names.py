"""Operations of torch.distributed: their names, and what they are to a rank.

Read in torch 2.13 unless another version is given: torch/distributed/distributed_c10d.py, rpc/api.py, rendezvous.py and
device_mesh.py.
"""

from typing import Literal

from hangdoc.regex import regex

MANAGES_GROUPS = frozenset({"new_group", "new_subgroups", "split_group", "destroy_process_group"})
"""Operations that make or end groups: no smaller group can be passed to them."""
COLLECTIVES = MANAGES_GROUPS | frozenset(
    ["all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "broadcast_object_list", "barrier", "monitored_barrier",
     "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_gather_single",
     "gather", "gather_object", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single",
     "scatter", "scatter_object_list", "all_to_all", "all_to_all_single", "all_to_all_coalesced"]
)  # fmt: skip
RPC_CALLS = frozenset({"rpc_sync", "rpc_async", "to_here"})
"""One rank waits for another one, which a call names by its name in RPC, or by its rank."""
POINT_TO_POINT = RPC_CALLS | {
    "send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list",
}  # fmt: skip
OPERATIONS = COLLECTIVES | POINT_TO_POINT
RPC_SHUTDOWN = "rpc.shutdown"
"""In it a worker carries out the calls of the others, until none of them has more."""
RPC_MEETINGS = {"shutdown": RPC_SHUTDOWN, "_barrier": "rpc.barrier", "_wait_all_workers": RPC_SHUTDOWN}
"""Functions in which each worker waits for all others, and what they are called here."""
INIT_PROCESS_GROUP, INIT_RPC = "init_process_group", "init_rpc"
"""Functions whose arguments are the rank and the number of ranks."""
CREATE_STORE = "_create_c10d_store"
"""Only the rank that serves the store counts the ranks that arrive."""
RENDEZVOUS = frozenset(
    [INIT_PROCESS_GROUP, "_new_process_group_helper", CREATE_STORE, "_store_based_barrier", "rendezvous",
     "init_device_mesh", "_tcp_rendezvous_handler", "_env_rendezvous_handler", "_file_rendezvous_handler", INIT_RPC]
)  # fmt: skip
HANDLERS = frozenset({"rendezvous", "_tcp_rendezvous_handler", "_env_rendezvous_handler", "_file_rendezvous_handler"})
"""The part of a rendezvous that libraries call themselves, for a group beside the default one (SGLang, OpenRLHF)."""
GPU_WAIT = "gpu"
"""Origin of a wait that is concluded from a thread that spins in the GPU's driver."""
ROOTED = frozenset(
    ["broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "scatter", "scatter_object_list"]
)
"""Collectives with a root: some ranks may come out of them before all have called them."""
DISTRIBUTES = frozenset(["broadcast", "broadcast_object_list", "scatter", "scatter_object_list"])
"""Collectives by which one rank gives the others what to do."""
RECEIVES_FROM_ALL = ROOTED - DISTRIBUTES
"""Collectives whose root can't come out of them before all ranks of the group have sent it theirs."""
MEETINGS = frozenset(
    ["all_reduce", "all_reduce_coalesced", "barrier", "all_gather", "all_gather_coalesced", "all_gather_into_tensor",
     "all_gather_single", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single"]
)  # fmt: skip
"""Collectives that end on no rank before all ranks have called them. Of an all_to_all, a rank may send and get nothing."""
SENDS = frozenset({"send", "isend", "send_object_list"})
RECEIVES = frozenset({"recv", "irecv", "recv_object_list"})
MAKE_TRANSFERS = frozenset({"isend", "irecv"})
"""Sends and receives that return a work at once."""
WAIT_FOR_WORK = frozenset({"wait", "result", "synchronize"})
"""Methods of a work, as programs call them."""
MODULES = frozenset({"", "dist", "distributed", "torch.distributed", "c10d"})
"""Where these functions are, by the names that programs give to the module; empty for an imported function."""
P2P_OP = "P2POp"
"""A send or a receive of a batch_isend_irecv; its attributes are `op` and `peer`."""

# Functional collectives and torch's older spellings, by the name a call in somebody's source may have.
ALIASES = {
    "all_gather_tensor": "all_gather_into_tensor",
    "all_gather_base": "all_gather_into_tensor",
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
}

_RECORDED_OPS = {"all_reduce_barrier": "barrier", "coalesced": "coalesced"}
"""Names that torch's record gives to calls of NCCL (torch 2.11): a barrier is an all_reduce of one number."""
FORMS = {
    "_all_gather_base": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_gather_single": "all_gather",
    "reduce_scatter_single": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier",
}
"""Variants of a collective that meet each other: Gloo records all_gather_into_tensor as all_gather (torch 2.13), NCCL
a barrier as all_reduce_barrier (torch 2.11)."""
EQUAL_AMOUNTS = frozenset({"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "barrier"})
"""Collectives to which all ranks must pass tensors of one dtype and number of elements."""
RECORDED_AS = {
    "reduce_scatter": {"all_reduce"},
    "broadcast_object_list": {"broadcast"},
    "all_gather_object": {"all_gather"},
    "gather_object": {"all_gather", "gather"},
    "scatter_object_list": {"broadcast", "scatter"},
}
"""Collectives that torch records under the name of what they call (Gloo, torch 2.13)."""
TENSOR_ARGUMENTS = {
    "all_reduce": ("tensor",),
    "broadcast": ("tensor",),
    "reduce": ("tensor",),
    "all_gather": ("tensor",),
    "all_gather_into_tensor": ("input_tensor", "output_tensor"),
    "all_gather_single": ("input_tensor", "output_tensor"),
    "reduce_scatter_tensor": ("input", "output"),
    "reduce_scatter_single": ("input", "output"),
}
"""Arguments of the functions of torch.distributed that must have the same number of elements on all ranks."""

SYNCHRONISING = regex(
    r"\.(item|cpu|tolist|numpy|synchronize|wait|cuda|to|replay|backward|step)\(|\b(float|int|bool|print|if|assert|while)\b"
)
"""Source of a line in which a thread waits for the card: it needs a value from there, or hands it something."""


def recorded_op(name: str) -> str:
    """The operation that torch's record calls `name`: `_all_gather_base` is all_gather_into_tensor."""
    return _RECORDED_OPS.get(name) or ALIASES.get(name) or ALIASES.get(name.lstrip("_")) or name.lstrip("_")


def wait_kind(op: str) -> Literal["p2p", "collective"]:
    """What an operation is to a `Wait`."""
    return "p2p" if op in POINT_TO_POINT else "collective"


_CALL = regex(
    r"\b(?:" + "|".join(sorted((*COLLECTIVES, *POINT_TO_POINT, *ALIASES), key=len, reverse=True)) + r")(?=\s*\()"
)


def calls_in(source: str) -> list[str]:
    """Names of torch.distributed operations called in a piece of source, in order, in torch's own spelling."""
    return [ALIASES.get(name, name) for name in _CALL.findall(source)]


_ADDRESS_KEY = regex(r"(?:.*/)?default_pg/[^/]+//\w+//\d+/(\d+)")
"""The key under which a rank publishes its address for the default group: the prefixes of the group and of the device, a number,
the rank (init_process_group, ProcessGroupGloo.cpp; gloo's rendezvous/context.cc)."""


_GROUP_PREFIX = regex(r"^(?:.*/)?default_pg/[^/]+//")


def key_as_written(key: str) -> str:
    """The key of a store as a program names it: a TCPStore puts `/` in front, and the store of the default group its prefix
    (torch/distributed/distributed_c10d.py `_new_process_group_helper`)."""
    return _GROUP_PREFIX.sub("", key).removeprefix("/")


def publishing_rank(key: str) -> int | None:
    """The rank that publishes its address under this key of a store; None for any other key."""
    match = _ADDRESS_KEY.fullmatch(key)
    return int(match[1]) if match is not None else None
