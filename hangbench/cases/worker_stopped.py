"""A dataloader worker of rank 0 is stopped by a signal and yields no
batch. Rank 0 waits for it in its loader, and rank 1 waits for rank
0."""

# /// hangbench
# verdict = ["hung"]
# states = ["waiting-data", "in-collective"]
# operations = ["", "all_reduce"]
# finding = "HD103"
# culprits = [0]
# victims = [1]
# ///
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if index == 10 and dist.get_rank() == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.randn(4)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    print("ready", flush=True)
    for batch in DataLoader(Records(), batch_size=2, num_workers=2):
        model(batch).sum().backward()


main()
