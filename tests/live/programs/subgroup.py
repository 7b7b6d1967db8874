"""Two groups; a rank of the first sleeps, the second goes on to a barrier of all."""

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
