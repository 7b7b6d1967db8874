"""Rank 1 opens a shard on a file system that does not respond (simulated by a FIFO). Rank 0 waits for it in DDP's
all-reduce.
"""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-io"]
# operations = ["all_reduce", ""]
# finding = "HD303"
# culprits = [1]
# victims = [0]
# ///
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def shards(me):
    for number in range(100):
        path = f"shard-{me}-{number}.bin"
        if me == 1 and number == 4:
            os.mkfifo(path)
        else:
            with open(path, "wb") as out:
                out.write(bytes(16))
        with open(path, "rb") as file:
            yield torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).float()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    print("ready", flush=True)
    for sample in shards(dist.get_rank()):
        model(sample).sum().backward()


main()
