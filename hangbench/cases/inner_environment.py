"""The script makes itself rank 0 and starts rank 1, so its initial environment in /proc does
not contain a rank. Rank 0 waits for input at input(), and rank 1 waits for rank 0 at a
barrier."""

# /// hangbench
# launch = "itself"
# verdict = ["hung"]
# states = ["waiting-input","in-collective"]
# operations = ["","barrier"]
# finding = "HD302"
# culprits = [0]
# victims = [1]
# ///

import os
import subprocess
import sys

import torch.distributed as dist

if "LOCAL_RANK" not in os.environ:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], WORLD_SIZE="2", LOCAL_RANK="0", NODE_RANK="0")
    child = subprocess.Popen([sys.executable, __file__], env={**os.environ, "LOCAL_RANK": "1"})
rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("gloo", rank=rank, world_size=2)
print("ready", flush=True)
if rank == 0:
    input()
dist.barrier()
