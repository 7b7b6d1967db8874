"""Rank 1 waits for a tool to end before it reads the tool's messages. The tool has more of them than the pipe can hold, and waits
until somebody reads it."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "waiting-child"]
# operations = ["all_reduce", ""]
# finding = "HD303"
# culprits = [1]
# victims = [0]
# ///
import subprocess
import sys

import torch
import torch.distributed as dist

TOOL = "import sys\nfor n in range(9000): print(f'sentence {n} is empty', file=sys.stderr)"


def convert():
    tool = subprocess.Popen([sys.executable, "-c", TOOL], stderr=subprocess.PIPE, text=True)
    if tool.wait():
        raise RuntimeError(tool.stderr.read())


dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 1:
    convert()
dist.all_reduce(torch.ones(1))
