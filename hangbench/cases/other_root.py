"""All three ranks broadcast the settings, but rank 2 expects them from rank 1, while the others expect them from rank 0."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# states = ["in-collective", "in-collective", "in-collective"]
# operations = ["broadcast_object_list", "broadcast_object_list", "broadcast_object_list"]
# finding = "HD201"
# culprits = [2]
# victims = [0, 1]
# ///
import torch.distributed as dist


def settings(source):
    box = [{"lr": 1e-3}] if dist.get_rank() == source else [None]
    dist.broadcast_object_list(box, src=source)
    dist.barrier()
    return box[0]


dist.init_process_group("gloo")
print("ready", flush=True)
settings(1 if dist.get_rank() == 2 else 0)
