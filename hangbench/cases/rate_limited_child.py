"""Rank 0 waits for a child process that uploads at a limited rate: it copies some kilobytes and then sleeps for two seconds.
Rank 1 waits in a barrier. Nothing is stuck.
"""

# /// hangbench
# verdict = ["waiting", "healthy"]
# states = ["computing", "in-collective"]
# operations = ["", "barrier"]
# ///
import os
import subprocess
import sys
import tempfile

import torch.distributed as dist

COPY = """
import sys, time
with open(sys.argv[1], "wb") as target:
    for part in range(1000):
        target.write(bytes(100_000))
        target.flush()
        time.sleep(2)
"""


def upload(folder):
    target = os.path.join(folder, "checkpoint.part")
    done = subprocess.run([sys.executable, "-c", COPY, target], capture_output=True, text=True)
    return done.returncode


def main():
    dist.init_process_group("gloo")
    dist.barrier()
    print("ready", flush=True)
    if dist.get_rank() == 0:
        upload(tempfile.mkdtemp(dir="."))
    dist.barrier()


main()
