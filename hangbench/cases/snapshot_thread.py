"""A thread that writes snapshots calls barrier() on the default group while the main thread trains. Rank
0's barrier comes before its all-reduce, rank 1's after it, so both threads of both ranks wait
forever."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "all_reduce"]
# finding = "HD201"
# culprits = [0, 1]
# ///
import threading
import time

import torch
import torch.distributed as dist


def snapshots(rank, due):
    due.wait()
    time.sleep(0.5 * rank)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    due = threading.Event()
    threading.Thread(target=snapshots, args=(rank, due), name="snapshots", daemon=True).start()
    total = torch.zeros(4096)
    for step in range(1000):
        if step == 20:
            print("ready", flush=True)
            due.set()
            time.sleep(0.25)
        dist.all_reduce(total)


main()
