"""The worker of rank 1's loader reads a record that never arrives, so rank 1 waits for its next batch. Rank 0 waits for rank 1 in
the all-reduce of the gradients."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD103"
# culprits = [1]
# victims = [0]
# ///
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if self.rank == 1 and index >= 320:
            threading.Event().wait()
        return torch.randn(256)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model = DistributedDataParallel(nn.Linear(256, 256).to(device))
    for step, batch in enumerate(DataLoader(Records(dist.get_rank()), batch_size=8, num_workers=1)):
        if step == 20:
            print("ready", flush=True)
        loss = model(batch.to(device)).square().mean()
        loss.backward()
        print(step, loss.item(), flush=True)


main()
