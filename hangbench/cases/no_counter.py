"""Rank 0 has two batches more than rank 1, in tensors whose length nothing shows, and
the loop has no counter. Rank 1 left it and waits at a barrier, rank 0 in its
backward."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective","in-collective"]
# operations = ["all_reduce","barrier"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///

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
