"""The run has finished its training. Rank 0 writes a long last report, and
rank 1 has finished everything except its exit. No rank waits in a
collective."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# ///
import atexit
import time

import torch
import torch.distributed as dist


def farewell():
    print("ready", flush=True)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        sum(range(10_000))


dist.init_process_group("gloo")
for i in range(10):
    dist.all_reduce(torch.ones(8))
me = dist.get_rank()
dist.barrier()
dist.destroy_process_group()
if me == 0:
    atexit.register(farewell)
else:
    print("ready", flush=True)
    time.sleep(60)
