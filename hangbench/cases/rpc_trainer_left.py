"""A parameter server answers over torch.distributed.rpc
when all trainers have sent their gradients of a step. The
last trainer has less data, so it ends first, and the others
wait for answers."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# finding = "HD101"
# culprits = [2]
# victims = [0, 1]
# ///

import os
import threading

import torch
from torch.distributed import rpc
from torch.utils.data import DataLoader, TensorDataset

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
guard, pending = threading.Lock(), []


@rpc.functions.async_execution
def push(gradient):
    answer = torch.futures.Future()
    with guard:
        pending.append((gradient, answer))
        everyone = list(pending) if len(pending) == world - 1 else []
        del pending[: len(everyone)]
    for _, waiting in everyone:
        waiting.set_result(sum(one for one, _ in everyone))
    return answer


def train():
    rows = TensorDataset(torch.randn(96 if rank == 1 else 64, 8))
    weights = torch.zeros(8)
    for (batch,) in DataLoader(rows, batch_size=8):
        weights -= 0.1 * rpc.rpc_sync("server", push, args=(batch.mean(0),), timeout=0)


def main():
    rpc.init_rpc("server" if rank == 0 else f"trainer{rank}", rank=rank, world_size=world)
    print("ready", flush=True)
    if rank > 0:
        train()
    rpc.shutdown()


main()
