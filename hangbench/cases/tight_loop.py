"""One line calls all_reduce in an endless loop without a
counter, so both ranks are always in the same collective. It is
healthy."""

# /// hangbench
# verdict = ["healthy"]
# ///

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("ready", flush=True)
while True:
    dist.all_reduce(torch.ones(1000))
