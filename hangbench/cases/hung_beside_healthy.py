"""One hung job and one healthy job run on the same host: rank 1 of the hung one sleeps forever. Rank 0 waits for it
in all_gather.
"""

# /// hangbench
# situation = "beside-one"
# verdict = ["hung"]
# states = ["in-collective", "sleeping"]
# operations = ["all_gather", ""]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
me = dist.get_rank()
print("ready", flush=True)
for i in range(100):
    if me == 1 and i == 5:
        time.sleep(10**6)
    dist.all_gather([torch.zeros(4) for _ in range(2)], torch.ones(4))
