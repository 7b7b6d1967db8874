"""torchrun of node 0 waits for node 1, which was never started. No rank exists yet."""

# /// hangbench
# ranks = 4
# verdict = ["hung"]
# finding = "HD401"
# culprits = [2, 3]
# situation = "node-missing"
# nodes = [{}, {}]
# patience = 1.0
# ready = 0
# ///
import torch.distributed as dist

dist.init_process_group("gloo")
