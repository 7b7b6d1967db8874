"""A callback of rank 1 raises in round 25. The handler around the loop only prints the error, and
rank 1 continues to gather the scores. Rank 0 waits for it in DDP's all-reduce. No rank ran out of
data."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "all_gather_object"]
# finding = "HD105"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def on_step(step):
    if dist.get_rank() == 1 and step == 25:
        raise KeyError("metric")


def fit(net):
    try:
        for step in range(1000):
            net(torch.randn(4, 8)).sum().backward()
            on_step(step)
    except KeyError as error:
        print("ignored:", error, flush=True)
    scores = [None] * dist.get_world_size()
    dist.all_gather_object(scores, 1.0)


dist.init_process_group("gloo")
net = DistributedDataParallel(torch.nn.Linear(8, 8))
print("ready", flush=True)
fit(net)
