"""Rank 0 logs into a pipe whose reader is alive but no longer reads. Rank 1 waits for rank 0 in all_reduce."""

# /// hangbench
# verdict = ["hung"]
# states = ["waiting-io", "in-collective"]
# operations = ["", "all_reduce"]
# finding = "HD303"
# culprits = [0]
# victims = [1]
# ///
import subprocess

import torch
import torch.distributed as dist


def log(sink, text):
    sink.write(text.encode() * 1000)
    sink.flush()


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    sink = subprocess.Popen(["sleep", "100000"], stdin=subprocess.PIPE).stdin if me == 0 else None
    print("ready", flush=True)
    for i in range(1000):
        dist.all_reduce(torch.ones(5))
        if sink is not None:
            log(sink, f"step {i}\n")


main()
