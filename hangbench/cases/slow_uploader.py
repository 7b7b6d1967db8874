"""Rank 1 waits for a thread that writes a checkpoint into a named pipe. A process outside of the run uploads it at a limited
rate, so the pipe is full nearly all the time. The others wait at a barrier. Nothing is stuck."""

# /// hangbench
# verdict = ["waiting"]
# states = ["in-collective", "waiting-io"]
# operations = ["barrier", ""]
# finding = "HD303"
# severity = "info"
# culprits = [1]
# victims = [0]
# ///
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch.distributed as dist

UPLOAD = """
import os, time
pipe = os.open("upload.pipe", os.O_RDONLY)
while os.read(pipe, 4096):
    time.sleep(0.1)
"""


def save(megabytes):
    with open("upload.pipe", "wb") as pipe:
        for _ in range(megabytes):
            pipe.write(bytes(1 << 20))
    return megabytes


dist.init_process_group("gloo")
if dist.get_rank() == 1:
    os.mkfifo("upload.pipe")
    shell = ["bash", "-c", '"$0" -c "$1" &', sys.executable, UPLOAD]
    subprocess.run(shell, check=True, start_new_session=True)
pool = ThreadPoolExecutor(1)
print("ready", flush=True)
if dist.get_rank() == 1:
    print(pool.submit(save, 200).result())
dist.barrier()
