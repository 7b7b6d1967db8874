"""One rank of a run for `bench.watch_day`: a loop with an all-reduce, which ends or freezes in the requested way."""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def freeze(kind: str, rank: int) -> None:
    """Freeze, and never return. A `stopped` run is frozen from outside and does not call this."""
    if kind == "asleep":
        if rank == 1:
            time.sleep(100_000)
        dist.all_reduce(torch.ones(1))
    elif kind == "left-early":
        if rank == 0:
            dist.all_reduce(torch.ones(1))
        dist.barrier()
    elif kind == "other-operation":
        if rank == 0:
            dist.broadcast(torch.ones(1), 1)
            dist.broadcast(torch.ones(1), 1)
        else:
            dist.recv(torch.ones(1), 0)
    elif kind == "waits-for-nobody":
        dist.recv(torch.ones(1), 1 - rank)


def main(kind: str, seconds: float) -> None:
    """Train for so many seconds. A run that freezes does so after three seconds."""
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    weights = torch.ones(1000)
    steps = int((seconds if kind == "healthy" else 3.0) / 0.1)
    step = 0
    while step < steps or kind == "stopped":
        time.sleep(0.1)  # the work
        dist.all_reduce(weights)
        weights /= 2
        step += 1
        if step == steps:
            ready(kind)
    if kind != "healthy":
        ready(kind)
        freeze(kind, rank)
    dist.destroy_process_group()


def ready(kind: str) -> None:
    """Report that the run is ready to freeze."""
    Path(os.environ["READY"]).touch()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
