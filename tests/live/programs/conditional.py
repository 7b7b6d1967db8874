"""A barrier that rank 0 alone calls."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(rank):
    if rank == 0:
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    print("ready", flush=True)
    for _epoch in range(3):
        for _ in range(5):
            model(torch.randn(2, 4)).sum().backward()
        save(dist.get_rank())


main()
