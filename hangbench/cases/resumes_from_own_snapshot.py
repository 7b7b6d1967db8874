"""Each rank resumes from its own newest snapshot. The newest one of rank 2 is damaged, so it begins an epoch earlier than the
others and is still in its last epoch when they gather the results.
"""

# /// hangbench
# verdict = ["hung"]
# ranks = 3
# states = ["in-collective", "in-collective", "in-collective"]
# operations = ["all_gather", "all_gather", "all_reduce"]
# finding = "HD105"
# culprits = [2]
# victims = [0, 1]
# ///
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 6


class Snapshots:
    def __init__(self, rank):
        self.folder = Path(tempfile.mkdtemp(prefix=f"snapshots{rank}-"))
        for epoch in range(4):
            self.path(epoch).write_text(json.dumps({"epoch": epoch}) if epoch < 3 or rank != 2 else '{"epo')

    def path(self, epoch):
        return self.folder / f"{epoch}.json"

    def newest(self):
        for path in sorted(self.folder.glob("*.json"), reverse=True):
            try:
                return json.loads(path.read_text())
            except ValueError:
                continue
        return {"epoch": -1}


def gather(value):
    parts = [torch.zeros_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, value)
    return torch.stack(parts)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    start = Snapshots(rank).newest()["epoch"] + 1
    print("ready", flush=True)
    total = torch.zeros(1)
    for epoch in range(start, EPOCHS):
        for inputs in torch.randn(12, 8, 4):
            loss = model(inputs).pow(2).mean()
            loss.backward()
            total += loss.detach() * (epoch + 1)
    print(gather(total))


main()
