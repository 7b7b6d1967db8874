"""Rank 1 sleeps in the middle of its group's rounds, and rank 0 waits for it in that
group's all_reduce. The other group has finished and waits at a barrier of all
ranks."""

# /// hangbench
# ranks = 4
# verdict = ["hung"]
# states = ["in-collective","sleeping","in-collective","in-collective"]
# operations = ["all_reduce","","barrier","barrier"]
# finding = "HD202"
# culprits = [1]
# victims = [0,2,3]
# ///

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
me = dist.get_rank()
low, high = dist.new_group([0, 1]), dist.new_group([2, 3])
print("ready", flush=True)
for i in range(20):
    if me == 1 and i == 7:
        time.sleep(10**6)
    dist.all_reduce(torch.ones(1), group=low if me < 2 else high)
dist.barrier()
