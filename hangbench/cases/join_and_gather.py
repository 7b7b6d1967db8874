"""Ranks have different numbers of batches. Join covers the collectives of DDP, but not the all_gather that the loop calls for its
progress display. Rank 1 has no more data and waits in Join, rank 0 in that all_gather."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_gather", "all_reduce"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Display:
    def __init__(self):
        self.seen = 0

    def update(self, batch, step):
        self.seen += len(batch)
        if step % 4 == 3:
            parts = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, torch.tensor([float(self.seen)]))


def train(model, loader, display):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with Join([model]):
        for step, (batch,) in enumerate(loader):
            model(batch).sum().backward()
            optimizer.step()
            display.update(batch, step)


dist.init_process_group("gloo")
rows = 400 if dist.get_rank() == 0 else 330
model = DistributedDataParallel(torch.nn.Linear(8, 1))
print("ready", flush=True)
train(model, DataLoader(TensorDataset(torch.randn(rows, 8)), batch_size=8), Display())
