"""Rank 1 reads each batch from a slow disk for half a second. Every step waits for it, and the run advances slowly."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# also = ["HD601"]
# ///
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if self.rank == 1:
            time.sleep(0.5 / 8)
        return torch.randn(256)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model = DistributedDataParallel(nn.Linear(256, 256).to(device))
    for step, batch in enumerate(DataLoader(Images(dist.get_rank()), batch_size=8, num_workers=1)):
        if step == 3:
            print("ready", flush=True)
        loss = model(batch.to(device)).square().mean()
        loss.backward()
        print(step, loss.item(), flush=True)


main()
