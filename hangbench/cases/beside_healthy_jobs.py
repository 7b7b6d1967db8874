"""Three healthy jobs run at the same time on one host. None of them waits for a rank of another job."""

# /// hangbench
# situation = "beside-two"
# verdict = ["healthy", "waiting"]
# also = ["HD505"]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
print("ready", flush=True)
for i in range(10**9):
    model(torch.randn(256, 64)).sum().backward()
