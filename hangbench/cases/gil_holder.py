"""A thread of rank 1 holds the GIL in a C call that does not return, so
its training thread cannot continue. Rank 0 waits for it in
all_reduce."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-lock"]
# operations = ["all_reduce", ""]
# finding = "HD304"
# culprits = [1]
# victims = [0]
# ///
import ctypes
import threading
import time

import torch
import torch.distributed as dist


def compress():
    ctypes.PyDLL(None).sleep(100_000)  # PyDLL keeps the GIL


def main():
    dist.init_process_group("gloo")
    print("ready", flush=True)
    for step in range(1000):
        if dist.get_rank() == 1 and step == 5:
            threading.Thread(target=compress, daemon=True).start()
        time.sleep(0.01)
        dist.all_reduce(torch.ones(3))


main()
