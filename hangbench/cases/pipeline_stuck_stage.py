"""A pipeline of three stages, whose middle stage hangs in a lock that it
takes twice. The last stage waits to receive from it, the first one to send to
it."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# states = ["in-p2p", "waiting-lock", "in-p2p"]
# operations = ["send", "", "recv"]
# finding = "HD304"
# culprits = [1]
# victims = [0, 2]
# ///
import threading

import torch
import torch.distributed as dist

cache_lock = threading.Lock()


def lookup(key):
    with cache_lock:
        return key * 2


def transform(x, i):
    if i == 5:
        with cache_lock:
            return x * lookup(i)
    return x


dist.init_process_group("gloo")
me = dist.get_rank()
print("ready", flush=True)
for i in range(20):
    x = torch.ones(1_000_000)
    if me > 0:
        dist.recv(x, src=me - 1)
    if me == 1:
        x = transform(x, i)
    if me < 2:
        dist.send(x, dst=me + 1)
