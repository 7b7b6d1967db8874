"""Rank 0 collects results by their keys in a TCPStore, without a process group. Rank 2 ended before it stored its result."""

# /// hangbench
# ranks = 3
# launch = "environment"
# verdict = ["hung"]
# finding = "HD301"
# culprits = [2]
# victims = [0, 1]
# ///

import datetime
import os

from torch.distributed import TCPStore

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
results = ["first", "second", "third"]

store = TCPStore(address, port, world, is_master=rank == 0, timeout=datetime.timedelta(hours=1))
print("ready", flush=True)
if results[rank] != "third":
    store.set(f"result/{rank}", results[rank])
    store.wait([f"result/{n}" for n in range(world)])
