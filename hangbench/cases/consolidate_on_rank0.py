"""Rank 0 alone consolidates the state of a ZeroRedundancyOptimizer, under a condition on a variable called `me`. Rank
1 continued and waits in DDP's all-reduce of the next step.
"""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["broadcast", "all_reduce"]
# finding = "HD203"
# culprits = [0]
# victims = [1]
# ///
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def train(net, optimizer, me):
    for step in range(100_000):
        net(torch.randn(8, 32)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step > 10 and me == 0:
            optimizer.consolidate_state_dict(to=0)
            torch.save(optimizer.state_dict(), "optimizer.pt")


dist.init_process_group("gloo")
net = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)))
print("ready", flush=True)
train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-3), dist.get_rank())
