"""A control group gives the whole run a fifth of one core, so it trains slowly. It is throttled, not hung."""

# /// hangbench
# situation = "cpu-quota"
# verdict = ["healthy", "waiting"]
# finding = "HD505"
# severity = "warning"
# culprits = [0, 1]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
print("ready", flush=True)
for n in range(10**9):
    model(torch.randn(512, 64)).sum().backward()
