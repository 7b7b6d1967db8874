"""Every rank sends to the next one before it receives. No receive is ever posted."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-p2p","in-p2p"]
# operations = ["send","send"]
# finding = "HD204"
# culprits = [0,1]
# ///

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
me, world = dist.get_rank(), dist.get_world_size()
message = torch.zeros(1_000_000)
print("ready", flush=True)
dist.send(message, (me + 1) % world)
dist.recv(message, (me - 1) % world)
