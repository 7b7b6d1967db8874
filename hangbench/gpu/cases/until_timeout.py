"""Rank 1 sleeps, and rank 0 waits for it in all_reduce. The timeout is 40 seconds: then torch writes its record and ends the
run."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ends_itself = true
# ///
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=40))
    x = torch.ones(4096, device=device)
    for step in range(1000):
        dist.all_reduce(x)
        x /= dist.get_world_size()
        print(step, x.sum().item(), flush=True)
        if step == 20:
            print("ready", flush=True)
            if dist.get_rank() == 1:
                time.sleep(10**6)


main()
