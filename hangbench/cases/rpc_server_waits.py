"""A parameter server answers over torch.distributed.rpc. It
waits for the gradients of all workers before it answers,
but its pool has one thread, so the second request is
never read."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# finding = "HD202"
# culprits = [0]
# victims = [1, 2]
# ///

import os
import threading

import torch
from torch.distributed import rpc

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
arrived, gradients = threading.Condition(), []


def push(gradient):
    with arrived:
        gradients.append(gradient)
        arrived.notify_all()
        arrived.wait_for(lambda: len(gradients) >= world - 1)
    return sum(gradients)


def main():
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=1, rpc_timeout=36000)
    rpc.init_rpc("server" if rank == 0 else f"worker{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    print("ready", flush=True)
    if rank > 0:
        for _ in range(100):
            rpc.rpc_sync("server", push, args=(torch.ones(8),))
    rpc.shutdown()


main()
