"""Three ranks pass a tensor around with batch_isend_irecv. In round 25, rank 2 expects it from the wrong neighbour and
waits to receive from rank 0. Rank 1 waits until rank 2 has received, and rank 0, one round later, until rank 1 has
received."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# states = ["in-p2p", "in-p2p", "in-p2p"]
# operations = ["send", "send", "recv"]
# finding = "HD204"
# culprits = [1, 2]
# victims = [0]
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
here, world = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.ones(4) * here, torch.zeros(4)
print("ready", flush=True)


def exchange(source):
    posted = [
        dist.P2POp(dist.isend, mine, (here + 1) % world),
        dist.P2POp(dist.irecv, theirs, source),
    ]
    for request in dist.batch_isend_irecv(posted):
        request.wait()


for n in range(1000):
    exchange(0 if here == 2 and n == 25 else (here - 1) % world)
