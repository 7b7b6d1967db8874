"""Rank 0 has the lock of its cache and opens the lock file a second time to lock it again: flock(2) makes it wait for itself."""

# /// hangbench
# ranks = 2
# verdict = ["hung"]
# finding = "HD304"
# culprits = [0]
# victims = [1]
# ///

import contextlib
import fcntl
import os

import torch.distributed as dist

rank = int(os.environ["RANK"])


@contextlib.contextmanager
def locked():
    with open("cache.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_old():
    with locked():
        print("removed")


def main():
    dist.init_process_group("gloo")
    print("ready", flush=True)
    if rank == 0:
        with locked():
            remove_old()
    dist.barrier()


main()
