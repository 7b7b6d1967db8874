"""Three stages of a pipeline pass activations on; the last one computes longest. Nothing is wrong."""

# /// hangbench
# ranks = 3
# verdict = ["healthy", "waiting"]
# ///

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("ready", flush=True)
me = dist.get_rank()
layer = torch.nn.Linear(512, 512)
while True:
    x = torch.randn(256, 512)
    if me:
        dist.recv(x, me - 1)
    for _ in range(5 * (me + 1)):
        x = layer(x).detach()
    if me < 2:
        dist.send(x, me + 1)
