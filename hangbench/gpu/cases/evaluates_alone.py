"""Rank 0 evaluates on its card for minutes while the others wait for it in an NCCL barrier. It advances, and nothing is wrong."""

# /// hangbench
# ranks = 3
# verdict = ["waiting"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1, 2]
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def evaluate(model, batches, device):
    total = 0.0
    for _ in range(batches):
        with torch.no_grad():
            total += model(torch.randn(64, 512, device=device)).square().mean().item()
    return total / batches


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model = DistributedDataParallel(nn.Linear(512, 512).to(device))
    for epoch in range(100):
        for step in range(20):
            loss = model(torch.randn(32, 512, device=device)).square().mean()
            loss.backward()
            print(epoch, step, loss.item(), flush=True)
        print("ready", flush=True)
        if dist.get_rank() == 0:
            print("accuracy", evaluate(model.module, 10**9, device), flush=True)
        dist.barrier()


main()
