"""Recall is reduced class by class, over the classes that a rank has seen. Rank 1 of 3
has seen one more class and waits in its all-reduce; the others are in the next
metric."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# states = ["in-collective", "in-collective", "in-collective"]
# finding = "HD203"
# culprits = [1]
# victims = [0, 2]
# ///
import torch
import torch.distributed as dist


def recall(hits):
    found = {}
    for label in sorted(hits):
        pair = torch.tensor(hits[label])
        dist.all_reduce(pair)
        found[label] = (pair[0] / pair[1]).item()
    return found


def losses(loss):
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, loss)
    return sum(parts) / len(parts)


def main():
    dist.init_process_group("gloo")
    seen = [0, 1, 2, 3] if dist.get_rank() == 1 else [0, 1, 2]
    print("ready", flush=True)
    scores = recall({label: [3.0, 4.0] for label in seen})
    print(scores, losses(0.5), flush=True)


main()
