"""Names of kernel threads and of processes, which the kernel cuts to 15 characters. One source for all who tell by them what a
process has, or whether a thread works.

Read in torch 2.13, whose names begin with `pt_`, and in the Gloo and the TensorPipe that it contains. Its wheel for CPUs has
neither those of NCCL nor those of NVIDIA's driver; a card has shown NCCL 2.28.9 with torch 2.11.
"""

from collections.abc import Iterable

GLOO_LOOP = "pt_gloo_runloop"
"""Runs the collectives of a group; a process with a Gloo group has some."""
_GLOO_TCP_LOOP = "gloo_tcp_loop"
GLOO_THREADS = frozenset({GLOO_LOOP, _GLOO_TCP_LOOP})
"""They only carry messages: their CPU time is no work."""
_GLOO_OF_TORCH, _GLOO = "pt_gloo", "gloo_"
_NCCL_OF_TORCH, _NCCL = "pt_nccl", "nccl"
"""torch's watchdog and heartbeat of NCCL; NCCL's own threads."""
_DRIVER = ("cuda-EvtHandlr", "cuda0")
"""Threads of NVIDIA's driver in a process with CUDA."""
_CUDA = "cuda"
_MPI = "pt_mpi"
_TENSORPIPE = "TP_"
"""TensorPipe's threads (torch.distributed.rpc), which poll all the time."""
RPC_POOL = "pt_thread_pool"
"""The threads that do what other ranks request by RPC (c10/core/thread_pool.cc)."""
_AUTOGRAD = "pt_autograd"
STORE = "pt_tcpstore"
"""How the name of the thread of a store begins (torch/csrc/distributed/c10d/TCPStore*.cpp)."""
AGENT = "pt_elastic"
"""The name of torchrun's process (torch/distributed/run.py)."""
DATALOADER_WORKER = "pt_data_worker"
"""The name of a dataloader's worker (torch/utils/data/_utils/worker.py)."""

POLLING = (_GLOO, _NCCL_OF_TORCH)
"""Beginnings of names of threads of torch's backends that run all the time."""
BACKENDS = (*POLLING, _GLOO_OF_TORCH)
"""Of those that torch's backends start. They poll sockets that are read anyway."""
_COMMUNICATION = (*BACKENDS, _NCCL, _MPI)
_ON_CARDS = (_NCCL_OF_TORCH, _NCCL, *_DRIVER)
_OF_LIBRARIES = (*_COMMUNICATION, _CUDA, _TENSORPIPE, RPC_POOL, _AUTOGRAD)


def has_process_group(thread: str) -> bool:
    """Whether only a process with a process group has a thread of that name."""
    return thread.startswith(_COMMUNICATION)


def may_have_record(kind: str, threads: Iterable[str]) -> bool:
    """Whether a process with these threads may have a record of the backend in torch's library of this kind (`cpu`: Gloo; `cuda`
    and `hip`: NCCL). A group of each backend starts threads, which torch names from 2.5 on. Without such a name, it may."""
    names = [name for name in threads if name.startswith((_GLOO_OF_TORCH, _NCCL_OF_TORCH))]
    backend = {"cpu": _GLOO_OF_TORCH, "cuda": _NCCL_OF_TORCH, "hip": _NCCL_OF_TORCH}.get(kind, "")
    return not names or any(name.startswith(backend) for name in names)


def uses_card(thread: str) -> bool:
    """Whether NCCL or CUDA has started the thread."""
    return thread.startswith(_ON_CARDS)


def is_of_library(thread: str) -> bool:
    """Whether it is a thread of a communication library or of autograd, whose number OMP_NUM_THREADS does not change."""
    return thread.startswith(_OF_LIBRARIES)


def is_transport(thread: str) -> bool:
    """Whether a thread only carries messages: its CPU time is no work."""
    return thread in GLOO_THREADS or is_of_rpc(thread)


def is_of_rpc(thread: str) -> bool:
    """Whether it is a thread of TensorPipe, which torch.distributed.rpc uses."""
    return thread.startswith(_TENSORPIPE)
