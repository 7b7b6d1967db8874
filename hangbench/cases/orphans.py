"""The launcher was killed and its ranks continue to train as orphans. They are healthy left-over processes."""

# /// hangbench
# situation = "launcher-killed"
# verdict = ["healthy", "waiting"]
# finding = "HD305"
# severity = "warning"
# culprits = [0, 1]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
print("ready", flush=True)
for step in range(10**9):
    model(torch.randn(256, 64)).sum().backward()
