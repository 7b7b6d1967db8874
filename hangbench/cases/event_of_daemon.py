"""Rank 1 waits for an event in shared memory. A process that has detached itself from the rank computes, and will set it. Rank 0
waits for rank 1 in the all-reduce."""

# /// hangbench
# verdict = ["waiting"]
# states = ["in-collective", "waiting-lock"]
# operations = ["all_reduce", ""]
# finding = "HD202"
# severity = "info"
# culprits = [1]
# victims = [0]
# patience = 2
# ///
import multiprocessing
import os
import time

import torch
import torch.distributed as dist


def detached(work):
    """Runs `work` in a process that is no child of this one."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            work()
        os._exit(0)
    os.wait()


def simulate(ready):
    until = time.monotonic() + 3600
    while time.monotonic() < until:
        sum(range(100_000))
    ready.set()


ready = multiprocessing.get_context("fork").Event()
if int(os.environ["RANK"]) == 1:
    detached(lambda: simulate(ready))
dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 1:
    ready.wait()
dist.all_reduce(torch.ones(1))
