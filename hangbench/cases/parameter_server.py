"""Rank 0 receives from any rank, and the others compute for a
long time before they send. It is healthy, and rank 0 mostly
waits."""

# /// hangbench
# ranks = 3
# verdict = ["healthy", "waiting"]
# ///

import torch
import torch.distributed as dist


def worker():
    while True:
        g = torch.randn(300, 300)
        for _ in range(300):
            g = torch.tanh(g @ g)
        dist.send(g, 0)


def server():
    while True:
        x = torch.zeros(300, 300)
        dist.recv(x)


dist.init_process_group("gloo")
print("ready", flush=True)
server() if dist.get_rank() == 0 else worker()
