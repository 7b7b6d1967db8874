"""Rank 1 raised an exception and cannot exit, because its heartbeat thread is not a daemon. Rank 0 waits for it in all_reduce."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///
import threading
import time

import torch
import torch.distributed as dist


def heartbeat():
    while True:
        time.sleep(1000)


def train(rank, device):
    x = torch.ones(4096, device=device)
    for step in range(100):
        if step == 12:
            print("ready", flush=True)
            if rank == 1:
                raise ValueError("loss is NaN")
        dist.all_reduce(x)
        x /= dist.get_world_size()
        x.sum().item()


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
threading.Thread(target=heartbeat).start()
train(dist.get_rank(), device)
