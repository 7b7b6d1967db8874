"""Rank 1 takes its batches from a queue that one of its child processes fills. That process
has died, and rank 1 waits for the next batch forever; rank 0 waits for it in an
all_reduce."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-child"]
# operations = ["all_reduce", ""]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///
import multiprocessing
import os
import time

import torch
import torch.distributed as dist


def produce(queue):
    for n in range(20):
        queue.put(float(n))
    time.sleep(0.5)
    os._exit(3)


dist.init_process_group("gloo")
context = multiprocessing.get_context("fork")
queue = context.Queue(4)
if dist.get_rank() == 1:
    context.Process(target=produce, args=(queue,), daemon=True).start()
print("ready", flush=True)
total = torch.zeros(1)
while True:
    total += queue.get() if dist.get_rank() == 1 else 1.0
    dist.all_reduce(total)
