"""Rank 1 reads a pipe in a C call that keeps the GIL, so the thread of the same
process that should write into it never runs. Rank 0 waits for rank 1 in
all_reduce."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-io"]
# operations = ["all_reduce", ""]
# finding = "HD304"
# culprits = [1]
# victims = [0]
# ///
import ctypes
import os
import threading
import time

import torch
import torch.distributed as dist

libc = ctypes.PyDLL(None)
reads, writes = os.pipe()


def feed():
    time.sleep(0.5)
    os.write(writes, b"x" * 8)


dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 1:
    threading.Thread(target=feed, daemon=True).start()
    libc.read(reads, ctypes.create_string_buffer(8), 8)
dist.all_reduce(torch.ones(4))
