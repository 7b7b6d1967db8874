"""The parameter server takes its lock a second time when it saves, in the thread that handles a request. The requests of all
trainers wait for that lock."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# finding = "HD304"
# culprits = [0]
# victims = [1, 2]
# ///

import os
import threading

import torch
from torch.distributed import rpc

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
table, guard = torch.zeros(8), threading.Lock()


def total():
    with guard:
        return table.sum()


def push(gradient):
    with guard:
        table.add_(gradient)
        if table.max() >= 20:
            print("total", total())


def main():
    rpc.init_rpc("server" if rank == 0 else f"trainer{rank}", rank=rank, world_size=world)
    print("ready", flush=True)
    if rank > 0:
        for _ in range(1000):
            rpc.rpc_sync("server", push, args=(torch.ones(8),), timeout=0)
    rpc.shutdown()


main()
