"""All ranks check every 0.1 s whether a shared library exists. A process of the same job, which is no rank, computes it."""

# /// hangbench
# verdict = ["waiting"]
# states = ["sleeping", "sleeping"]
# finding = "HD202"
# severity = "info"
# culprits = [0, 1]
# patience = 2
# ///
import os
import time

import torch.distributed as dist


def orphan(work):
    """Runs `work` in a process of the same process group that is no child of this one."""
    if os.fork() == 0:
        if os.fork() == 0:
            work()
        os._exit(0)
    os.wait()


def compute():
    until = time.monotonic() + 3600
    while time.monotonic() < until:
        sum(range(100_000))


if int(os.environ["RANK"]) == 1:
    orphan(compute)
dist.init_process_group("gloo")
dist.barrier()
print("ready", flush=True)
while not os.path.exists("/nonexistent/library/_SUCCESS"):
    time.sleep(0.1)
dist.barrier()
