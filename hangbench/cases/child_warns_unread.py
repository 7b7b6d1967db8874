"""Rank 1 asks a simulator for each step, through a pipe. The simulator also writes warnings to its standard error, a pipe that
rank 1 never reads. When it is full, the simulator does not answer any more.
"""

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

SIMULATOR = """
import sys
for line in sys.stdin:
    value = float(line)
    if abs(value) > 0.5:
        print(f"value {value:.6f} is out of range, clipped to 0.5", file=sys.stderr, flush=True)
    print(min(max(value, -0.5), 0.5), flush=True)
"""


class Simulator:
    def __init__(self):
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(
            [sys.executable, "-c", SIMULATOR], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def step(self, action):
        self.child.stdin.write(f"{action}\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline())


def episode(simulator, scale):
    return sum(simulator.step(scale * value) for value in torch.randn(500).tolist())


dist.init_process_group("gloo")
rank = dist.get_rank()
simulator = Simulator()
print("ready", flush=True)
for _ in range(100):
    reward = torch.tensor([episode(simulator, 1.0 if rank == 1 else 0.1)])
    dist.all_reduce(reward)
