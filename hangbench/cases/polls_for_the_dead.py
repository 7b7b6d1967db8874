"""Rank 2 was killed and is a zombie. The others swallowed the broken
connection and poll its key in the store. No launcher exists to end
them."""

# /// hangbench
# ranks = 3
# launch = "environment"
# verdict = ["hung"]
# states = ["sleeping", "sleeping", "zombie"]
# finding = "HD301"
# culprits = [2]
# victims = [0, 1]
# ///
import os
import signal
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
print("ready", flush=True)
for step in range(100):
    if rank == 2 and step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(4))
    except RuntimeError:
        break
store.add("recovered", 1)
while store.add("recovered", 0) < dist.get_world_size():
    time.sleep(0.5)
