"""Three ranks exchange halos by isend and irecv and wait for the receive first; rank 2 sends to the wrong neighbour.
Rank 0 waits for a message that never arrives, rank 2 for a receiver that does not receive, and rank 1 at the
barrier."""

# /// hangbench
# known_miss = "Nothing records which rank sends to the wrong one. So all are named."
# ranks = 3
# verdict = ["hung"]
# finding = "HD204"
# states = ["in-p2p", "in-collective", "in-p2p"]
# operations = ["recv", "barrier", "send"]
# culprits = [2]
# victims = [0, 1]
# ///
import torch
import torch.distributed as dist


def halo(me, world, step):
    left, right = (me - 1) % world, (me + 1) % world
    if step == 7 and me == 2:
        right = left
    inbox = torch.zeros(8)
    outgoing = dist.isend(torch.ones(8), dst=right)
    incoming = dist.irecv(inbox, src=left)
    incoming.wait()
    outgoing.wait()
    return inbox


dist.init_process_group("gloo")
me, world = dist.get_rank(), dist.get_world_size()
print("ready", flush=True)
for step in range(20):
    halo(me, world, step)
    dist.barrier()
