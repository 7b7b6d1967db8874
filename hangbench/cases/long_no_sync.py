"""Gradients are accumulated over hundreds of micro-batches under no_sync before
one all-reduce. Both ranks compute, and for a long time no byte is sent between
them."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# ///
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def accumulate(model, optimizer, micro_batches):
    for micro_step in range(micro_batches):
        last = micro_step == micro_batches - 1
        with contextlib.nullcontext() if last else model.no_sync():
            model(torch.randn(64, 256)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    print("ready", flush=True)
    while True:
        accumulate(model, optimizer, 3000)


main()
