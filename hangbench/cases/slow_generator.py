"""A generator yields a batch every three seconds and sleeps in between. The run makes progress, slowly."""

# /// hangbench
# ranks = 2
# verdict = ["waiting", "healthy"]
# ///
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def batches():
    while True:
        time.sleep(3)
        yield torch.randn(4, 4)


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
print("ready", flush=True)
for b in batches():
    model(b).sum().backward()
