"""Rank 1 maps its records with a multiprocessing.Pool, one of whose workers was stopped. Rank 0 waits for rank 1."""

# /// hangbench
# ranks = 2
# verdict = ["hung"]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///

import multiprocessing
import os
import signal

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])


def tokens(record):
    if record == 40:
        os.kill(os.getpid(), signal.SIGSTOP)
    return len(str(record))


def main():
    dist.init_process_group("gloo")
    print("ready", flush=True)
    total = torch.zeros(1)
    if rank == 1:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            total += sum(pool.map_async(tokens, range(100)).get())
    dist.all_reduce(total)


main()
