"""Rank 1 forks its dataloader worker while a thread holds a lock that the dataset takes too, so the
worker waits for a lock that is never released. Rank 1 waits for its worker, and rank 0 for rank
1."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-data"]
# operations = ["all_reduce", ""]
# finding = "HD103"
# culprits = [1]
# victims = [0]
# ///
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

index_lock = threading.Lock()


def refresh():
    while True:
        with index_lock:
            time.sleep(0.5)
        time.sleep(0.001)


class Indexed(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, position):
        with index_lock:
            return torch.randn(4)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
if dist.get_rank() == 1:
    threading.Thread(target=refresh, daemon=True).start()
    time.sleep(0.2)
print("ready", flush=True)
for epoch in range(3):
    for inputs in DataLoader(Indexed(), batch_size=4, num_workers=1):
        model(inputs).sum().backward()
