"""What is known about torch's public structure, in one table. Function names and files, never line numbers.

Source: torch/distributed/distributed_c10d.py, torch/distributed/rpc/api.py, torch/nn/parallel/distributed.py,
torch/distributed/rendezvous.py, torch/utils/data/dataloader.py and the C++ names that native stacks show, read off torch 2.13.
"""

import re
from functools import lru_cache
from typing import Literal

from hangdoc.regex import regex

C10D = "torch/distributed/distributed_c10d.py"

COLLECTIVES = frozenset(
    ["all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "broadcast_object_list", "barrier", "monitored_barrier",
     "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_gather_single",
     "gather", "gather_object", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single",
     "scatter", "scatter_object_list", "all_to_all", "all_to_all_single", "all_to_all_coalesced",
     "new_group", "new_subgroups", "split_group", "destroy_process_group"]
)  # fmt: skip
RPC_CALLS = frozenset({"rpc_sync", "rpc_async", "to_here"})
"""One rank waits for another one, which a call names by its name in RPC, or by its rank."""
POINT_TO_POINT = RPC_CALLS | {
    "send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list",
}  # fmt: skip
OPERATIONS = COLLECTIVES | POINT_TO_POINT
RENDEZVOUS = frozenset(
    ["init_process_group", "_new_process_group_helper", "_create_c10d_store", "_store_based_barrier", "rendezvous",
     "init_device_mesh", "_tcp_rendezvous_handler", "_env_rendezvous_handler", "_file_rendezvous_handler", "init_rpc"]
)  # fmt: skip
ROOTED = frozenset(
    ["broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "scatter", "scatter_object_list"]
)
"""Collectives with a root: some ranks may come out of them before all have called them."""
SENDS = frozenset({"send", "isend", "send_object_list"})
RECEIVES = frozenset({"recv", "irecv", "recv_object_list"})

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


def recorded_op(name: str) -> str:
    """The operation that torch's record calls `name`: `_all_gather_base` is all_gather_into_tensor."""
    return _RECORDED_OPS.get(name) or ALIASES.get(name) or ALIASES.get(name.lstrip("_")) or name.lstrip("_")


# A fragment of a native frame's name, the operation it means, and who called it where that is known. First match wins.
NATIVE: tuple[tuple[re.Pattern[str], str, str | None], ...] = tuple(
    (regex(pattern), op, origin)
    for pattern, op, origin in (
        (r"c10d::Reducer::", "all_reduce", "ddp-backward"),
        (r"verify_params_across_processes", "all_gather", "ddp-init"),
        (r"broadcast_coalesced", "broadcast", "ddp-init"),
        (r"rpc::\w*RRef::toHere", "to_here", None),
        (r"monitored_?[bB]arrier", "monitored_barrier", None),
        (r"RecvWork::wait|UnboundBuffer::waitRecv", "recv", None),
        (r"SendWork::wait|UnboundBuffer::waitSend", "send", None),
        (r"reduce_scatter", "reduce_scatter", None),
        (r"all_?reduce", "all_reduce", None),
        (r"all_?gather", "all_gather", None),
        (r"all_?to_?all", "all_to_all", None),
        (r"ProcessGroup\w*::barrier|::barrier\b", "barrier", None),
        (r"ProcessGroup\w*::broadcast|ops::broadcast", "broadcast", None),
    )
)
NATIVE_WORK_WAIT = regex(r"c10d::(\w+::)*\w*Work\w*::(wait|synchronize)|c10d::Work::wait")
NATIVE_FUTURE_WAIT = regex(r"PythonFutureWrapper::wait")
"""Of an RPC in a process that uses RPC. Collectives have such futures too."""
NATIVE_STORE_WAIT = regex(r"c10d::\w*Store\w*::(doWait|wait|get|waitForWorkers|doGet)|waitForWorkers")
NATIVE_CONNECT = regex(
    r"connectFullMesh|createAndConnectAllPairs|ProcessGroupGloo::ProcessGroupGloo|ProcessGroupNCCL::\w*[cC]omm"
)

# Which part of torch calls a collective for the user: (fragment of the file, function or None, origin).
ORIGINS: tuple[tuple[str, str | None, str], ...] = (
    ("torch/distributed/fsdp/", None, "fsdp"),
    ("torch/distributed/_composable/fsdp", None, "fsdp"),
    ("torch/distributed/checkpoint/", None, "checkpoint"),
    ("torch/nn/parallel/distributed.py", "__init__", "ddp-init"),
    ("torch/nn/parallel/distributed.py", "forward", "ddp-forward"),
    ("torch/distributed/optim/", None, "optimizer"),
    ("torch/optim/optimizer.py", "wrapper", "optimizer"),
    ("torch/distributed/elastic/utils/store.py", None, "store"),
)

# Functions of torch that call a collective in C++ at once, so that no frame of distributed_c10d.py shows it: (file, function,
# operation).
DIRECT_CALLS: tuple[tuple[str, str, str], ...] = (
    ("torch/distributed/utils.py", "_verify_param_shape_across_processes", "all_gather"),
    ("torch/distributed/utils.py", "_sync_params_and_buffers", "broadcast"),
    ("torch/nn/parallel/distributed.py", "_distributed_broadcast_coalesced", "broadcast"),
)

JOIN = ("torch/distributed/algorithms/join.py", "__exit__")
"""Where a rank that has no more data answers the collectives of those that have (`Join`)."""
AUTOGRAD = ("torch/autograd/graph.py", "_engine_run_backward")
DATALOADER = "torch/utils/data/dataloader.py"
DATALOADER_FETCH = "torch/utils/data/_utils/fetch.py"
"""Calls the dataset in a worker."""
DATALOADER_WORKER = ("torch/utils/data/_utils/worker.py", "_worker_loop")
COMPILER = (
    "torch/_inductor/",
    "torch/_dynamo/",
    "torch/_functorch/",
    "torch/utils/cpp_extension.py",
    "/triton/compiler/",
)
AGENT = "torch/distributed/elastic/"
GLOO_LOOP = "pt_gloo_runloop"
GLOO_THREADS = frozenset({GLOO_LOOP, "gloo_tcp_loop"})
_RPC = "TP_"
"""How the names of TensorPipe's threads begin (torch.distributed.rpc). They poll all the time."""
RPC_POOL = "pt_thread_pool"
"""The threads that do what other ranks request."""
RPC = "torch/distributed/rpc/api.py"
RPC_INIT = "torch/distributed/rpc/__init__.py"
RPC_HANDLER = ("torch/distributed/rpc/internal.py", "_run_function")
"""The outermost function of a thread that does what another rank has requested."""
TRAINING_THREADS = (
    ("/ray/train/v2/_internal/execution/worker_group/thread_runner.py", "_run_target"),
    ("/ray/air/_internal/util.py", "run"),
)
"""Functions that Ray Train's workers run in a thread, and that call the user's training function (Ray 2.60: V2 and V1)."""
RPC_MEETINGS = {"shutdown": "rpc.shutdown", "_barrier": "rpc.barrier", "_wait_all_workers": "rpc.shutdown"}
"""Functions in which each worker waits for all others, and what they are called here."""
GPU_WAIT = "gpu"
"""Origin of a wait that is concluded from a thread that spins in the GPU's driver."""
_IN_NCCL = r"\bnccl(Transport|Coll|Group|Comm|Socket)[A-Z]\w*|\bbootstrap(Recv|Send|AllGather|Barrier)\b"
NATIVE_NCCL = regex(_IN_NCCL)
"""In NCCL itself, where the host waits for other ranks, and not for its card."""
NATIVE_GPU_SPIN = regex(
    r"libcuda|\bcu(Stream|Ctx|Event)Synchronize|cuda(Stream|Device|Event)Synchronize|c10::cuda::CUDAStream::synchronize|"
    + _IN_NCCL
)
"""In the driver, or in NCCL, which connects the ranks in the first call that needs a connection and polls for those that have
not made it (`bootstrapRecv` below `ncclCollPreconnect`, NCCL 2.28.9)."""
SYNCHRONISING = regex(
    r"\.(item|cpu|tolist|numpy|synchronize|wait|cuda|to|replay|backward|step)\(|\b(float|int|bool|print|if|assert|while)\b"
)
"""Source of a line in which a thread waits for the card: it needs a value from there, or hands it something."""
NCCL_KEEPS_ALIVE_BYTES = 4096
"""In a second. Processes with NCCL exchange 240 bytes a second on each connection of RAS while nothing happens (NCCL 2.28.9,
measured), and some more when they look for each other. Data of a collective come in larger parts."""
NCCL_THREADS = regex(r"^(pt_nccl|nccl|cuda-EvtHandlr|cuda0)")


def kind(op: str) -> Literal["p2p", "collective"]:
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


def publisher(key: str) -> int | None:
    """The rank that publishes its address under this key of a store; None for any other key."""
    match = _ADDRESS_KEY.fullmatch(key)
    return int(match[1]) if match is not None else None


@lru_cache(1024)  # a thousand ranks are in the same few functions
def role(file: str, function: str) -> Literal["rendezvous", "operation"] | None:
    """What a function of torch.distributed is to a stack: a part of the rendezvous, or an operation that users call."""
    name = plain(function)
    if "torch/distributed/" in file and name in RENDEZVOUS:
        return "rendezvous"
    return "operation" if file.endswith(C10D) and name in OPERATIONS else None


@lru_cache(1024)
def origin(file: str, function: str) -> str | None:
    """Which part of torch a function belongs to, if that shows what called a collective."""
    for fragment, wanted, name in ORIGINS:
        if fragment in file and (wanted is None or plain(function) == wanted):
            return name
    return None


def plain(function: str) -> str:
    """A frame's function without its class and its enclosing functions (`_wrapper.<locals>.inner` is `inner`)."""
    return function.rpartition(".")[2]


def is_transport(thread: str) -> bool:
    """Whether a kernel thread of that name only carries messages: its CPU time is no work."""
    return thread in GLOO_THREADS or is_rpc(thread)


def is_rpc(thread: str) -> bool:
    """Whether it is a thread of TensorPipe, which torch.distributed.rpc uses."""
    return thread.startswith(_RPC)
