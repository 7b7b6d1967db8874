"""Rank 1's dataset has 16 paths and rank 0's has 120, which only the dataset object shows. Rank 1
left its loop, which has no counter, and waits in all_gather_object while rank 0 waits in its
backward."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective","in-collective"]
# operations = ["all_reduce","all_gather_object"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.randn(4)


def run_epoch(model, loader):
    for inputs in loader:
        model(inputs).sum().backward()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    print("ready", flush=True)
    data = Files([str(i) for i in range(120 if dist.get_rank() == 0 else 16)])
    run_epoch(model, DataLoader(data, batch_size=4, num_workers=1))
    dist.all_gather_object([None] * 2, "done")


main()
