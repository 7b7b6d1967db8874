"""Rank 1 raised an exception and cannot exit, because a non-daemon thread is still running. Rank 0 waits for it in
all_reduce."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-lock"]
# operations = ["all_reduce", ""]
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


def train(me):
    for i in range(100):
        if me == 1 and i == 3:
            raise ValueError("loss is NaN")
        dist.all_reduce(torch.ones(2))


dist.init_process_group("gloo")
threading.Thread(target=heartbeat).start()
print("ready", flush=True)
train(dist.get_rank())
