"""Rank 1's prefetching thread died of an exception that was not reported, and its training thread waits at the queue for the next
batch. Rank 0 waits for rank 1 in DDP's all-reduce."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-data"]
# operations = ["all_reduce", ""]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///
import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Prefetcher:
    def __init__(self, broken_at):
        self.queue = queue.Queue(4)
        self.broken_at = broken_at
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self):
        for index in range(10**6):
            if index == self.broken_at:
                raise OSError("shard is corrupt")
            self.queue.put(torch.randn(4, 8))

    def __iter__(self):
        while True:
            yield self.queue.get()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    batches = Prefetcher(11 if dist.get_rank() == 1 else None)
    print("ready", flush=True)
    for batch in batches:
        model(batch).sum().backward()


main()
