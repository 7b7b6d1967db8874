"""A contrastive loss gathers the features of all ranks with gradients. In batch 20, the loss of rank 2 does not depend on them,
so its backward leaves out the scatters of the others, one for each root."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# finding = "HD203"
# culprits = [2]
# victims = [0, 1]
# ///

import os

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])


def main():
    dist.init_process_group("gloo")
    print("ready", flush=True)
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    for batch in range(100):
        features = model(torch.randn(8, 4))
        everyone = torch.cat(all_gather(features))
        usable = batch < 20 or rank < 2
        loss = everyone.square().mean() if usable else features.sum() * 0
        loss.backward()


main()
