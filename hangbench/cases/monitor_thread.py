"""A monitor thread of the user's code on rank 0 keeps counting while the training is
frozen. Rank 1 sleeps forever in its fourth round, and rank 0 waits for it in
all_reduce."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective","sleeping"]
# operations = ["all_reduce",""]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///

import threading
import time

import torch
import torch.distributed as dist


def monitor(seen):
    ticks = 0
    while True:
        ticks += 1
        seen["ticks"] = ticks
        time.sleep(0.1)


def main():
    dist.init_process_group("gloo")
    seen = {}
    if dist.get_rank() == 0:
        threading.Thread(target=monitor, args=(seen,), daemon=True).start()
    print("ready", flush=True)
    n = 0
    while True:
        n += 1
        if dist.get_rank() == 1 and n == 4:
            time.sleep(100_000)
        dist.all_reduce(torch.ones(3))


main()
