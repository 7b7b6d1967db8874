"""Rank 1 waits for the answer of the last of its calls. The source does not show which worker it asks."""

import os
import time

from torch.distributed import rpc


def some_worker() -> str:
    return "server"


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=36_000)
    rpc.init_rpc("server" if rank == 0 else f"worker{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    print("ready", flush=True)
    if rank == 1:
        answers = [rpc.rpc_async(some_worker(), time.sleep, args=(10**6,)) for _ in range(3)]
        answers[-1].wait()
    rpc.shutdown()


main()
