"""DDP over loaders of different length, in a loop that counts nothing."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main():
    dist.init_process_group("gloo")
    samples = 10 + (3 if dist.get_rank() == 0 else 0)
    loader = DataLoader(TensorDataset(torch.randn(samples, 4)), batch_size=2)
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    print("ready", flush=True)
    for (inputs,) in loader:
        model(inputs).sum().backward()
    dist.barrier()


main()
