"""Each rank trains alone for a long time. A thread of rank 1 waits in a broadcast for commands, which rank 0 sends when an
operator has one: that is its normal state, and the ranks do not need each other."""

# /// hangbench
# verdict = ["healthy"]
# states = ["computing", "computing"]
# patience = 2
# ///
import threading
import time

import torch
import torch.distributed as dist


def commands(group, inbox):
    while True:
        while dist.get_rank() == 0 and not inbox:
            time.sleep(0.5)
        command = [inbox.pop() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(command, src=0, group=group)


def train_alone(seconds):
    model, losses = torch.nn.Linear(64, 64), []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(200):
            loss = model(torch.randn(64, 64)).pow(2).mean()
            loss.backward()
        losses.append(loss.item())
        time.sleep(0.05)


dist.init_process_group("gloo")
threading.Thread(target=commands, args=(dist.new_group(), []), daemon=True).start()
print("ready", flush=True)
while True:
    train_alone(3600.0)
    dist.barrier()
