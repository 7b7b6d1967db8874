"""The storage that all ranks read from stops answering (a FIFO
replaces it), so all of them wait in open(). No rank waits for
another."""

# /// hangbench
# verdict = ["hung"]
# states = ["waiting-io", "waiting-io"]
# finding = "HD303"
# culprits = [0, 1]
# ///
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.zeros(1)
shard = f"shard-{dist.get_rank()}.bin"
os.mkfifo(shard)
print("ready", flush=True)
for n in range(100):
    dist.all_reduce(total)
    if n == 20:
        with open(shard, "rb") as file:
            total += len(file.read())
