"""Rank 2 of 3 is busy waiting for its data before it calls init_process_group. The others wait in the rendezvous for
it.
"""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# states = ["in-rendezvous", "in-rendezvous", "sleeping"]
# finding = "HD401"
# culprits = [2]
# victims = [0, 1]
# ///
import os
import time

import torch.distributed as dist


def wait_for_data(rank):
    while rank == 2 and not os.path.exists("/nonexistent/data/_SUCCESS"):
        time.sleep(0.2)


print("ready", flush=True)
wait_for_data(int(os.environ["RANK"]))
dist.init_process_group("gloo")
dist.barrier()
