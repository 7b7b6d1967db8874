"""Both ranks compile an extension. An earlier run was killed while it did so and has left its lock file behind, so both poll
for a lock that no process holds."""

# /// hangbench
# verdict = ["hung"]
# states = ["waiting-lock", "waiting-lock"]
# operations = ["", ""]
# finding = "HD202"
# culprits = [0, 1]
# victims = []
# ///
import os

import torch.distributed as dist
from torch.utils.cpp_extension import load_inline

FOLDER = os.path.abspath("extensions")
SOURCE = "torch::Tensor twice(torch::Tensor x) { return x + x; }"

os.makedirs(FOLDER, exist_ok=True)
open(os.path.join(FOLDER, "lock"), "a").close()
dist.init_process_group("gloo")
print("ready", flush=True)
load_inline("twice", SOURCE, functions=["twice"], build_directory=FOLDER)
dist.barrier()
