"""Rank 1 is stopped by a signal between two all-reduces. Rank 0 waits for it."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD302"
# culprits = [1]
# victims = [0]
# ///
import os
import signal

import torch
import torch.distributed as dist


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    x = torch.ones(4096, device=device)
    for step in range(1000):
        dist.all_reduce(x)
        x /= dist.get_world_size()
        x.sum().item()
        if step == 20:
            print("ready", flush=True)
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGSTOP)


main()
