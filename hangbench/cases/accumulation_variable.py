"""GRAD_ACCUM is 2 on one node and 4 on the other. The second node reduces its gradients half
as often and waits in the reduce after the epoch, while the first node is still in its
backward."""

# /// hangbench
# verdict = ["hung"]
# operations = ["all_reduce", "reduce"]
# finding = "HD502"
# culprits = [0, 1]
# nodes = [{environment = {GRAD_ACCUM = "2"}}, {environment = {GRAD_ACCUM = "4"}}]
# ///
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    every = int(os.environ["GRAD_ACCUM"])
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    print("ready", flush=True)
    for i in range(64):
        synced = (i + 1) % every == 0
        with nullcontext() if synced else model.no_sync():
            model(torch.ones(4, 8)).sum().backward()
    dist.reduce(torch.ones(1), dst=0)


main()
