"""Rank 1 waits for the lock of a cache, with the filelock package. A process of another job has it and fills the cache. Rank 0
waits for rank 1 at the barrier."""

# /// hangbench
# verdict = ["waiting"]
# states = ["in-collective", "waiting-lock"]
# operations = ["barrier", ""]
# finding = "HD202"
# severity = "info"
# culprits = [1]
# victims = [0]
# patience = 2
# ///
import subprocess
import sys

import torch.distributed as dist
from filelock import FileLock

BUILD = "import filelock; lock = filelock.FileLock('tokens.lock'); lock.acquire(); print(1, flush=True)\nwhile 1: hash(str(lock))"


def other_job():
    """Starts a process that is no child of this rank, and waits until it has the lock."""
    shell = ["bash", "-c", '"$0" -c "$1" &', sys.executable, BUILD]
    subprocess.Popen(shell, stdout=subprocess.PIPE, text=True, start_new_session=True).stdout.readline()


dist.init_process_group("gloo")
if dist.get_rank() == 1:
    other_job()
print("ready", flush=True)
if dist.get_rank() == 1:
    with FileLock("tokens.lock"):
        print("tokens are ready", flush=True)
dist.barrier()
