"""Asynchronous work waited for by hand: no torch frame in Python, the operation stands in the source alone."""

import time

import torch
import torch.distributed as dist


def synchronize(tensors):
    pending = []
    for tensor in tensors:
        pending.append(dist.all_reduce(tensor, async_op=True))  # noqa: PERF401
    for work in pending:
        work.wait()


dist.init_process_group("gloo")
print("ready", flush=True)
n = 0
while True:
    n += 1
    if dist.get_rank() == 1 and n == 4:
        while True:
            time.sleep(3600)
    synchronize([torch.ones(3), torch.ones(4)])
