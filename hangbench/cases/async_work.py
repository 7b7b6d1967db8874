"""Both ranks wait for asynchronous all-reduces without a torch function, so there is no torch frame on the stack.
Rank 1 sleeps forever in its fourth round and rank 0 waits for it.
"""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective","sleeping"]
# operations = ["all_reduce",""]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///

import time

import torch
import torch.distributed as dist


def synchronize(tensors):
    pending = []
    for tensor in tensors:
        pending.append(dist.all_reduce(tensor, async_op=True))
    for work in pending:
        work.wait()


dist.init_process_group("gloo")
print("ready", flush=True)
n = 0
while True:
    n += 1
    if dist.get_rank() == 1 and n == 4:
        while True:
            time.sleep(3600)
    synchronize([torch.ones(3), torch.ones(4)])
