"""Rank 1 sleeps forever, and the others wait for it in monitored_barrier. The barrier would name it after its
timeout.
"""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# culprits = [1]
# victims = [0, 2]
# finding = "HD202"
# states = ["in-collective", "sleeping", "in-collective"]
# ///
import datetime
import time

import torch.distributed as dist

dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 1:
    time.sleep(10**6)
dist.monitored_barrier(timeout=datetime.timedelta(seconds=1000))
