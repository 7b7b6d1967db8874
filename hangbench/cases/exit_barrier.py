"""Node 0's rank has finished, and its launcher waits in the exit barrier for the launcher of node 1, which was killed. No rank is
left."""

# /// hangbench
# situation = "second-node-killed"
# nodes = [{}, {}]
# verdict = ["waiting"]
# finding = "HD306"
# severity = "warning"
# ///
import os
import time

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
print("ready", flush=True)
if os.environ["RANK"] == "1":
    time.sleep(600)
