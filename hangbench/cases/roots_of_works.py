"""Each rank uses the best member of its own table as the source of asynchronous
broadcasts. So there are three sources, and all ranks wait for their first
work."""

# /// hangbench
# known_miss = "Nothing records the root of work that is waited for later."
# ranks = 3
# verdict = ["hung"]
# states = ["in-collective", "in-collective", "in-collective"]
# operations = ["broadcast", "broadcast", "broadcast"]
# finding = "HD201"
# culprits = [0, 1, 2]
# ///
import torch
import torch.distributed as dist


def exploit(layers, scores):
    source = int(scores.argmin())
    works = []
    for layer in layers:
        works.append(dist.broadcast(layer, src=source, async_op=True))
    for work in works:
        work.wait()


dist.init_process_group("gloo")
print("ready", flush=True)
mine = torch.full((3,), 9.0)
mine[dist.get_rank()] = 0.5
exploit([torch.ones(8) for _ in range(4)], mine)
dist.barrier()
