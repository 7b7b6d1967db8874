"""Rank 1 accumulates gradients over four micro-batches under no_sync, but rank 0 over two.
Rank 0 all-reduces twice as often and waits for rank 1, which is at the barrier after its
loop."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "barrier"]
# finding = "HD501"
# culprits = [0, 1]
# nodes = [{arguments = ["--grad-accum", "2"]}, {arguments = ["--grad-accum", "4"]}]
# ///
import argparse
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--grad-accum", type=int, default=1)
args = parser.parse_args()


def train(model, accumulation):
    for micro in range(48):
        last = (micro + 1) % accumulation == 0
        with contextlib.nullcontext() if last else model.no_sync():
            model(torch.randn(2, 4)).sum().backward()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
print("ready", flush=True)
train(model, args.grad_accum)
dist.barrier()
