"""Rank 1 waits for an event in shared memory. The process that should set it has ended, and no other process has the event.
Rank 0 waits for rank 1 in the all-reduce."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-lock"]
# operations = ["all_reduce", ""]
# finding = "HD202"
# severity = "error"
# culprits = [1]
# victims = [0]
# patience = 2
# ///
import multiprocessing
import os

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
    scores = {}
    if scores:
        ready.set()


ready = multiprocessing.get_context("fork").Event()
if int(os.environ["RANK"]) == 1:
    detached(lambda: simulate(ready))
dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 1:
    ready.wait()
dist.all_reduce(torch.ones(1))
