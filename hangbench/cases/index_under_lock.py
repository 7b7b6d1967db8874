"""The first rank that gets a file lock builds an index in a
child process. The others wait for the lock, not for a
collective."""

# /// hangbench
# ranks = 3
# verdict = ["waiting"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1, 2]
# ready = 1
# ///

import fcntl
import os
import subprocess
import sys
import time

import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with open("index.lock", "a") as lock:
        while rank > 0 and not os.path.exists("started"):
            time.sleep(0.1)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists("index"):
            open("started", "w").close()
            print("ready", flush=True)
            subprocess.run([sys.executable, "-c", "while True: sum(range(100000))"], check=True)
            open("index", "w").close()
    dist.barrier()


main()
