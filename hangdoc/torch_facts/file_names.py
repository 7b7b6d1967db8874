"""Files and functions of torch, as the frames of a Python stack show them. No line numbers: each version has others.

A value is the end of the path of a file, or, without `.py`, a part of the path. Read in torch 2.13 unless another version is
given.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

from hangdoc.torch_facts.call_names import INIT_PROCESS_GROUP, INIT_RPC, OPERATIONS, RENDEZVOUS


class Function(NamedTuple):
    """A function of a library."""

    file: str
    """The end of its path."""
    name: str

    def is_at(self, file: str, function: str) -> bool:
        """Whether a frame with this file and function is one of this function."""
        return function.endswith(self.name) and bare_name(function) == self.name and file.endswith(self.file)


def bare_name(function: str) -> str:
    """A frame's function without its class and its enclosing functions (`_wrapper.<locals>.inner` is `inner`)."""
    return function.rpartition(".")[2]


# --- torch as a whole
TORCH = "/torch/"
ON_THE_WAY = (TORCH, "/typing_extensions.py")
"""Frames of torch itself and of its decorators: on the way to every call, and at other lines in each version."""
INSTALLED = "-packages/torch/"
CALLS_PROGRAM = (
    "/torch/utils/_contextlib.py",
    "/torch/distributed/elastic/",
    "/torch/distributed/run.py",
    "/torch/distributed/launch",
    "/torch/multiprocessing/",
)
"""Parts of torch that call the program: decorators such as `no_grad`, and launchers (launch.py, launcher/)."""
SPAWNED = Function("torch/multiprocessing/spawn.py", "_wrap")
"""Runs the user's function in a process that `mp.spawn` has started; `i` is the rank."""
SPAWN = SPAWNED.file
MODULE_CALL = Function("torch/nn/modules/module.py", "_wrapped_call_impl")
"""What `module(x)` calls."""

# --- torch.distributed
DISTRIBUTED = "/torch/distributed/"
C10D = "torch/distributed/distributed_c10d.py"
C10D_LOGGER = "torch/distributed/c10d_logger.py"
"""Its decorators are between each operation and its caller."""
RPC = "torch/distributed/rpc/api.py"
STORE = "torch/distributed/elastic/utils/store.py"
_RENDEZVOUS, _UTILS = "torch/distributed/rendezvous.py", "torch/distributed/utils.py"
_RPC_INIT = "torch/distributed/rpc/__init__.py"
_CHECKPOINT = "torch/distributed/checkpoint/"
_DDP = "torch/nn/parallel/distributed.py"
NAMING = (C10D, _RENDEZVOUS, _UTILS, _RPC_INIT, RPC, STORE)
"""Files whose functions have the names of the operations in which they wait."""
WITH_ARGUMENTS = (C10D, RPC)
"""Files whose functions have the arguments of the calls in their variables."""
PIPELINE = "torch/distributed/pipelining/schedules.py"
"""Where a pipeline posts its sends and receives, from lists of P2POp objects in its variables, and waits for them."""
PIPELINE_SENDS = "send_work"
"""Its variable with the works of sends that it has posted earlier."""
MEETINGS = (Function(C10D, INIT_PROCESS_GROUP), Function(_RPC_INIT, INIT_RPC))
RPC_HANDLER = Function("torch/distributed/rpc/internal.py", "_run_function")
"""The outermost function of a thread that does what another rank has requested."""
RENDEZVOUS_FILES = (_RENDEZVOUS, "torch/distributed/elastic/rendezvous/")
AGENT = "torch/distributed/elastic/"
"""torchrun's agent."""
AGENT_WAITS = ("next_rendezvous", "_assign_worker_ranks")
"""Functions of it that wait for the other nodes: for their arrival, and for their settings."""
DYNAMIC_RENDEZVOUS = "torch/distributed/elastic/rendezvous/dynamic_rendezvous.py"
"""Where it waits with `--standalone`, and with `--rdzv-backend c10d`."""
AGENT_EXIT = "_exit_barrier"
"""A function of it that waits for the agents of all nodes after their ranks have ended."""
JOIN = Function("torch/distributed/algorithms/join.py", "__exit__")
"""Where a rank that has no more data answers the collectives of those that have (`Join`)."""
AUTOGRAD_COLLECTIVES = "/torch/distributed/nn/"
"""Collectives that autograd can go through."""
PIPELINE_STEP = Function("/torch/distributed/pipelining/schedules.py", "_step_microbatches")

# --- what a rank does between its collectives
BACKWARD = Function("torch/autograd/graph.py", "_engine_run_backward")
WAIT_TENSOR = Function("torch/distributed/_functional_collectives.py", "wait_tensor")
"""In which a functional collective is waited for, as DTensor's are."""
DISPATCHER = "torch/_ops.py"
"""By which Python calls an operator, such as that of functional collectives which waits."""
LAYERS = "/torch/nn/modules/"
TRAINING = ("torch/autograd/", LAYERS, "torch/optim/", "torch/nn/functional.py", "torch/_tensor.py")
"""A thread in one of them trains, or uses a model."""
_INDUCTOR = "torch/_inductor/"
COMPILER = (
    _INDUCTOR,
    "torch/_dynamo/",
    "torch/_functorch/",
    "torch/utils/cpp_extension.py",
    "/triton/compiler/",
)
"""Compilers, which start processes; Triton's is not in torch."""
COMPILING = (_INDUCTOR, "_dynamo/convert_frame")
"""A busy thread in one of them compiles. Compiled code runs below other parts of torch/_dynamo."""
SAVING = ("torch/serialization.py", _CHECKPOINT)
FILE_BATON = "/torch/utils/file_baton.py"
"""Polls for a lock file while another process builds an extension; torch.utils.cpp_extension calls it and has its path."""

# --- torch.utils.data
DATA = "/torch/utils/data/"
DATALOADER = "torch/utils/data/dataloader.py"
DATALOADER_ENDS_WORKERS = Function(DATALOADER, "_shutdown_workers")
"""Called behind the last batch of a pass, and where an iterator is deleted. It waits at most 5 s for the end of each worker, and
then kills it. What it does before that has no timeout: it hangs if a worker was killed while it held a lock of theirs."""
DATALOADER_NEXT = Function(DATALOADER, "_next_data")
DATALOADER_FETCH = "torch/utils/data/_utils/fetch.py"
"""Calls the dataset in a worker."""
DATALOADER_WORKER = Function("torch/utils/data/_utils/worker.py", "_worker_loop")
SAMPLING = Function("/torch/utils/data/sampler.py", "__iter__")
"""A sampler's generator."""

ORIGINS: tuple[tuple[str, str | None, str], ...] = (
    ("torch/distributed/fsdp/", None, "fsdp"),
    ("torch/distributed/_composable/fsdp", None, "fsdp"),
    (_CHECKPOINT, None, "checkpoint"),
    (_DDP, "__init__", "ddp-init"),
    (_DDP, "_run_ddp_forward", "user"),  # what the wrapped module calls itself
    (_DDP, "forward", "ddp-forward"),
    ("torch/distributed/optim/", None, "optimizer"),
    ("torch/optim/optimizer.py", "wrapper", "optimizer"),
    (STORE, None, "store"),
)
"""Which part of torch calls a collective for the user: part of the path, function or None, origin."""
DIRECT_CALLS: tuple[tuple[Function, str], ...] = (
    (Function(_UTILS, "_verify_param_shape_across_processes"), "all_gather"),
    (Function(_UTILS, "_sync_params_and_buffers"), "broadcast"),
    (Function(_DDP, "_distributed_broadcast_coalesced"), "broadcast"),
)
"""Functions that call a collective in C++ at once, so that no frame of distributed_c10d.py shows it, with the operation."""


@lru_cache(1024)  # a thousand ranks are in the same few functions
def role_in_distributed(file: str, function: str) -> Literal["rendezvous", "operation"] | None:
    """What a function of torch.distributed is to a stack: a part of the rendezvous, or an operation that users call."""
    name = bare_name(function)
    if DISTRIBUTED in file and name in RENDEZVOUS:
        return "rendezvous"
    return "operation" if file.endswith(C10D) and name in OPERATIONS else None


@lru_cache(1024)
def origin_of_call(file: str, function: str) -> str | None:
    """Which part of torch a function belongs to, if that shows what called a collective."""
    for fragment, wanted, name in ORIGINS:
        if fragment in file and (wanted is None or bare_name(function) == wanted):
            return name
    return None
