"""The script trains in bfloat16 on a CPU, as it would on a GPU. It
is healthy, but slow if the processor has no instructions for
it."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# also = ["HD504"]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dtype = torch.bfloat16
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(256, 256).to(dtype))
print("ready", flush=True)
for step in range(10**9):
    model(torch.randn(64, 256, dtype=dtype)).sum().backward()
