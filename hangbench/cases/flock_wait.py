"""Rank 0 waits for the lock of a cache file that a process outside the run holds. The others wait for rank 0 in
broadcast_object_list."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# states = ["waiting-lock", "in-collective", "in-collective"]
# operations = ["", "broadcast_object_list", "broadcast_object_list"]
# finding = "HD202"
# culprits = [0]
# victims = [1, 2]
# ///
import fcntl
import subprocess
import sys

import torch.distributed as dist


def vocabulary(path):
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        return file.read()


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    if me == 0:
        program = (
            "import fcntl,time; f=open('vocab.lock','a+'); fcntl.flock(f,2); print(1,flush=True); time.sleep(9999)"
        )
        other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        other.stdout.readline()
    print("ready", flush=True)
    shared = [vocabulary("vocab.lock") if me == 0 else None]
    dist.broadcast_object_list(shared, src=0)


main()
