"""For every batch, the worker waits two seconds. The run makes progress, slowly."""

# /// hangbench
# verdict = ["healthy","waiting"]
# ///

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        time.sleep(2)
        return torch.randn(4)


dist.init_process_group("gloo")
print("ready", flush=True)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
for inputs in DataLoader(Slow(), batch_size=1, num_workers=1):
    model(inputs).sum().backward()
