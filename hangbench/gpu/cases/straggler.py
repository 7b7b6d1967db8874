"""Rank 1 augments its images on the host for 150 ms in every step, so both ranks run at its pace. The run is healthy but slower
than necessary."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# finding = "HD601"
# severity = "warning"
# culprits = [1]
# victims = [0]
# ///
import time

import torch
import torch.distributed as dist


def augment(rank, device):
    if rank == 1:
        time.sleep(0.15)
    return torch.randn(1000, 1000, device=device)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    weight = torch.randn(1000, 1000, device=device)
    for step in range(10**9):
        if step == 5:
            print("ready", flush=True)
        gradient = augment(dist.get_rank(), device) @ weight
        dist.all_reduce(gradient)
        if step % 10 == 0:
            print(step, gradient.mean().item(), flush=True)
        gradient.sum().item()


main()
