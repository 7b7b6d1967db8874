"""HD703: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import Process, Runtime, Snapshot
from tests.rules.shapes import gpu_rank, machine
from tests.unit.builders import c10d, frame, rank, snapshot, stack, train


def appending(number: int, nccl: str) -> Process:
    """A rank that waits for a free slot of NCCL's proxy."""
    names = ("sched_yield", "ncclLocalOpAppend(ncclComm*, ncclProxyConnector*, ncclProxyOp*)", "pncclGroupEnd")
    native = [frame(name, 0, "libnccl.so.2", native=True, library=True) for name in names]
    python = (*c10d("all_reduce"), train(14))
    runtime = Runtime(python="3.12", executable=None, torch="2.11.0", nccl=nccl)
    return rank(number, *python, cpu=0.99, native=stack(*native, *python), runtime=runtime)


def on(architecture: str, nccl: str) -> Snapshot:
    waiting = gpu_rank(0)
    return snapshot(waiting, appending(1, nccl), machine=machine(architecture=architecture))


def fires() -> Snapshot:
    return on("aarch64", "2.28.9")


def quiet() -> Snapshot:
    """The version that fixes it."""
    return on("aarch64", "2.29.3")
