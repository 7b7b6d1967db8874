"""Two threads of rank 0 acquire two locks in opposite order: its training thread holds one and its logging thread the
other. Rank 1 waits for rank 0 in DDP's all-reduce.
"""

# /// hangbench
# verdict = ["hung"]
# states = ["waiting-lock", "in-collective"]
# operations = ["", "all_reduce"]
# finding = "HD304"
# culprits = [0]
# victims = [1]
# ///
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Metrics:
    def __init__(self):
        self.buffer, self.file = threading.Lock(), threading.Lock()

    def add(self):
        with self.buffer:
            time.sleep(0.3)
            with self.file:
                pass

    def flush(self):
        with self.file:
            time.sleep(0.3)
            with self.buffer:
                pass


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
metrics = Metrics()
print("ready", flush=True)
for global_step in range(100):
    model(torch.randn(2, 4)).sum().backward()
    if global_step == 6 and dist.get_rank() == 0:
        threading.Thread(target=metrics.flush, name="metrics").start()
        metrics.add()
