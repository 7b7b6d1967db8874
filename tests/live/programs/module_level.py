"""The loop stands at module level, as in many scripts: no stack shows its variables."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(10, 10))
files = [f"part-{i}" for i in range(201 if rank == 0 else 4)]
print("ready", flush=True)
for it, _name in enumerate(files):
    model(torch.randn(2, 10)).sum().backward()
dist.barrier()
