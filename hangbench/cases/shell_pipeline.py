"""Rank 0 waits for a shell script that starts one short
command after the other. No command lives as long as a
look. The others wait for the broadcast of its result."""

# /// hangbench
# verdict = ["waiting"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1]
# ///

import subprocess

import torch
import torch.distributed as dist

SCORE = """
for round in $(seq 100000); do
    awk 'BEGIN { for (i = 0; i < 400000; i++) sum += i; print sum }' | sort -n > /dev/null
done
"""


def main():
    dist.init_process_group("gloo")
    result = torch.zeros(1)
    print("ready", flush=True)
    if dist.get_rank() == 0:
        done = subprocess.run(["bash", "-c", SCORE], stdout=subprocess.PIPE, text=True, check=True)
        result += len(done.stdout)
    dist.broadcast(result, src=0)


main()
