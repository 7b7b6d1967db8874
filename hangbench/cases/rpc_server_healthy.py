"""Workers compute and send their gradients to a parameter
server over torch.distributed.rpc. The server's main
thread waits in `rpc.shutdown` all the time. It is
healthy."""

# /// hangbench
# ranks = 3
# verdict = ["healthy", "waiting"]
# ///

import os

import torch
from torch.distributed import rpc

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
weights = torch.zeros(300, 300)


def push(gradient):
    weights.add_(gradient, alpha=1e-3)
    return weights


def main():
    rpc.init_rpc("server" if rank == 0 else f"worker{rank}", rank=rank, world_size=world)
    print("ready", flush=True)
    if rank > 0:
        own = torch.randn(300, 300)
        while True:
            for _ in range(200):
                own = torch.tanh(own @ own)
            own = own + rpc.rpc_sync("server", push, args=(own,))
    rpc.shutdown()


main()
