"""Rank 2 of 3 is in a broadcast inside a debug branch that only it takes; the others are in the barrier after it. The branch is
under `if verbose_rank == rank`."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# states = ["in-collective", "in-collective", "in-collective"]
# operations = ["barrier", "barrier", "broadcast"]
# finding = "HD203"
# culprits = [2]
# victims = [0, 1]
# ///
import torch
import torch.distributed as dist


class Loop:
    def __init__(self, rank):
        self.rank = rank
        self.verbose_rank = 2

    def debug(self, value):
        if self.rank != self.verbose_rank:
            return
        dist.broadcast(value, src=self.verbose_rank)
        print(value)

    def run(self):
        for it in range(50):
            value = torch.full((3,), float(it))
            dist.all_reduce(value)
            if it == 20:
                self.debug(value)
            dist.barrier()


dist.init_process_group("gloo")
print("ready", flush=True)
Loop(dist.get_rank()).run()
