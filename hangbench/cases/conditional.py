"""A barrier is under `if rank == 0`, so only rank 0 calls it. Rank 1 continued with the next epoch and waits in DDP's
gradient all-reduce.
"""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective","in-collective"]
# operations = ["barrier","all_reduce"]
# finding = "HD203"
# culprits = [0]
# victims = [1]
# ///

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
