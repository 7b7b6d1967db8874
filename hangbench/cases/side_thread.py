"""A second thread of rank 0 waits forever in a barrier of its own group. No rank waits for it: the run trains."""

# /// hangbench
# verdict = ["healthy"]
# states = ["computing", "computing"]
# ///
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
beside = dist.new_group([0, 1])
if dist.get_rank() == 0:
    threading.Thread(target=dist.barrier, args=(beside,), daemon=True).start()
net = DistributedDataParallel(torch.nn.Linear(256, 256))
print("ready", flush=True)
while True:
    net(torch.randn(256, 256)).pow(2).mean().backward()
    net.zero_grad()
