"""The loop is at module level, where no stack shows its variables; rank 1 has 4 files and
rank 0 has 201. Rank 1 left the loop for the barrier after it, and rank 0 waits in its
backward."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective","in-collective"]
# operations = ["all_reduce","barrier"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///

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
