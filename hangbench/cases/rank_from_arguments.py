"""The rank is a command line argument and not in any environment
variable. Rank 1 sleeps forever, and rank 0 waits for it in
all_reduce."""

# /// hangbench
# launch = "itself"
# verdict = ["hung"]
# states = ["in-collective","sleeping"]
# operations = ["all_reduce",""]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///

import argparse
import subprocess
import sys
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("port")
parser.add_argument("--rank", type=int, default=None)
args = parser.parse_args()
if args.rank is None:
    children = [subprocess.Popen([sys.executable, __file__, args.port, "--rank", str(i)]) for i in range(2)]
    sys.exit(max(child.wait() for child in children))
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=args.rank, world_size=2)
print("ready", flush=True)
for _ in range(10):
    dist.all_reduce(torch.ones(1))
if args.rank == 1:
    time.sleep(10**6)
dist.all_reduce(torch.ones(1))
