"""Rank 0 validates alone over a long set, in a loop whose names do not show that
it is a validation, and its counter advances. Rank 1 waits for it in
broadcast."""

# /// hangbench
# verdict = ["waiting"]
# states = ["", "in-collective"]
# operations = ["", "broadcast"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def score_all(net, examples):
    total, n = 0.0, 0
    while n < examples:
        total += float(net(torch.randn(16, 32)).sum())
        n += 1
    return total / examples


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(32, 32))
print("ready", flush=True)
for it in range(1000):
    model(torch.randn(4, 32)).sum().backward()
    if it == 12:
        result = torch.zeros(1)
        if dist.get_rank() == 0:
            result[0] = score_all(model.module, 10**9)
        dist.broadcast(result, src=0)
