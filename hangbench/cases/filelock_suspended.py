"""Rank 1 waits for the lock of a cache, with the filelock package. A process outside the run has it and is stopped: somebody
pressed Ctrl-Z. Rank 0 waits for rank 1 at the barrier."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-lock"]
# operations = ["barrier", ""]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///
import os
import signal
import subprocess
import sys

import torch.distributed as dist
from filelock import FileLock

BUILD = "import filelock, time; lock = filelock.FileLock('tokens.lock'); lock.acquire(); print(1, flush=True); time.sleep(9999)"


def suspended_builder():
    """Starts a process that is no child of this rank, and stops it when it has the lock."""
    shell = ["bash", "-c", '"$0" -c "$1" & echo $!', sys.executable, BUILD]
    lines = subprocess.Popen(shell, stdout=subprocess.PIPE, text=True, start_new_session=True).stdout
    pid = int(lines.readline())
    lines.readline()
    os.kill(pid, signal.SIGSTOP)


dist.init_process_group("gloo")
if dist.get_rank() == 1:
    suspended_builder()
print("ready", flush=True)
if dist.get_rank() == 1:
    with FileLock("tokens.lock"):
        print("tokens are ready", flush=True)
dist.barrier()
