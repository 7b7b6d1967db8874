"""Rank 1 has four times the work of rank 0 in every step, so all
ranks run at its pace. The run is healthy but slower than
necessary."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# finding = "HD601"
# severity = "warning"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(model, rows):
    for step in range(10**9):
        model(torch.randn(rows, 512)).sum().backward()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(512, 512))
    print("ready", flush=True)
    train(model, 4096 if dist.get_rank() == 1 else 128)


main()
