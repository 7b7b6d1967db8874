"""Rank 1 has no value in round 9 and returns before a gather to rank 0 and a barrier, which the others call. Rank
2 has finished the gather and waits at the barrier, rank 0 waits in the gather, and rank 1 in the next
all_reduce."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# finding = "HD203"
# culprits = [1]
# victims = [0, 2]
# states = ["in-collective", "in-collective", "in-collective"]
# operations = ["gather", "all_reduce", "barrier"]
# ///

import torch
import torch.distributed as dist


def report(value, n):
    if value is None:
        return
    out = [torch.zeros(1) for _ in range(3)] if dist.get_rank() == 0 else None
    dist.gather(torch.tensor([value]), out, dst=0)
    dist.barrier()


dist.init_process_group("gloo")
print("ready", flush=True)
for n in range(100):
    report(None if dist.get_rank() == 1 and n == 9 else 1.0, n)
    dist.all_reduce(torch.ones(2))
