"""The workers of both ranks' loaders read records that never arrive,
and both ranks wait for their next batch. No rank waits for
another."""

# /// hangbench
# verdict = ["hung"]
# states = ["waiting-data", "waiting-data"]
# finding = "HD103"
# culprits = [0, 1]
# ///
import threading

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        if index >= 80:
            threading.Event().wait()
        return torch.ones(4)


dist.init_process_group("gloo")
print("ready", flush=True)
for batch in DataLoader(Records(), batch_size=4, num_workers=2):
    dist.all_reduce(batch)
