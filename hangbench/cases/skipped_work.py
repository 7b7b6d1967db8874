"""Rank 1 skips one of six asynchronous all_reduces and has finished its works. Rank
0 waits for the one that rank 1 never started, rank 1 in the broadcast after
them."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "broadcast"]
# finding = "HD203"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist


def reduce_all(grads, skip):
    pending = []
    for index, grad in enumerate(grads):
        if index != skip:
            pending.append(dist.all_reduce(grad, async_op=True))
    for one in pending:
        one.wait()
    found = torch.zeros(1)
    dist.broadcast(found, src=0)
    return found


dist.init_process_group("gloo")
grads = [torch.ones(10) for _ in range(6)]
print("ready", flush=True)
for step in range(1000):
    reduce_all(grads, 3 if dist.get_rank() == 1 and step == 22 else None)
    dist.barrier()
