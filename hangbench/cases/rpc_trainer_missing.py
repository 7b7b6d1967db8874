"""A parameter server counts itself and its trainers, but torchrun starts one process less: nobody is the last trainer in
`init_rpc`."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-rendezvous", "in-rendezvous"]
# operations = ["init_rpc", "init_rpc"]
# finding = "HD401"
# culprits = [2]
# victims = [0, 1]
# ///
import os

from torch.distributed import rpc

SERVERS, TRAINERS = 1, 2

rank = int(os.environ["RANK"])
print("ready", flush=True)
rpc.init_rpc("server" if rank == 0 else f"trainer{rank}", rank=rank, world_size=SERVERS + TRAINERS)
rpc.shutdown()
