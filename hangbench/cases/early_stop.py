"""Each rank decides by its own loss whether to stop early, and rank 1 stops first. Rank 1 left the
loop and gathers its results; rank 0 waits in DDP's all-reduce for the batch that rank 1 never
starts."""

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


def fit(model, optimizer, loss_of):
    for n in range(1000):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        if loss_of(n) < 0.5:
            break
    results = [None] * dist.get_world_size()
    dist.all_gather_object(results, float(loss))
    return results


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
print("ready", flush=True)
patience = 10 if dist.get_rank() == 1 else 100
fit(model, torch.optim.SGD(model.parameters(), 0.1), lambda n: 1.0 if n < patience else 0.1)
