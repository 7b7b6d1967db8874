"""All ranks were stopped for two seconds and continued. They train again."""

# /// hangbench
# situation = "paused-and-resumed"
# verdict = ["healthy", "waiting"]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
print("ready", flush=True)
step = 0
while True:
    step += 1
    model(torch.randn(512, 64)).sum().backward()
