"""A trainer is rank 0 itself and starts two collectors, which are ranks 1 and 2. No environment contains a rank. Rank 2
stops in its fifth rollout, and the others wait for it in all_gather.
"""

# /// hangbench
# ranks = 3
# launch = "itself"
# verdict = ["hung"]
# states = ["in-collective", "in-collective", "stopped"]
# operations = ["all_gather", "all_gather", ""]
# finding = "HD302"
# culprits = [2]
# victims = [0, 1]
# ///
import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def meet(number, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=3)
    print("ready", flush=True)


def gathered(value):
    parts = [torch.zeros(4) for _ in range(3)]
    dist.all_gather(parts, value)
    return torch.stack(parts)


def collect(number, port):
    meet(number, port)
    for rollout in range(1000):
        if number == 2 and rollout == 5:
            os.kill(os.getpid(), signal.SIGSTOP)
        gathered(torch.rand(4))


def main(port):
    context = mp.get_context("spawn")
    nodes = [context.Process(target=collect, args=(number, port), daemon=True) for number in (1, 2)]
    for node in nodes:
        node.start()
    meet(0, port)
    for _ in range(1000):
        gathered(torch.zeros(4)).mean()


if __name__ == "__main__":
    main(sys.argv[1])
