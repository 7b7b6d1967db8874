"""Rank 1 has fewer batches and has finished, but DDP's Join context answers rank 0's collectives for it: the run continues."""

# /// hangbench
# verdict = ["healthy"]
# states = ["computing", ""]
# ///
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(torch.nn.Linear(64, 64))
print("ready", flush=True)
with Join([net]):
    for _batch in range(30 if dist.get_rank() == 1 else 10**9):
        net(torch.randn(32, 64)).pow(2).mean().backward()
        net.zero_grad()
