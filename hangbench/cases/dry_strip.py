"""Four ranks swap the borders of their strips with both neighbours, 20 times between two all_reduces. From step 30 on,
the strip of rank 3 is empty, and it skips the exchange. It waits in the all_reduce, rank 2 for its border, and the
others one behind the other. No rank's call shows which neighbour it waits for.
"""

# /// hangbench
# known_miss = "Nothing records for which neighbour a rank waits. So all are named."
# ranks = 4
# verdict = ["hung"]
# states = ["in-p2p", "in-p2p", "in-p2p", "in-collective"]
# finding = "HD204"
# culprits = [3]
# victims = [0, 1, 2]
# ///
import torch
import torch.distributed as dist


class Strip:
    def __init__(self, rank, world):
        self.neighbours = [peer for peer in (rank - 1, rank + 1) if 0 <= peer < world]
        self.level = torch.full((8,), 90.0 - 60 * (rank == 3))
        self.borders = [torch.zeros(8) for _ in self.neighbours]

    def exchange(self):
        calls = []
        for peer, border in zip(self.neighbours, self.borders, strict=False):
            calls += [dist.P2POp(dist.isend, self.level, peer), dist.P2POp(dist.irecv, border, peer)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()

    def advance(self):
        if self.level.max() <= 0:
            return
        self.exchange()
        self.level = self.level - 1


def highest(strip):
    level = strip.level.max()
    dist.all_reduce(level, op=dist.ReduceOp.MAX)
    return level


def main():
    dist.init_process_group("gloo")
    strip = Strip(dist.get_rank(), dist.get_world_size())
    print("ready", flush=True)
    for _ in range(6):
        for _ in range(20):
            strip.advance()
        if highest(strip) <= 0:
            break


main()
